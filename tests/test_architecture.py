"""The arrows between the folders run one way, the core is pure, and every module says what it is for."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sources import source_of

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("partitioner", "connector", "streaming", "compaction")
MODULES = sorted(
    path
    for path in [*ROOT.glob("*.py"), *(found for folder in FOLDERS for found in (ROOT / folder).rglob("*.py"))]
    if "__pycache__" not in path.parts
)
ALLOWED = {
    "partitioner": {"partitioner"},
    "connector": {"partitioner", "connector"},
    "streaming": {"partitioner", "connector", "compaction", "streaming"},
    "compaction": {"partitioner", "connector", "compaction"},
}
IMPURE = {
    "time", "datetime", "threading", "multiprocessing", "concurrent", "queue", "socket", "ssl", "select", "selectors",
    "asyncio", "subprocess", "signal", "logging", "os", "pathlib", "shutil", "tempfile", "random", "secrets", "uuid",
    "urllib", "http", "sqlite3",
}  # fmt: skip

# Of each folder its own modules: a test for every single module would take longer to be reported than to run.
FOLDERS_OF_MODULES = {
    folder.relative_to(ROOT).as_posix(): [path for path in MODULES if path.parent == folder]
    for folder in sorted({path.parent for path in MODULES})
}
of_each_folder = pytest.mark.parametrize("paths", FOLDERS_OF_MODULES.values(), ids=FOLDERS_OF_MODULES)


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    """(absolute module, name) of each import, relative ones resolved below `keyorder`."""
    package = ["keyorder", *path.relative_to(ROOT).parent.parts]
    for level, module, names in source_of(path).imports:
        base = package[: len(package) - level + 1] if level > 0 else []
        absolute = ".".join([*base, *([module] if module else [])])
        yield from ((absolute, name) for name in names or ("",))


def _lint(root: Path, config: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over the `keyorder` that lies in `root`, or the installed one."""
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()",
         "--no-cache", "--config", str(config)],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_contracts_hold() -> None:
    """import-linter finds every contract of pyproject.toml kept."""
    found = _lint(ROOT, ROOT / "pyproject.toml")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "3 kept, 0 broken" in found.stdout


@pytest.mark.slow  # each lints a copy of the tree
@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("partitioner/changes/plan.py", "from ...connector import admin"),
        ("partitioner/layout.py", "import threading"),
        ("partitioner/gates/gate.py", "import threading"),
        ("partitioner/gates/gate.py", "from ..writers import lease"),
        ("connector/__init__.py", "from .. import compaction"),
        ("compaction/strategy.py", "from .. import streaming"),
    ],
)
def test_the_contracts_catch_what_breaks_them(module: str, line: str, tmp_path: Path) -> None:
    """The root folder being the package does not blind the linter: a forbidden import in a copy is found."""
    copy = tmp_path / "keyorder"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.json"))
    for path in [*ROOT.glob("*.py"), ROOT / "pyproject.toml"]:
        shutil.copy(path, copy)
    with (copy / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    found = _lint(tmp_path, copy / "pyproject.toml")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "1 broken" in found.stdout


@of_each_folder
def test_arrows_run_one_way(paths: list[Path]) -> None:
    """streaming stands on compaction, both on connector, connector on partitioner; imports inside functions count too."""
    for path in paths:
        if path.parent == ROOT:
            continue
        folder = path.relative_to(ROOT).parts[0]
        for module, name in _imports(path):
            parts = [*module.split("."), name]
            if parts[0] == "keyorder":
                assert parts[1] in {*ALLOWED[folder], "_version", "__version__"}, f"{path}: {module} {name}"


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.relative_to(ROOT).parts[0] == "partitioner"],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_the_core_stands_on_the_standard_library_hashes_and_avro(path: Path) -> None:
    """No clock, no threads, no I/O; of the Kafka client the hash functions, and for errors its own."""
    for module, name in _imports(path):
        top = module.split(".")[0]
        if top == "confluent_kafka":
            assert module == "confluent_kafka", f"{path}: {module}"
            # Errors that stand where the client library raises its own are of its family.
            family = {"KafkaError", "KafkaException"} if path.parent.name == "errors" else set()
            assert name in {"murmur2", "consistent", "fnv1a", *family}, f"{path}: {module} {name}"
        else:
            assert top in {"keyorder", "fastavro"} or top in sys.stdlib_module_names, f"{path}: {module}"
            assert top not in IMPURE, f"{path}: {module}"


def test_nothing_imports_the_bare_folder_names() -> None:
    """Only `keyorder....`: `streaming` and the like are other projects' packages."""
    # Parsed is only what may hold one.
    named = re.compile(rf"\b(?:from|import)\s+(?:[\w., ]+,\s*)?(?:{'|'.join(FOLDERS)})\b")
    tests = [path for path in (ROOT / "tests").rglob("*.py") if "__pycache__" not in path.parts]
    others = [path for folder in ("examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    for path in [*MODULES, *tests, *others]:
        if not named.search(path.read_text(encoding="utf-8")):
            continue
        bare = {module.split(".")[0] for module, _ in _imports(path)} & set(FOLDERS)
        assert not bare, f"{path} imports {bare}"


@of_each_folder
def test_every_module_says_what_it_is_for(paths: list[Path]) -> None:
    """A docstring at its beginning, of at least one sentence."""
    for path in paths:
        said = source_of(path).docstring
        first = said.partition("\n\n")[0]

        assert first.endswith((".", ":", "?")), f"{path} has no docstring, or none that is a sentence"
        assert len(first.split()) > 2, f"{path} says {first!r}"


@of_each_folder
def test_a_futures_timeout_is_caught_by_its_own_name(paths: list[Path]) -> None:
    """In Python 3.10 it is not the built-in TimeoutError: catching that would let it through as an unknown error."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if ".result(" not in text:
            continue
        caught = [n.type for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ExceptHandler) and n.type]
        names = {name.id for kind in caught for name in ast.walk(kind) if isinstance(name, ast.Name)}
        assert "TimeoutError" not in names, f"{path}: from concurrent.futures import TimeoutError as FutureTimeout"


@of_each_folder
def test_nobody_asks_an_admin_client_for_commits(paths: list[Path]) -> None:
    """The client library ends the process there when a coordinator has moved: `connector/group_commits.py` asks otherwise."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if "list_consumer_group_offsets" not in text:
            continue
        names = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
        assert "list_consumer_group_offsets" not in names, path


def test_one_module_asks_coordinators_through_an_admin_client() -> None:
    """Such a request that runs out ends the process; `connector/admin_link.py` lets none run out."""
    asking = {
        "describe_consumer_groups", "delete_consumer_groups", "alter_consumer_group_offsets", "delete_consumer_group_offsets",
    }  # fmt: skip
    found = {
        str(path.relative_to(ROOT))
        for path in MODULES
        for text in [path.read_text(encoding="utf-8")]
        if any(name in text for name in asking)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in asking
    }
    assert found == {"connector/admin_link.py"}
