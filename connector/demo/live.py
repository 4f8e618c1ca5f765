"""What is seen while the demonstration runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .. import clock

_LINE_EVERY = 5.0
_NEWEST = 8


@dataclass(slots=True)
class SideState:
    """One column of the table. gates: each closed one in words."""

    partitions: int = 0
    epoch: int | None = None
    members: int = 0
    sent: int = 0
    delivered: int = 0
    lag: int = 0
    late_records: int = 0
    late_keys: int = 0
    gates: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Board:
    """Everything that is shown. elapsed, total: seconds of load."""

    total: float
    stage: str = "starting"
    elapsed: float = 0.0
    keyorder: SideState = field(default_factory=SideState)
    stock: SideState = field(default_factory=SideState)
    news: list[str] = field(default_factory=list)


def table_of(board: Board) -> Table:
    """The figures of both sides, side by side."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("stock clients", justify="right", min_width=16)
    table.add_column("keyorder", justify="right", min_width=16)
    sides = (board.stock, board.keyorder)
    table.add_row("partitions", *(f"{side.partitions}" for side in sides))
    table.add_row("epoch", *("-" if side.epoch is None else f"{side.epoch}" for side in sides))
    table.add_row("consumers", *(f"{side.members}" for side in sides))
    table.add_row("records sent", *(f"{side.sent:,}" for side in sides))
    table.add_row("records delivered", *(f"{side.delivered:,}" for side in sides))
    table.add_row("lag", *(f"{side.lag:,}" for side in sides))
    table.add_row("closed gates", "-", _gates(board.keyorder.gates))
    table.add_row("late records", *(_count(side.late_records) for side in sides))
    table.add_row("keys out of order", *(_count(side.late_keys) for side in sides))
    return table


def line_of(board: Board) -> str:
    """The same in one line."""
    parts = [f"{board.elapsed:5.1f} s  {board.stage}"]
    for name, side in (("stock", board.stock), ("keyorder", board.keyorder)):
        gates = f", {len(side.gates)} closed gates" if side.gates else ""
        parts.append(
            f"{name}: {side.partitions} partitions, {side.sent} sent, lag {side.lag}, "
            f"{side.late_keys} keys out of order{gates}"
        )
    return " | ".join(parts)


class Show:
    """Shows a board. On a terminal it is redrawn in place; otherwise a line goes out every few seconds."""

    def __init__(self, board: Board, console: Console) -> None:
        self._board, self._console = board, console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._next_line = clock.now() + _LINE_EVERY

    def __enter__(self) -> Show:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def refresh(self) -> None:
        """Draw what the board says now."""
        if self._live is not None:
            self._live.update(render(self._board), refresh=True)
        elif clock.now() >= self._next_line:
            self._next_line = clock.now() + _LINE_EVERY
            self._say(line_of(self._board))

    def tell(self, text: str) -> None:
        """Something happened."""
        self._board.news.append(f"{self._board.elapsed:5.1f} s  {text}")
        if self._live is None:
            self._say(self._board.news[-1])
        else:
            self.refresh()

    def stage(self, text: str) -> None:
        """A new stage begins."""
        self._board.stage = text
        if self._live is None:
            self._say(f"{self._board.elapsed:5.1f} s  {text}")
        else:
            self.refresh()

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def render(board: Board) -> Any:
    """The whole picture for a terminal."""
    bar = Table.grid(padding=(0, 1))
    done = min(board.elapsed, board.total)
    bar.add_row(ProgressBar(total=board.total, completed=done, width=30), f"{done:.0f} of {board.total:.0f} s of load")
    news: Sequence[str] = board.news[-_NEWEST:]
    return Group(Text(board.stage, style="bold"), bar, table_of(board), Text("\n".join(news), style="dim"))


def _count(number: int) -> Text:
    return Text(f"{number:,}", style="bold red" if number else "green")


def _gates(gates: Sequence[str]) -> Text:
    return Text("none") if not gates else Text(f"{len(gates)}: {', '.join(gates[:2])}", style="yellow")
