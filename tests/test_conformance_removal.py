"""The list of removals fits the code and the tests, and the script that carries them out tells red from green."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support import conformance, conformance_removal
from support.conformance_removal import Copy, Patch, Result, Spot, bare, chosen, content, load, outcomes, run, summary

SPOTS = load()
MARKED = conformance.marked()
TESTS = {test for tests in MARKED.values() for test in tests}
SPOT = Spot("s", ("C-01", "C-02"), "all of it", (Patch("a.py", "x = 1", "x = 2"),), ("t.py::one", "t.py::two[3]"))
MARKS = {"C-01": ["t.py::one", "t.py::other"], "C-02": ["t.py::two"]}


@pytest.mark.parametrize("spot", SPOTS.spots.values(), ids=lambda spot: spot.name)
def test_a_patch_can_be_applied(spot: Spot) -> None:
    """The text to be replaced stands in the file exactly once, and what comes of it is Python."""
    texts: dict[str, str] = {}
    for patch in spot.patches:
        text = texts.get(patch.file) or (conformance_removal.ROOT / patch.file).read_text(encoding="utf-8")
        texts[patch.file] = patch.applied(text)
        assert not patch.file.startswith("tests/"), "product code is what a behaviour is taken out of"
    for file, text in texts.items():
        ast.parse(text, file)


@pytest.mark.parametrize("spot", SPOTS.spots.values(), ids=lambda spot: spot.name)
def test_the_tests_of_a_spot_bear_its_ids(spot: Spot) -> None:
    """Each exists and bears the mark of one of the ids, and each id is born by one of them."""
    named = {bare(test) for test in spot.tests}
    assert named <= TESTS
    assert {test for test in named if not any(test in MARKED.get(id, ()) for id in spot.ids)} == set()
    assert [id for id in spot.ids if not named & set(MARKED.get(id, ()))] == []
    assert len(spot.takes) >= 10, spot


def test_every_id_has_a_spot_or_a_reason() -> None:
    """Not both, and none that there is not."""
    shown = {id for spot in SPOTS.spots.values() for id in spot.ids}
    assert shown & set(SPOTS.reasons) == set()
    assert sorted(shown | set(SPOTS.reasons)) == sorted(conformance.known_ids())
    for reason in SPOTS.reasons.values():
        assert len(reason) >= 10
        assert reason.endswith("."), reason


def test_an_entry_that_lacks_something_is_refused() -> None:
    """With its name: a spot without a patch, with a word that means nothing, a reason without ids."""
    with pytest.raises(ValueError, match="spot a: no patch"):
        load("[a]\nids = []\ntakes = ''\ntests = []\n")
    with pytest.raises(ValueError, match="unknown fields"):
        load("[a]\nids = []\ntakes = ''\ntests = []\nfile = ''\nold = ''\nnew = ''\nwhy = ''\n")
    with pytest.raises(ValueError, match="has ids and a reason"):
        load("[[nothing]]\nreason = 'none.'\n")
    assert load("[[nothing]]\nids = ['C-01']\nreason = 'none.'\n").reasons == {"C-01": "none."}


def test_an_id_is_red_only_by_a_test_that_bears_it() -> None:
    """A failure elsewhere shows nothing of it; a time limit is told apart; what did not run is broken."""
    both = {"t.py::one", "t.py::two"}
    assert outcomes(SPOT, MARKS, {"t.py::one": "assert 1 == 2"}, {"t.py::two"}) == {"C-01": "red", "C-02": "green"}
    assert outcomes(SPOT, MARKS, {"t.py::two": "Failed: Timeout (>180s)"}, {"t.py::one"}) == {
        "C-01": "green",
        "C-02": "slow red",
    }
    assert outcomes(SPOT, MARKS, {}, both) == {"C-01": "green", "C-02": "green"}
    assert outcomes(SPOT, MARKS, {}, {"t.py::one"}) == {"C-01": "green", "C-02": "broken"}


def test_the_summary_counts_ids_and_names_all_that_is_not_red() -> None:
    """An id is red when it is red in each of its spots; one that was not run is not."""
    other = Spot("o", ("C-02",), "the rest", SPOT.patches, SPOT.tests)
    results = {"s": Result("", "c", {"C-01": "red", "C-02": "red"}), "o": Result("", "c", {"C-02": "green"})}
    lines, good = summary([SPOT, other], results, {"C-03": "nothing."})
    assert not good
    assert lines[0].split() == ["C-02", "green", "o:", "the", "rest"]
    assert lines[-1] == (
        "1 ids red with their behaviour removed (0 by a time limit alone), 1 still green, 0 broken, by 2 spots; "
        "1 ids have nothing to be removed"
    )
    assert summary([SPOT], results, {})[1]
    assert not summary([SPOT], {}, {})[1]


def test_spots_are_chosen_by_id_or_name() -> None:
    """All without a word; a word that nothing bears is an error."""
    everything = load(
        '[s]\nids=["C-01"]\ntakes=""\nfile=""\nold=""\nnew=""\ntests=[]\n[[nothing]]\nids=["C-09"]\nreason="."'
    )
    assert [s.name for s in chosen(everything, [])] == [s.name for s in chosen(everything, ["C-01"])] == ["s"]
    assert [s.name for s in chosen(everything, ["s", "C-09"])] == ["s"]
    assert chosen(everything, ["C-09"]) == []
    with pytest.raises(KeyError):
        chosen(everything, ["C-02"])


def test_a_result_fits_until_the_spot_or_its_files_change(tmp_path: Path) -> None:
    """Spot, patched file and test file all count."""
    (tmp_path / "a.py").write_text("x = 1")
    before = content(SPOT, tmp_path)
    assert content(SPOT, tmp_path) == before
    (tmp_path / "t.py").write_text("")
    between = content(SPOT, tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n")
    assert len({before, between, content(SPOT, tmp_path)}) == 3


@pytest.mark.slow
def test_a_behaviour_is_taken_out_of_a_copy_and_its_test_fails(tmp_path: Path) -> None:
    """The real tests of a real spot in a real copy: green as it is, red without it, and the checkout stays as it was."""
    layout = conformance_removal.ROOT / "partitioner" / "layout.py"
    before = layout.read_bytes()
    test = "tests/partitioner/test_layout.py::test_parents"
    removed = Patch("partitioner/layout.py", "return p - low", "return p - low + 1")
    copy = Copy(tmp_path)

    spot = Spot("parent", ("K253-52",), "", (removed,), (test,))
    red = run(spot, copy, MARKED, "c")
    kept = run(
        Spot("comment", ("K253-52",), "", (Patch(removed.file, removed.old, f"{removed.old}  # so"),), (test,)),
        copy,
        MARKED,
        "c",
    )
    gone = run(Spot("gone", ("K253-52",), "", (Patch(removed.file, "no such text", ""),), (test,)), copy, MARKED, "c")

    assert red.outcomes == {"K253-52": "red"}
    assert red.content == content(spot)
    assert "assert" in red.failed[test]
    assert (kept.outcomes, kept.failed) == ({"K253-52": "green"}, {})
    assert gone.outcomes == {"K253-52": "broken"}
    assert "0 times" in gone.failed[""]
    assert layout.read_bytes() == before
    assert (copy.root / "partitioner" / "layout.py").read_bytes() == before
