"""The documents say what the code does: options, files, links, and examples that run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import keyorder
import pytest
from keyorder.connector.cli.main import COMMANDS
from keyorder.connector.consuming.partition_state import PartitionState
from keyorder.connector.operations import topic_settings
from keyorder.connector.settings import CONSUMER, PRODUCER
from keyorder.partitioner.changes.change import transitions
from keyorder.partitioner.gates.waits import Reason
from keyorder.partitioner.writers.lease import Standing
from support import api_errors, bench_table, config_tables
from support.cluster import KafkaUnderTest
from support.sequence_diagrams import DIAGRAMS, Diagram, Says, path, svg
from support.sources import source_of

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
OPTIONS = {**PRODUCER, **CONSUMER}


def test_the_tables_of_our_options_are_those_of_the_code() -> None:
    """Each option with its default and its meaning; `make docs` writes them."""
    text = config_tables.PAGE.read_text()

    assert config_tables.page(text) == text
    assert [name for name in OPTIONS if name not in CONFIGURATION] == []


def test_the_figures_of_the_benchmarks_are_those_of_the_results() -> None:
    """`make docs` writes them from the files that `make bench` has left."""
    text = bench_table.PAGE.read_text()

    assert bench_table.page(text) == text


@pytest.mark.parametrize("setting", topic_settings.OUR_TOPIC_SETTINGS)
def test_every_topic_setting_is_documented(setting: str) -> None:
    """Each setting that the control topic keeps has a row."""
    assert setting in CONFIGURATION


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.UNKNOWN], ids=lambda r: r.name)
def test_every_reason_of_a_closed_gate_is_documented_with_what_to_do(reason: Reason) -> None:
    """As `consumer.gates()` and `keyorder gates list` word it."""
    assert f"\n| {reason.value} | " in (ROOT / "docs" / "protocol.md").read_text()


def test_no_option_is_documented_that_does_not_exist() -> None:
    """A row of a name in keyorder's own space names an option of the code."""
    known = {*OPTIONS, *topic_settings.OUR_TOPIC_SETTINGS}

    assert [name for name in CONFIGURATION if name.startswith("keyorder.") and name not in known] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Each relative link names a file of the project."""
    links = [link for link in _LINK.findall(document.read_text()) if "://" not in link]

    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda diagram: diagram.name)
def test_the_sequence_diagrams_are_what_their_steps_draw(diagram: Diagram) -> None:
    """`make docs` draws them; everybody who says something has a lifeline."""
    spoken = {name for step in diagram.steps if isinstance(step, Says) for name in (step.source, step.target)}

    assert path(diagram).read_text() == svg(diagram)
    assert spoken == set(diagram.who)
    assert f"images/{path(diagram).name}" in (ROOT / "docs" / "concepts.md").read_text()


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_each_example_is_short_named_in_the_documents_and_run_by_a_test(example: Path) -> None:
    """Less than 100 lines, a link on some page, and a test that names the file."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))

    assert len(example.read_text().splitlines()) < 100
    assert any(f"examples/{example.name})" in document.read_text() for document in DOCUMENTS)
    assert f'"{example.name}"' in tests


def test_every_error_is_documented() -> None:
    """The table of the API's page is what the classes say; `make docs` makes it anew."""
    assert api_errors.page(api_errors.PAGE.read_text()) == api_errors.PAGE.read_text()


@pytest.mark.slow
def test_the_site_builds_and_has_the_public_api(tmp_path: Path) -> None:
    """It opens with the first steps; every page is in the navigation, each public name with its methods on the API's page."""
    done = subprocess.run(
        [sys.executable, "-Im", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    navigation = (tmp_path / "index.html").read_text()
    assert {page for page in pages if f'href="{page}.html"' not in navigation} == set()
    assert '<h1 id="get-started">' in navigation
    api = (tmp_path / "api.html").read_text()
    for name in set(keyorder.__all__) - {"__version__"}:
        assert f'id="keyorder.{name}"' in api
    assert {name for name in keyorder.results.__all__ if f'id="keyorder.results.{name}"' not in api} == set()
    for name in ("OrderedConsumer.gates", "aio.AIOProducer", "aio.AIOConsumer"):
        assert f'id="keyorder.{name}' in api


ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
PRODUCT = ("partitioner", "connector", "streaming", "compaction")
FOLDERS = sorted(
    {path.parent.relative_to(ROOT).as_posix() for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")}
)


def cells(heading: str) -> list[list[str]]:
    """The rows of the tables beneath a heading of ARCHITECTURE.md, without the lines above and below their headings."""
    section = ARCHITECTURE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]


FOLDER_MAP = {row[0].strip("`"): row for row in cells("Folders") if row[0].startswith("`")}


def defined_in(folder: str) -> set[str]:
    """The classes of a folder's own modules, those of the folders inside it left out."""
    return {name for path in (ROOT / folder).glob("*.py") for name in source_of(path).classes}


def test_the_folder_map_is_the_tree() -> None:
    """Each folder of product code has a row in ARCHITECTURE.md, and each row names a folder that is there."""
    assert len(FOLDERS) > 30
    assert sorted(folder for folder in FOLDER_MAP if not folder.startswith("tests/")) == FOLDERS
    assert [folder for folder in FOLDER_MAP if not (ROOT / folder).is_dir()] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_the_key_types_that_its_row_names(folder: str) -> None:
    """Each is a class of a module that lies right in this folder."""
    assert set(re.findall(r"`(\w+)`", FOLDER_MAP[folder][2])) - defined_in(folder) == set()


def test_the_files_that_architecture_names_exist() -> None:
    """Those to read first, and wherever else it names one."""
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", ARCHITECTURE)

    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_table_of_the_controller_is_the_code() -> None:
    """Every phase and event of it is one that the machine knows, and what makes a phase go on is there."""
    pairs, phase = set(), ""
    for first, events, *_ in cells("Controller")[2:]:
        phase = first or phase
        pairs |= {(phase, event.strip()) for event in events.split(",") if event.strip()}

    assert pairs - set(transitions()) == set()
    assert {phase for phase, _ in pairs} == {phase for phase, _ in transitions()}
    # The others are records of writers that come late.
    assert {event for _, event in set(transitions()) - pairs} == {
        "WritersLooked",
        "WritersRead",
        "WritersStamped",
        "PartitionsReady",
    }


def test_the_table_of_the_writer_has_every_standing_of_a_lease() -> None:
    """Each has a row, in the order of the code."""
    rows_of_writer = [row[0] for row in cells("Writer")]

    assert [standing.value for standing in Standing] == [name for name in rows_of_writer if name.isupper()]


@pytest.mark.parametrize("table", ["state", "offset"])
def test_the_tables_of_the_reader_name_attributes_of_a_partition(table: str) -> None:
    """Where a row names the attributes that make a state, or an offset, PartitionState has them."""
    column = {"state": 1, "offset": 0}[table]
    found = [row[column] for row in cells("Reader") if len(row) == {"state": 5, "offset": 3}[table]]
    names = {name for cell in found for name in re.findall(r"`([a-z_.]+)`", cell)} - {"begins", "lost"}

    assert len(names) >= 4
    for name in names:
        attrgetter(name)(PartitionState("t", 0))


def test_architecture_stays_short() -> None:
    """What explains one line stands beside that line: this page is read whole."""
    lines = ARCHITECTURE.splitlines()

    assert len(lines) <= 200
    assert [line for line in lines if len(line) > 130] == []


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
        code = re.sub('"(orders|invoices|deliveries|billing)"', f'"{topic_name}-{number}"', code)
        exec(compile(code, f"{document.name} block {number}", "exec"), {"__name__": "example"})
