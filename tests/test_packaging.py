"""The wheel holds what the checkout holds, and works outside it."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import keyorder
import pytest
from support.wheel import FOLDERS, ROOT, build_sdist, build_wheel, builds_here, copy_source, expect_built


def test_the_changelog_and_the_upgrade_notes_know_this_version() -> None:
    """The newest dated version is that of the code."""
    dated = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert dated[0] == keyorder.__version__
    minor = keyorder.__version__.rpartition(".")[0]
    assert f"## Upgrading to {minor}\n" in (ROOT / "docs/upgrade.md").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once for all tests of this file."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_has_every_module_of_the_tree(wheel: Path) -> None:
    """A sub-package that is missing in pyproject.toml would import here and be missing there."""
    tree = {f"keyorder/{path.name}" for path in ROOT.glob("*.py")}
    for folder in FOLDERS:
        tree |= {f"keyorder/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / folder).rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if name.endswith(".py") and name.startswith("keyorder/")} == tree


LOOK = """
import io, sys
sys.path[:] = [sys.argv[1], *(path for path in sys.path if path)]
from pyspark.sql.worker import lookup_data_sources
found = io.BytesIO()
lookup_data_sources._main(io.BytesIO(), found)
assert b"keyorder" in found.getvalue()
import pyspark_keyorder
assert pyspark_keyorder.__file__.startswith(sys.argv[1])
"""


@pytest.mark.slow
def test_spark_finds_the_source_by_itself(wheel: Path, tmp_path: Path) -> None:
    """From the wheel, and from the checkout: by the code with which PySpark looks for sources to register."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for place in (tmp_path, ROOT):
        ran = subprocess.run(
            [sys.executable, "-I", "-c", LOOK, str(place)], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_the_wheel_has_the_data_files(wheel: Path) -> None:
    """The marker for type checkers, and the lock files of the embedded brokers."""
    locks = {f"keyorder/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "connector/local").glob("*.lock.json")}
    with zipfile.ZipFile(wheel) as archive:
        assert {"keyorder/py.typed", *locks} <= set(archive.namelist())


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, it is that one which is imported, with its public names, and without a Kafka client at once."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    check = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import keyorder\n"
        "assert keyorder.__file__.startswith(sys.argv[1]), keyorder.__file__\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        "assert keyorder.Layout(initial=3, count=5).home(b'abc') == 3\n"
        "assert issubclass(keyorder.KeyorderError, Exception)\n"
        "print(keyorder.__version__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", check, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == wheel.name.split("-")[1]


def test_spark_finds_the_source_of_this_environment_from_anywhere(tmp_path: Path) -> None:
    """Also where `make setup` has made it: PySpark asks for the modules that lie there as files, and no import hook."""
    look = "import pkgutil; print(*(m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_k')))"
    seen = subprocess.run([sys.executable, "-Ic", look], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["pyspark_keyorder"]


@pytest.mark.nightly
def test_an_editable_install_is_found_from_anywhere(tmp_path: Path) -> None:
    """By PySpark's look for sources and by mypy, which both follow files and no import hooks."""
    source, home = copy_source(tmp_path), tmp_path / "venv"
    venv.create(home, with_pip=True)
    command = ["pip", "--disable-pip-version-check", "install", "--no-deps", "--editable", str(source)]
    expect_built(
        subprocess.run([str(home / "bin" / "python"), "-Im", *command], capture_output=True, text=True, check=False)
    )
    look = "import pkgutil; print(*sorted(m.name for m in pkgutil.iter_modules() if 'keyorder' in m.name))"
    seen = subprocess.run([str(home / "bin" / "python"), "-Ic", look], capture_output=True, text=True, cwd=tmp_path)
    assert seen.stdout.split() == ["keyorder", "pyspark_keyorder"]
    uses = tmp_path / "uses.py"
    uses.write_text("from keyorder.partitioner.layout import Layout\nreveal_type(Layout(1, 2).home(b'k'))\n")
    mypy = ["mypy", "--python-executable", str(home / "bin" / "python"), "--follow-imports", "silent", str(uses)]
    judged = subprocess.run([sys.executable, "-Im", *mypy], capture_output=True, text=True, cwd=tmp_path)
    assert 'Revealed type is "int"' in judged.stdout, judged.stdout + judged.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_installed_needs_no_checkout(kind: str, tmp_path: Path) -> None:
    """By pip, into a folder of its own: the command starts and knows all its commands, data files are there."""
    made = {"wheel": build_wheel, "sdist": build_sdist}[kind](tmp_path)
    place = tmp_path / "installed"
    options = ["--no-deps", *(["--no-build-isolation"] if builds_here() else []), "--target", str(place)]
    command = ["pip", "--disable-pip-version-check", "install", "--quiet", *options, str(made)]
    expect_built(subprocess.run([sys.executable, "-Im", *command], capture_output=True, text=True, check=False))
    check = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import keyorder, keyorder.aio, keyorder.errors, keyorder.metrics\n"
        "assert keyorder.__file__.startswith(sys.argv[1]), keyorder.__file__\n"
        "from keyorder.connector.cli.main import COMMANDS, cli\n"
        "from keyorder.connector.local.versions import load_lock\n"
        "import click\n"
        "assert all(cli.get_command(click.Context(cli), name) for name in COMMANDS)\n"
        "load_lock('4.1.2')\n"
        "print(keyorder.__version__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-Ic", check, str(place)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == keyorder.__version__
    assert (place / "bin" / "keyorder").exists()
    assert (place / "keyorder" / "py.typed").exists()
