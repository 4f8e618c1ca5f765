"""The report for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .latency import spread
from .outcome import Outcome

# Label, name of the figure in a verdict.
FIGURES = (
    ("records in the log", "records"),
    ("keys", "keys"),
    ("keys out of order", "reordered_keys"),
    ("records lost", "lost"),
    ("duplicates that nothing excuses", "illegal_duplicates"),
)
KINDNESS = (
    "The stock side is set up kindly: an idempotent producer with Java's partitioner, new partitions seen within a second, "
    "auto.offset.reset=earliest, and offsets stored only after the work, so that nothing is lost."
)
_MUST_BE_ZERO = {"reordered_keys", "lost", "illegal_duplicates"}


def change_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """For each change: what it was, when, how long it took, how many keys were handed over, how fast."""
    rows: list[tuple[str, ...]] = []
    for growth in outcome.growths:
        moved = [each for each in outcome.hand_overs if each.epoch == growth.epoch]
        waited = spread([each.milliseconds for each in moved if each.waited])
        rows.append(
            (
                f"{growth.before} → {growth.after}",
                f"{growth.at:.1f} s",
                f"{growth.seconds * 1000:.0f} ms",
                f"{len(moved):,}",
                f"{waited['count']:,}",
                f"{shown(waited['p50'])} / {shown(waited['p99'])}",
            )
        )
    return rows


CHANGE_COLUMNS = ("change", "at", "took", "keys handed over", "of which had to wait", "their hand-over p50 / p99, ms")


def latency_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """The two latencies that a change costs."""
    hold = spread(outcome.holds)
    every = spread([each.milliseconds for each in outcome.hand_overs])
    waited = spread([each.milliseconds for each in outcome.hand_overs if each.waited])
    gates = spread([each.milliseconds for each in outcome.gates])
    named = (
        ("hold: the producer keeps a record of a moving key back", hold),
        (
            "hand-over, keys with a waiting record: last record done at the old partition, to the next at the new one",
            waited,
        ),
        ("hand-over, all moved keys: as above, or from the acknowledgement of the next record if that is later", every),
        ("gate: all records below the cut are done, to the first record behind the gate", gates),
    )
    return [(label, f"{s['count']:,}", shown(s["p50"]), shown(s["p99"]), shown(s["max"])) for label, s in named]


LATENCY_COLUMNS = ("latency in ms", "count", "p50", "p99", "max")


def print_report(outcome: Outcome, console: Console) -> None:
    """Figures first, then what they cost, then where the rest is."""
    table = Table(
        title="What the clients really saw, counted by the checker", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("")
    table.add_column("stock clients", justify="right")
    table.add_column("keyorder", justify="right")
    for label, name in FIGURES:
        cells = (_cell(side.figure(name), name in _MUST_BE_ZERO) for side in (outcome.stock, outcome.keyorder))
        table.add_row(label, *cells)
    legal = (f"{side.legal_duplicates:,}" for side in (outcome.stock, outcome.keyorder))
    table.add_row("redelivered after the kill (at-least-once)", *legal)
    console.print(table)
    console.print(Text(KINDNESS, style="dim"))
    console.print(_plain_table(CHANGE_COLUMNS, change_rows(outcome)))
    console.print(_plain_table(LATENCY_COLUMNS, latency_rows(outcome)))
    console.print(Text(conclusion(outcome), style="bold green" if outcome.kept else "bold red"))
    if not outcome.kept:
        console.print(outcome.keyorder.summary, markup=False, highlight=False)
    for path in (outcome.png, outcome.html, outcome.folder):
        if path is not None:
            console.print(str(path), markup=False, highlight=False, soft_wrap=True)


def conclusion(outcome: Outcome) -> str:
    """The run in a sentence."""
    broken = outcome.stock.figure("reordered_keys")
    stock = f"Stock clients delivered {broken:,} keys out of order" if broken else "Stock clients were lucky this time"
    if outcome.kept:
        return f"{stock}; keyorder kept every key in order and lost nothing, on the same brokers under the same load."
    return f"{stock}; keyorder FAILED: the checker found {outcome.keyorder.verdict['counts']}."


def shown(value: float | int | None) -> str:
    """A latency as people read it."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _cell(number: int, must_be_zero: bool) -> Text:
    style = "" if not must_be_zero else "bold red" if number else "bold green"
    return Text(f"{number:,}", style=style)


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
