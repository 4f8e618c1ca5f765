"""The conformance page is made from its source and the tests' marks, complete, and claims nothing that no test shows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import conformance
from support.conformance import COUNTS, PAGE, PRIORITIES, SHOWN, STATUSES, Entry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENTRIES = conformance.entries()
MARKED = conformance.marked()
BEHAVIOURS = [entry for entry in ENTRIES.values() if entry.kind != "T"]


def test_the_page_is_the_generated_one() -> None:
    """After a change of a mark or an entry `make docs` has to be run."""
    assert PAGE.read_text(encoding="utf-8") == conformance.page(ENTRIES, MARKED), "run `make docs`"


def test_every_id_has_exactly_one_entry() -> None:
    """None is left out, none is made up, and they stand in their order; the format itself refuses a second one."""
    assert list(ENTRIES) == conformance.known_ids()
    assert len(BEHAVIOURS) == sum(count for kind, count in COUNTS.items() if kind != "T")
    with pytest.raises(tomllib.TOMLDecodeError):
        conformance.entries("[K253-01]\nkips = [253]\nsays = 'a'\n[K253-01]\nkips = [253]\nsays = 'b'\n")


def test_no_entry_is_empty() -> None:
    """Each says what it is about in whole sentences, what is done or why nothing is, and has a known status and priority."""
    for entry in BEHAVIOURS:
        assert entry.status in STATUSES, entry
        assert entry.priority in PRIORITIES, entry
        for text in (entry.says, entry.how):
            assert len(text) >= 10, entry
            assert text == text.strip(), entry
            assert text.endswith((".", "?")), entry
    for entry in ENTRIES.values():
        assert entry.says, entry
        assert entry.kips, entry
        assert set(entry.kips) <= {253, 280, 694, 903}, entry
        assert entry.kind in ("C", "T") or entry.kips == (int(entry.kind[1:]),), entry


def test_every_core_behaviour_that_is_claimed_is_shown() -> None:
    """Core ids that are exact, equivalent or beyond have at least one test; so has every worked example."""
    claimed = [entry.id for entry in BEHAVIOURS if entry.priority == "c" and entry.status in SHOWN]
    examples = [id for id in ENTRIES if id.startswith("T-")]

    assert [id for id in claimed + examples if id not in MARKED] == []


def test_every_mark_names_a_known_id() -> None:
    """A mistyped id would show nothing."""
    assert {id: tests for id, tests in MARKED.items() if id not in ENTRIES} == {}


def test_marks_are_found_wherever_they_stand(tmp_path: Path) -> None:
    """On a function, a class or a whole module; a mark that is not plain text is refused with its line."""
    folder = tmp_path / "tests" / "sub"
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text(
        "import pytest\n"
        "pytestmark = [pytest.mark.slow, pytest.mark.kip('C-01')]\n"
        "@pytest.mark.kip('K253-01', 'K253-02')\n"
        "@pytest.mark.parametrize('x', [1])\n"
        "def test_a(x): ...\n"
        "@pytest.mark.kip('K253-01')\n"
        "class TestB:\n"
        "    async def test_c(self): ...\n"
        "    @pytest.mark.kip('T-1')\n"
        "    def helper(self): ...\n"
    )
    a, c = "tests/sub/test_one.py::test_a", "tests/sub/test_one.py::TestB::test_c"
    assert conformance.marked(tmp_path / "tests") == {"C-01": [a, c], "K253-01": [a, c], "K253-02": [a]}

    others = tmp_path / "others"
    others.mkdir()
    (others / "test_two.py").write_text("import pytest\nID = 'C-01'\n@pytest.mark.kip(ID)\ndef test_d(): ...\n")
    with pytest.raises(ValueError, match="line 3"):
        conformance.marked(others)


def test_the_page_shows_what_it_is_given() -> None:
    """Counts, missing entries, tests and the sign that would end a cell."""
    entry = Entry("K253-01", (253,), "a | b.", "c", "exact", "so.")
    missing = replace(entry, id="C-01", status="not yet", how="no time.")

    text = conformance.page({"K253-01": entry, "C-01": missing}, {"K253-01": ["tests/test_x.py::test_y"]})

    assert "| **K253-01** | a \\| b. | exact | so. | `tests/test_x.py::test_y` |" in text
    assert "- **C-01** a \\| b. *no time.*" in text
    assert "| exact | the same behaviour, from clients of a stock cluster | 1 | 0 | 0 | 0 | 0 | 1 |" in text
    assert "Of 2 core behaviours (their ids are in **bold**) 1 are implemented" in text
    assert "Nothing is missing." in conformance.page({"K253-01": entry}, {})


@pytest.mark.slow
def test_the_command_says_whether_the_page_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a word it compares, with --write it makes the page, with anything else it explains itself."""
    monkeypatch.setattr(conformance, "PAGE", tmp_path / "conformance.md")

    assert conformance.main([]) == 1
    assert conformance.main(["--write"]) == 0
    assert conformance.main([]) == 0
    assert conformance.main(["--wrong"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "docs/conformance.md is not up to date: make docs",
        "docs/conformance.md written",
        "docs/conformance.md is up to date",
    ]
