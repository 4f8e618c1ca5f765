"""Where a demonstration leaves what its clients recorded."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from keyorder.connector.demo.live import Board, Show
from keyorder.connector.demo.run import Demo
from keyorder.connector.demo.settings import DemoSettings
from rich.console import Console


def run_and_fail(report_dir: Path, monkeypatch: pytest.MonkeyPatch, record: str) -> str:
    """One run that fails after it recorded something. What it told."""
    told = io.StringIO()

    def fail(self: Demo, folder: Path) -> None:
        (folder / "writer-1.jsonl").write_text(record)
        raise ValueError("a broker died")

    monkeypatch.setattr(Demo, "_run_in", fail)
    board = Board(45.0)
    with Show(board, Console(file=told, width=1000)) as show:
        demo = Demo(DemoSettings(report_dir), "127.0.0.1:1", show, board)
        with pytest.raises(ValueError, match="a broker died"):
            demo.run(keep=False)
    return told.getvalue()


def test_recordings_are_kept_beside_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run keeps its recordings in a folder of its own: no folder of the user's or of an earlier run is deleted."""
    mine = tmp_path / "history"
    mine.mkdir()
    (mine / "years.txt").write_text("of work")

    told = [run_and_fail(tmp_path, monkeypatch, record) for record in ("first", "second")]

    kept = sorted(path.parent for path in tmp_path.glob("history-*/writer-1.jsonl"))
    assert (mine / "years.txt").read_text() == "of work"
    assert sorted((path / "writer-1.jsonl").read_text() for path in kept) == ["first", "second"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["history", *(path.name for path in kept)])
    assert all(any(f"is kept in {path}\n" in each for each in told) for path in kept)
