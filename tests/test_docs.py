"""The documents say what the code does: options, files, links, and examples that run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import keyorder
import pytest
from keyorder.connector import config
from keyorder.connector.cli.main import COMMANDS
from keyorder.connector.operations import topic_settings
from support.cluster import KafkaUnderTest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_MARKED = re.compile(r"<!-- test -->\n```python\n(.*?)```", re.DOTALL)
_PAGE = re.compile(r"\bdocs/[a-z][a-z0-9_/-]+\.md\b")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)#]+)[^)]*\)")


def rows(text: str) -> dict[str, str]:
    """Every table row by the first cell's code words."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            first = line.split("|")[1]
            found.update(dict.fromkeys(re.findall(r"`([^`]+)`", first), line))
    return found


CONFIGURATION = rows((ROOT / "docs" / "configuration.md").read_text())
OPTIONS = {**config._PRODUCER_OPTIONS, **config._CONSUMER_OPTIONS}


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_option_is_documented_with_its_default(option: str) -> None:
    """Each option of the code's tables has a row, and the row has the default that the code states."""
    default = re.search(r"\((\w+)\)$", OPTIONS[option])

    assert option in CONFIGURATION
    if default is not None:
        assert f"| `{default[1]}` |" in CONFIGURATION[option]


@pytest.mark.parametrize("setting", topic_settings.OUR_TOPIC_SETTINGS)
def test_every_topic_setting_is_documented(setting: str) -> None:
    """Each setting that the control topic keeps has a row."""
    assert setting in CONFIGURATION


def test_no_option_is_documented_that_does_not_exist() -> None:
    """A row of a name in keyorder's own space names an option of the code."""
    known = {*OPTIONS, *topic_settings.OUR_TOPIC_SETTINGS}

    assert [name for name in CONFIGURATION if name.startswith("keyorder.") and name not in known] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Each relative link names a file of the project."""
    links = [link for link in _LINK.findall(document.read_text()) if "://" not in link]

    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_site_builds_and_has_the_public_api(tmp_path: Path) -> None:
    """Every page is in the navigation, and each public name with its methods on the page of the Python API."""
    done = subprocess.run(
        [sys.executable, "-Im", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    navigation = (tmp_path / "index.html").read_text()
    assert {page for page in pages if f'href="{page}.html"' not in navigation} == set()
    api = (tmp_path / "api.html").read_text()
    for name in set(keyorder.__all__) - {"__version__"}:
        assert f'id="keyorder.{name}"' in api
    assert 'id="keyorder.OrderedConsumer.gates"' in api


def test_the_file_map_names_files_that_exist() -> None:
    """Each path in the first column of ARCHITECTURE.md's map is a file or a folder."""
    named = [name for name in rows((ROOT / "ARCHITECTURE.md").read_text()) if "/" in name]

    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("package", ["partitioner", "connector"])
def test_the_file_map_is_complete(package: str) -> None:
    """Each module of the core and of the Kafka edge is in ARCHITECTURE.md's map."""
    named = rows((ROOT / "ARCHITECTURE.md").read_text())
    modules = [f"{package}/{path.name}" for path in sorted((ROOT / package).glob("*.py"))]

    assert [name for name in modules if not name.endswith("__init__.py") and name not in named] == []


def test_pages_that_are_named_exist() -> None:
    """`docs/x.md`, wherever it is named: in code, help texts, documents and build files."""
    places = [ROOT / "Makefile", ROOT / "pyproject.toml", *DOCUMENTS]
    for folder in ("partitioner", "connector", "streaming", "compaction", "benchmarks", "tests", "examples"):
        places += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".toml", ".sh"}]
    named = {(page, path.name) for path in places for page in _PAGE.findall(path.read_text())}

    assert len(named) > 20
    assert [each for each in sorted(named) if not (ROOT / each[0]).exists()] == []


def test_the_commands_in_the_readme_exist() -> None:
    """`keyorder X` in a code line of the README is a command of the table."""
    used = re.findall(r"^    keyorder (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)

    assert used
    assert set(used) <= set(COMMANDS)


def test_the_make_targets_in_the_documents_exist() -> None:
    """`make X` in any document is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {
        name for path in DOCUMENTS for name in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }

    assert used
    assert used <= targets


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if _MARKED.search(path.read_text())], ids=lambda p: p.name
)
def test_examples_run(document: Path, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Each marked code block runs as it stands, against a real broker and a topic of its own."""
    for number, block in enumerate(_MARKED.findall(document.read_text())):
        code = block.replace("localhost:9092", kafka.bootstrap_servers)
        code = code.replace('"orders"', f'"{topic_name}-{number}"').replace('"billing"', f'"{topic_name}-{number}"')
        exec(compile(code, f"{document.name} block {number}", "exec"), {"__name__": "example"})
