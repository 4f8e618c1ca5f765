"""The verdict on a history: valid or not, and the figures that say how it failed.

`judge` applies every check; `judge_stock` those that make sense where nobody knows where keys live: the
truth is then the writers' own order. Both answer with a `Verdict`.

A history is **valid** iff no anomaly was found, observed ids apart (see `anomalies`). The figures per
group: `reordered_keys` (distinct keys with A4, A4w or A8), `lost` (distinct values of A1, A1' and R8),
`illegal_duplicates` (A10 + R6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .anomalies import OBSERVED, Anomaly, Findings
from .checks_delivery import GroupChecks, Tally
from .checks_log import check_log
from .deliveries import read_groups
from .events import Kind
from .history import History, cycles_uncollected
from .topology import Topology
from .truth import Copies, Order, Row, Truth, build

Mode = Literal["at-least-once", "exactly-once"]
Starts = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What one consumer group got."""

    deliveries: int
    delivered: int
    reordered_keys: int
    lost: int
    lost_on_the_way: int
    illegal_duplicates: int
    legal_duplicates: int
    sought_duplicates: int
    zombie_overlaps: int


@dataclass(slots=True)
class Verdict:
    """The outcome. `counts` is complete; `anomalies` holds the first thousand of each id."""

    records: int
    keys: int
    keys_moved: int
    sent: int
    acknowledged: int
    failed: int
    unknown_present: int
    unknown_absent: int
    lost_in_log: int
    counts: dict[str, int] = field(default_factory=dict)
    groups: dict[str, GroupFigures] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """No anomaly but observed ones."""
        return not any(count for id, count in self.counts.items() if id not in OBSERVED)

    @property
    def reordered_keys(self) -> int:
        """The groups' reordered keys, added up."""
        return sum(group.reordered_keys for group in self.groups.values())

    @property
    def lost(self) -> int:
        """Lost values: those of the groups added up, or those lost in the log when there is no group."""
        return sum(group.lost for group in self.groups.values()) if self.groups else self.lost_in_log

    @property
    def illegal_duplicates(self) -> int:
        """Illegal duplicates of the groups added up, or those in the log when there is no group."""
        if not self.groups:
            return self.counts.get("R6", 0)
        return sum(group.illegal_duplicates for group in self.groups.values())

    def summary(self, examples: int = 3) -> str:
        """A text of a few lines: figures first, then counts per id with some examples."""
        lines = [
            f"{'VALID' if self.valid else 'INVALID'}: {self.records} records of {self.keys} keys in the log, "
            f"{self.keys_moved} keys moved",
            f"sends: {self.sent} invoked, {self.acknowledged} acknowledged, {self.failed} failed, "
            f"{self.unknown_present + self.unknown_absent} unknown ({self.unknown_present} present); "
            f"{self.lost_in_log} lost in log",
        ]
        for name, group in self.groups.items():
            lines.append(
                f"group {name}: {group.delivered} records in {group.deliveries} deliveries; "
                f"{group.reordered_keys} reordered keys, {group.lost} lost "
                f"({group.lost_on_the_way} on the way), {group.illegal_duplicates} illegal duplicates, "
                f"{group.legal_duplicates} legal, {group.sought_duplicates} sought, "
                f"{group.zombie_overlaps} zombie overlaps"
            )
        for id, count in sorted(self.counts.items()):
            lines.append(f"{id}: {count}" + (" (observed)" if id in OBSERVED else ""))
            for found in [a for a in self.anomalies if a.id == id][:examples]:
                where = f"{found.group}: " if found.group else ""
                lines.append(f"  {where}key {found.key!r} at {found.partition}/{found.offset}: {found.detail}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "valid": self.valid,
            "reordered_keys": self.reordered_keys,
            "lost": self.lost,
            "illegal_duplicates": self.illegal_duplicates,
            **asdict(self),
        }


def judge(
    history: History,
    log: Iterable[Row],
    topology: Topology,
    *,
    mode: Mode = "at-least-once",
    quiesced: bool = True,
    source_order: Literal["log", "writer"] = "log",
    log_starts: Mapping[int, int] | None = None,
    starts: Starts | None = None,
    compacted: bool = False,
    copies: Copies | None = None,
    refusals_excuse: bool = False,
) -> Verdict:
    """Judges a history under a keyorder topology.

    `log`: rows (partition, offset, key, value, epoch header or None) of every partition, read end to end
    at read_committed. `quiesced`: writers have stopped and the groups have drained; without it A1' and
    A13 are left out. `source_order`: what the deliveries are compared with; "writer" where the group
    reads a copy whose own order across writers is not the log's. `log_starts`: first offsets that are
    left, where partitions were emptied. `starts`: per group its first offsets, where it did not begin at
    the start of the log. `compacted`: the topic's cleaner ran. `copies`: {place of a copy: place of its
    original}, where values were re-homed. `refusals_excuse`: a member whose commit at a revoke was refused may have
    its records delivered again, as after a crash: for runs in which a coordinator is made to refuse.
    """
    with cycles_uncollected():
        truth = build(history, log, topology, log_starts=log_starts, compacted=compacted, copies=copies)
        order = truth.order if source_order == "log" else truth.by_writer
        return _judge(truth, order, mode, quiesced, starts or {}, full=True, refusals_excuse=refusals_excuse)


def judge_stock(
    history: History,
    log: Iterable[Row],
    *,
    mode: Mode = "at-least-once",
    quiesced: bool = True,
    log_starts: Mapping[int, int] | None = None,
    starts: Starts | None = None,
    compacted: bool = False,
) -> Verdict:
    """Judges a history of stock clients: writers' order, losses and duplicates (R6..R11, A1..A3, A4w, A10).

    A key is reordered when a record of it was first delivered after a later one of the same writer.
    """
    with cycles_uncollected():
        truth = build(history, log, None, log_starts=log_starts, compacted=compacted)
        return _judge(truth, truth.by_writer, mode, quiesced, starts or {}, full=False)


def _judge(
    truth: Truth,
    order: Order,
    mode: Mode,
    quiesced: bool,
    starts: Starts,
    *,
    full: bool,
    refusals_excuse: bool = False,
) -> Verdict:
    if mode not in ("at-least-once", "exactly-once"):
        raise ValueError(f"no such mode: {mode!r}")
    findings = Findings()
    lost_in_log = check_log(truth, findings)
    # A stock client's auto-commit overruns by design; its twin is judged by what came of it.
    views = read_groups(truth, findings if full else Findings(), starts, refusals_excuse=refusals_excuse)
    groups = {}
    for name, view in views.items():
        checks = GroupChecks(truth, view, findings, quiesced=quiesced)
        checks.losses(order)
        checks.phantoms()
        checks.order("A4w", truth.by_writer)
        checks.duplicates(mode)
        if full:
            checks.order("A4", order)
            checks.continuity(order)
            checks.overlaps(order)
            if order is truth.order:
                checks.gates(order)
            if quiesced:
                checks.final(order)
        groups[name] = _figures(checks.tally, lost_in_log, findings.counts["R6"])
    verdict = _totals(truth, lost_in_log)
    verdict.counts = {id: count for id, count in findings.counts.items() if count}
    verdict.anomalies, verdict.groups = findings.kept, groups
    return verdict


def _figures(tally: Tally, lost_in_log: set[int], log_duplicates: int) -> GroupFigures:
    return GroupFigures(
        deliveries=tally.deliveries,
        delivered=len(tally.delivered),
        reordered_keys=len(tally.reordered),
        lost=len(tally.lost | lost_in_log),
        lost_on_the_way=len(tally.lost),
        illegal_duplicates=tally.illegal + log_duplicates,
        legal_duplicates=tally.legal,
        sought_duplicates=tally.sought,
        zombie_overlaps=tally.zombie_overlaps,
    )


def _totals(truth: Truth, lost_in_log: set[int]) -> Verdict:
    outcomes = {vid: send.outcome for vid, send in truth.sends.items()}
    unknown = [vid for vid, outcome in outcomes.items() if outcome in (None, Kind.SEND_UNKNOWN)]
    keys = {truth.key(vid) for vid in truth.place}
    moved = 0
    if truth.topology is not None:
        moved = sum(1 for key in keys if len(truth.topology.chain(key.encode())) > 1)
    present = sum(1 for vid in unknown if vid in truth.place)
    return Verdict(
        records=len(truth.found),
        keys=len(keys),
        keys_moved=moved,
        sent=len(outcomes),
        acknowledged=sum(1 for outcome in outcomes.values() if outcome is Kind.SEND_OK),
        failed=sum(1 for outcome in outcomes.values() if outcome is Kind.SEND_FAIL),
        unknown_present=present,
        unknown_absent=len(unknown) - present,
        lost_in_log=len(lost_in_log),
    )
