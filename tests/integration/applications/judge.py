"""What came of one side: the history checker's anomalies, what a group has skipped, and what the application itself found.

A record is **skipped** when it lies below the group's final committed offset and no call that completed has returned it. A record
that was returned again is legal where its offset was not committed when the member took the partition, or where the
application itself went back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from keyorder import TopicAdmin
from keyorder.connector.verify.anomalies import OBSERVED, Findings
from keyorder.connector.verify.deliveries import NEVER, GroupView, read_groups
from keyorder.connector.verify.events import decode_value
from keyorder.connector.verify.history import History, load
from keyorder.connector.verify.topology import Epoch, Topology
from keyorder.connector.verify.truth import Truth, build
from keyorder.connector.verify.verdict import judge, judge_stock

if TYPE_CHECKING:
    from .run import SideRun

Row = tuple[int, int, "bytes | None", "bytes | None", "int | None"]
# What is asked of a group when all has been read.
AT_THE_END = {"A1'", "A13"}
# Threads that poll one client together keep the order among themselves, or not: here they do not.
BETWEEN_THREADS = {"A4", "A4w", "A5", "A6", "A7", "A8", "A9", "A13"}


@dataclass
class Judgement:
    """What is wrong with one side; nothing if `problems` is empty."""

    problems: list[str] = field(default_factory=list)
    lost: int = 0
    reordered: int = 0
    records: int = 0
    coverage: Counter[str] = field(default_factory=Counter)
    errors: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def figures(self) -> tuple[int, int, int]:
        """(lost or skipped, keys reordered, standstills)."""
        return self.lost, self.reordered, sum(problem.startswith("stands still") for problem in self.problems)

    def short(self) -> str:
        """One line."""
        words = f"{self.records} records, {self.lost} lost or skipped, {self.reordered} keys reordered"
        return words + (f"; {self.problems[0][:160]}" if self.problems else "")

    def __str__(self) -> str:
        if not self.problems:
            return f"good, {self.records} records"
        errors = "; ".join(f"{n}x {text}" for text, n in list(self.errors.items())[:4])
        return (
            self.short()
            + "".join(f"\n    {p[:600]}" for p in self.problems)
            + (f"\n    errors: {errors}" if errors else "")
        )


def judge_side(side: SideRun, facts: dict[str, Any], still: str | None) -> Judgement:
    """All checks on what one side left behind. still: why it did not come to its end, if so."""
    found = Judgement(coverage=Counter(facts["coverage"]), errors=facts["errors"])
    if still is not None:
        found.problems.append(f"stands still: {still}")
    found.problems += facts["findings"]
    rows = read_log(side, side.topic)
    history = load(sorted(side.folder.glob("*.jsonl")))
    found.records = len(rows)
    _checker(side, history, rows, found, quiet=still is None)
    if side.plan.kind == "transactions":
        _moved_once(side, rows, found, quiet=still is None)
    elif history.groups():
        _groups(side, history, rows, found)
    return found


def _checker(side: SideRun, history: History, rows: list[Row], found: Judgement, quiet: bool) -> None:
    if side.ours:
        timeline = TopicAdmin(side.connection).timeline(side.topic)
        epochs = [Epoch(e.number, e.count, dict(e.ends), dict(e.begins)) for e in timeline.epochs]
        verdict = judge(history, rows, Topology(timeline.initial, epochs), quiesced=quiet)
    else:
        verdict = judge_stock(history, rows, quiesced=quiet)
    # A10 has a rule of its own here: an application that commits by itself is given records again after any rebalance.
    passed = set(OBSERVED) | {"A10"}
    if side.plan.kind == "polling-threads":
        passed |= BETWEEN_THREADS
    if side.plan.has("forget") or side.plan.has("slow") or side.plan.has("close-from-thread"):
        passed.add("A7")
    if side.plan.has("purge") and side.plan.has("threads"):
        passed.add(
            "R11"
        )  # what other threads send while purge() runs may pass what it takes out, before it is noted as gone
    # What a group had not read when it was reset is none of its first life's duties.
    newest = newest_life(history)
    anomalies = [a for a in verdict.anomalies if not (a.id in AT_THE_END and a.group and a.group != newest)]
    for id in verdict.counts.keys() - passed:
        found_here = [f"{a.key} at {a.partition}/{a.offset}: {a.detail}" for a in anomalies if a.id == id]
        if found_here:
            found.problems.append(f"{id} x{len(found_here)}: {'; '.join(found_here[:3])}")
    found.lost = sum(a.id in ("A1", "A1'", "R8") for a in anomalies)
    found.reordered = len({a.key for a in anomalies if a.id in ("A4", "A4w", "A8", "A13") and a.id not in passed})


def newest_life(history: History) -> str:
    """The name of the group since its last reset; "" where nobody consumes."""
    return max(history.groups(), key=lambda name: int(name.partition("#")[2] or 1), default="")


def _groups(side: SideRun, history: History, rows: list[Row], found: Judgement) -> None:
    truth = build(history, rows, None)
    views = read_groups(truth, Findings(), {})
    newest = newest_life(history)
    committed = side.committed()
    returned = {(d.partition, d.offset) for d in views[newest].deliveries if d.end < NEVER}
    skipped = [
        (partition, offset)
        for partition, offset, _, value, _ in rows
        if value is not None and offset < committed.get(partition, 0) and (partition, offset) not in returned
    ]
    if skipped:
        found.lost = max(found.lost, len(skipped))
        found.problems.append(
            f"skipped x{len(skipped)}: below the committed offsets {committed}, never returned: {skipped[:5]}"
        )
    for name, view in views.items():
        again = _again(truth, view)
        if again:
            found.problems.append(f"given out again against the rules x{len(again)} in {name}: {'; '.join(again[:3])}")


def _again(truth: Truth, view: GroupView) -> list[str]:
    before: dict[tuple[int, int], Any] = {}
    illegal = []
    for delivery in view.deliveries:
        if delivery.end == NEVER:
            continue
        place = (delivery.partition, delivery.offset)
        previous, before[place] = before.get(place), delivery
        if previous is None or delivery.sought > previous.start:
            continue
        period = delivery.period
        if previous.period is period:
            illegal.append(f"{place} twice in one ownership of {period.actor}")
        elif delivery.zombie:
            illegal.append(f"{place} by {period.actor}, which had lost it; before by {previous.period.actor}")
        elif period.base is not None and delivery.offset < period.base:
            illegal.append(
                f"{place} by {period.actor}, which began at {period.base}; before by {previous.period.actor}"
            )
    return illegal


def _moved_once(side: SideRun, rows: list[Row], found: Judgement, quiet: bool) -> None:
    """The output holds each record of the topic once, in its key's order."""
    wanted: dict[str, list[int]] = defaultdict(list)
    moved: dict[str, list[int]] = defaultdict(list)
    for source, into in ((rows, wanted), (read_log(side, side.out), moved)):
        for row in sorted(source, key=lambda row: row[:2]):
            value = decode_value(row[3] or b"")
            if value is not None:
                into[value.key].append(value.seq)
    for key, seqs in wanted.items():
        seqs.sort()
        got = moved.get(key, [])
        first = {seq: at for at, seq in reversed(list(enumerate(got)))}
        missing = [seq for seq in seqs if seq not in first]
        if missing and (quiet or missing[0] < max(got, default=0)):
            found.lost += len(missing)
            found.problems.append(f"{key}: {missing[:5]} of {len(seqs)} are missing in the output")
        if len(got) != len(first):
            found.problems.append(f"{key}: {len(got) - len(first)} records stand twice in the output")
        if got != sorted(got):
            found.reordered += 1
            found.problems.append(f"{key}: out of order in the output: {got[:40]}")


def read_log(side: SideRun, topic: str) -> list[Row]:
    """Every record, read by a plain read_committed consumer."""
    config = {
        **side.connection,
        "group.id": "log",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(config)
    everything = Consumer({**config, "isolation.level": "read_uncommitted"})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ends = {p: everything.get_watermark_offsets(TopicPartition(topic, p), 20)[1] for p in partitions}
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        rows: list[Row] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    if message.offset() >= ends[message.partition()]:
                        ended.add(message.partition())
                    continue
                headers = dict(message.headers() or [])
                hint = headers.get("keyorder-epoch")
                epoch = None if hint is None else int(hint)
                rows.append((message.partition(), message.offset(), message.key(), message.value(), epoch))
        return rows
    finally:
        consumer.close()
        everything.close()
