"""The report: the documented object, the page, the picture, the live table."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from keyorder.connector.cli.demo import demo
from keyorder.connector.demo import run
from keyorder.connector.demo.latency import HandOver
from keyorder.connector.demo.live import Board, SideState, line_of, render
from keyorder.connector.demo.outcome import Growth, Happening, Outcome, SideResult
from keyorder.connector.demo.page import render_page
from keyorder.connector.demo.picture import draw
from keyorder.connector.demo.report import print_report
from keyorder.connector.demo.series import Series
from keyorder.connector.demo.settings import DemoSettings
from keyorder.connector.local.errors import MissingExtraError
from keyorder.partitioner.errors import ConfigError
from rich.console import Console


def _side(reordered: int = 0, lost: int = 0, duplicates: int = 0, valid: bool = True) -> SideResult:
    verdict: dict[str, Any] = {
        "valid": valid,
        "records": 100,
        "keys": 20,
        "keys_moved": 12,
        "reordered_keys": reordered,
        "lost": lost,
        "illegal_duplicates": duplicates,
        "counts": {} if valid else {"A4": reordered},
        "groups": {"g": {"legal_duplicates": 7}},
    }
    series = Series(
        0,
        0.5,
        4,
        {0: [5, 5, 5, 5], 1: [0, 0, 5, 5]},
        {0: [4, 6, 5, 5], 1: [0, 0, 2, 8]},
        {1: [0, 0, 0, 2]},
        [1, 0, 3, 0],
    )
    return SideResult("topic<&>", verdict, "VALID <b>", series)


def _outcome(keyorder: SideResult) -> Outcome:
    return Outcome(
        seed=1,
        seconds=2.0,
        counts=(1, 2),
        keyorder=keyorder,
        stock=_side(reordered=3, valid=False),
        growths=[Growth(0.5, 1, 2, 1, 0.4, 1)],
        happenings=[Happening(0.5, "grow", "1 → 2 partitions"), Happening(1.2, "kill", "consumer 1 is killed")],
        holds=[1.0, 2.0, 30.0],
        hand_overs=[HandOver(1, 4.0, True), HandOver(1, 2.0, False)],
        gates=[HandOver(1, 3.0, True)],
    )


def test_the_object_has_the_documented_names() -> None:
    """Programs rely on these names and on one object in one line."""
    document = json.loads(json.dumps(_outcome(_side()).as_dict()))
    assert document["records"] == 100
    assert document["keys"] == 20
    assert document["changes"] == 1
    assert document["stock"]["reordered_keys"] == 3
    zeros = ("reordered_keys", "lost", "illegal_duplicates")
    assert {name: document["keyorder"][name] for name in zeros} == dict.fromkeys(zeros, 0)
    assert (document["hold_ms"]["p50"], document["hold_ms"]["p99"]) == (2.0, 30.0)
    assert (document["handover_ms"]["p50"], document["handover_ms"]["p99"]) == (4.0, 4.0)
    assert document["handover_all_ms"]["count"] == 2


@pytest.mark.parametrize(
    "side", [_side(reordered=1), _side(lost=1), _side(duplicates=1), _side(valid=False)], ids=range(4)
)
def test_any_finding_against_keyorder_fails(side: SideResult) -> None:
    """The run is good only when the checker found nothing at all; what stock clients did plays no part."""
    assert _outcome(_side()).kept
    assert not _outcome(side).kept


@pytest.mark.slow
def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    """One file: the picture is inside, nothing is fetched, and no text of a run is taken for markup."""
    outcome = _outcome(_side())
    draw(outcome, tmp_path / "t.png")
    png = (tmp_path / "t.png").read_bytes()
    page = render_page(outcome, DemoSettings(tmp_path), png)
    assert png.startswith(b"\x89PNG")
    assert re.findall(r"(?:src|href)=['\"](?!data:)", page) == []
    assert "http" not in page.replace("http-equiv", "")
    assert "<b>VALID" not in page
    assert "VALID &lt;b&gt;" in page


@pytest.mark.parametrize(("count", "said"), [(0, "keys out of"), (1, "key out of"), (2, "keys out of")])
def test_one_key_is_not_keys(tmp_path: Path, count: int, said: str) -> None:
    """The tiles are the first that is read."""
    page = render_page(_outcome(_side(reordered=count)), DemoSettings(tmp_path), b"")
    assert f">{count}</b><span>{said} order with keyorder</span>" in page


def test_the_terminal_report_says_what_went_wrong() -> None:
    """A good run ends in a sentence; a bad one shows the checker's findings."""
    for side, expected in ((_side(), "kept every key in order"), (_side(reordered=2, valid=False), "FAILED")):
        out = StringIO()
        print_report(_outcome(side), Console(file=out, width=160))
        assert expected in out.getvalue()
        assert "3" in out.getvalue()


def test_the_live_picture_names_closed_gates() -> None:
    """The table and the plain line are made from the same board."""
    board = Board(10.0, keyorder=SideState(6, 1, 3, 100, 90, 10, gates=["p4 waits for p0 (12 to go)"]))
    out = StringIO()
    Console(file=out, width=120).print(render(board))
    assert "p4 waits for p0" in out.getvalue()
    assert "1 closed gates" in line_of(board)


def test_matplotlib_is_asked_for_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without it a run would fail at its end: the error comes first and names the extra."""
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"keyorder\[demo\]"):
        run.check_before(DemoSettings(tmp_path))


def test_a_report_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A file in the place of the folder is told before the run."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="--report-dir"):
        run.check_before(DemoSettings(tmp_path / "taken"))


@pytest.mark.parametrize(
    "words", [["--partitions", "9,4"], ["--partitions", "4"], ["--partitions", "a,b"], ["--seconds", "1"]]
)
def test_bad_options_never_start_a_broker(words: list[str]) -> None:
    """A wrong option ends the command with the typed error that names it."""
    result = CliRunner().invoke(demo, words)
    assert isinstance(result.exception, ConfigError)
    assert result.exception.setting == words[0]
