"""What a reader gains and pays, for docs/benchmarks.md, from its results: `make docs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.generated import main

ROOT = Path(__file__).resolve().parents[2]
PAGE, RESULTS = ROOT / "docs" / "benchmarks.md", ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- results: made from benchmarks/results -->", "<!-- end of results -->"


@dataclass(frozen=True)
class Row:
    """What is said of one figure. text: with {ours}, {theirs}, {ratio}, {inverse} of the figure's medians."""

    what: str
    measure: str
    figure: str
    text: str


# fmt: off
GAINS = (
    Row("one more partition: moving keys are held, p50", "P9", "held records, p50", "{ours:.0f} ms"),
    Row("the same, p99", "P9", "held records, p99", "{ours:.0f} ms"),
    Row("writers stand still, against stopping them and copying the topic", "P9", "stopped", "{inverse:.0f} times shorter"),
    Row("the whole change, after a quiet time", "P16", "after a quiet time", "{ours:.2f} s"),
    Row("the same, after a writer that was killed long ago", "P16", "after a killed writer", "{ours:.2f} s"),
    Row("a moved key's next record at its new owner, p50", "P10", "hand-over, p50", "{ours:.0f} ms"),
    Row("the same, p99", "P10", "hand-over, p99", "{ours:.0f} ms"),
    Row("sending Arrow batches", "P3", "queued", "{ratio:.1f} times the rows a second"),
    Row("reading Arrow batches", "P5", "topic that never changed: rate", "{ratio:.1f} times the rows a second"),
    Row("Spark source, a backlog", "P6", "addBatch", "{inverse:.1f} times as fast"),
    Row("Spark source, a small batch", "P7", "end: trigger", "{ratio:.2f} times the time"),
    Row("the same, 256 partitions", "P7", "end, 256 partitions: trigger", "{ratio:.2f} times the time"),
    Row("Spark sink", "P8", "rate", "{ratio:.1f} times the rows a second"),
    Row("version compaction in Spark, against `max_by`", "P12", "Spark job: rate", "{ratio:.1f} times the rate"),
)
PAYS = (
    Row("sending records one by one", "P2", "acknowledged", "{ratio:.2f} times the rate"),
    Row("reading batches, topic that never changed", "P4", "topic that never changed: rate", "{ratio:.2f} times the rate"),
    Row("reading batches, grown topic", "P4", "grown topic: rate", "{ratio:.2f} times the rate"),
    Row(
        "reading batches, 20 headers a record",
        "P4",
        "topic that never changed, 20 headers: rate",
        "{ratio:.2f} times the rate",
    ),
    Row("the loop `poll(1.0)`", "P14", "poll(), topic that never changed: rate", "{ratio:.2f} times the rate"),
    Row("its CPU", "P14", "poll(), topic that never changed: cpu", "{ratio:.2f} times"),
    Row("latency from `produce()` to `poll()`, p50", "P17", "topic that never changed: added to p50", "{ours:+.2f} ms"),
    Row("the same, p99", "P17", "topic that never changed: added to p99", "{ours:+.2f} ms"),
    Row("threads of one consumer and one producer", "P15", "1 + 1, 3 brokers: threads", "{ours:.0f}, stock {theirs:.0f}"),
    Row("threads of ten and ten", "P15", "10 + 10, 3 brokers: threads", "{ours:.0f}, stock {theirs:.0f}"),
    Row("connections of ten and ten", "P15", "10 + 10, 3 brokers: connections", "{ours:.0f}, stock {theirs:.0f}"),
    Row("version compaction as a table, against the same read", "P12", "view: rate", "{ratio:.2f} times the rate"),
)
# fmt: on


def tables() -> str:
    """Both tables in Markdown, between the two marks. A measure without results has no row."""
    parts = [BEGIN, ""]
    for title, rows in (("You gain", GAINS), ("You pay", PAYS)):
        parts += [f"| {title} | | measure | goals |", "|---|---|---|---|", *_rows(rows), ""]
    return "\n".join([*parts, END])


def page(text: str) -> str:
    """The page with today's tables."""
    before, _, rest = text.partition(BEGIN)
    return before + tables() + rest.partition(END)[2]


def _rows(rows: tuple[Row, ...]) -> Iterator[str]:
    for row in rows:
        path = RESULTS / f"{row.measure.lower()}.json"
        if not path.exists():
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        figure = next((each for each in found["figures"] if each["name"] == row.figure), None)
        if figure is None:
            sys.exit(f"{path.name} has no figure {row.figure!r}")
        ratio = _median(figure, "ratio")
        values = {"ours": _median(figure, "ours"), "theirs": _median(figure, "theirs"), "ratio": ratio}
        met = sum(goal["met"] for goal in found["goals"])
        text = row.text.format(**values, inverse=1 / ratio if ratio else 0)
        yield f"| {row.what} | {text} | {row.measure} | {met} of {len(found['goals'])} met |"


def _median(figure: dict[str, Any], side: str) -> float:
    return 0.0 if figure.get(side) is None else float(figure[side]["median"])


if __name__ == "__main__":
    main(PAGE, page)
