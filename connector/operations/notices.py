"""What an operator should know before a change: warnings in words of our own, each with a code for programs.

KIP-694, "Kafka Topic Command changes", prints three: keys get another partition, the cluster or the switch does not allow
it, the topic is being changed already. Its texts speak of an increase where partitions go; these say what happens here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from ...partitioner.adoption import counts_of_stock_writers
from ...partitioner.epochs import OpenChange, Retirement
from ...partitioner.layout import Layout
from ...partitioner.modes import DELETE_ENABLE
from ...partitioner.timeline import Timeline
from ...partitioner.writers.lease import LeaseTerms
from ..settings import boolean
from .stock_look import NOBODY_SEEN, StockProducers

_USUAL_LEASE = LeaseTerms().lease


class Code(str, Enum):
    """A warning's name for programs."""

    KEYS_MOVE = "keys-move"
    STOCK_WRITERS = "stock-writers"
    NO_ORDERED_WRITER = "no-ordered-writer"
    LONG_LEASE = "long-lease"
    CHANGE_OPEN = "change-open"
    SWITCH_OFF = "switch-off"
    COMPACTED = "compacted"
    GROUPS_LAG = "groups-lag"
    FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Notice:
    """One warning."""

    code: Code
    text: str


def of_adoption(topic: str) -> list[Notice]:
    """Before a topic's first change: who may write it from then on."""
    text = (
        f"Once {topic} grows or shrinks, producers without keyorder place keys by `hash % partitions`, which breaks the "
        "order of keys that have moved: let every writer use an OrderedProducer before that."
    )
    return [Notice(Code.KEYS_MOVE, text)]


def of_change(
    timeline: Timeline,
    count: int,
    ordered_writers: int | None = None,
    physical: int | None = None,
    stock: StockProducers = NOBODY_SEEN,
) -> list[Notice]:
    """For any change to `count`.

    ordered_writers: how many OrderedProducers write it now, None if nobody has looked. physical: partitions that exist now.
    stock: what shows that stock producers write it. Before the first change their records lie where ours would, so without a
    look they are warned of then.
    """
    found = []
    if timeline.change is not None:
        found.append(open_change(timeline.topic, timeline.change))
    if count == timeline.newest.count:
        return found
    share: Fraction = timeline.layout.share_moved(timeline.layout.resized(count))
    found.append(
        Notice(
            Code.KEYS_MOVE,
            f"{float(share):.1%} of the keys of {timeline.topic} get another partition, with their order kept.",
        )
    )
    unknown = ordered_writers is None and len(timeline.epochs) == 1 and timeline.folded is None
    if stock.seen or stock.records is None or ordered_writers == 0 or unknown:
        exist = max(count, timeline.highest_count, physical or 0)
        found.append(stock_writers(timeline.layout.resized(count), exist, stock))
    if ordered_writers == 0:
        found.append(
            Notice(
                Code.NO_ORDERED_WRITER,
                f"No OrderedProducer writes {timeline.topic} now: if anybody writes it, it is a producer without keyorder.",
            )
        )
    return found


def long_leases(topic: str, leases: Mapping[str, float], usual: float = _USUAL_LEASE) -> list[Notice]:
    """What a long delivery time-out costs after a crash. leases: {writer: seconds}."""
    writer = max(leases, key=lambda name: leases[name], default=None)
    if writer is None or leases[writer] <= usual:
        return []
    return [
        Notice(
            Code.LONG_LEASE,
            f"Writer {writer!r} of {topic} has a lease of {leases[writer]:.0f} s, since it has a long delivery.timeout.ms. "
            "If it crashes, a change waits that long before it excludes the writer.",
        )
    ]


def stock_writers(layout: Layout, partitions: int, stock: StockProducers = NOBODY_SEEN) -> Notice:
    """What stock producers do to a topic that gets this layout and then has `partitions` partitions, retired ones included.

    stock: what shows that they write it.
    """
    seen = f"{stock.seen[0].upper()}{stock.seen[1:]}. " if stock.seen else ""
    if stock.records is None:
        seen += "Whether its newest records show a stock producer is unknown: this user may not read them. "
    if stock_right(layout, partitions):
        after = f"With {layout.count} partitions they place keys as keyorder does, so they may go on afterwards"
    else:
        right = ", ".join(map(str, counts_of_stock_writers(layout.initial, 4 * max(layout.count, layout.initial))))
        after = (
            f"With {layout.count} of {partitions} partitions in use they place some keys elsewhere than keyorder does (they "
            f"agree where a topic has {right}, … partitions and uses all): let every writer use an OrderedProducer first"
        )
    return Notice(
        Code.STOCK_WRITERS,
        f"{seen}Producers without keyorder do not take part in a change: they place keys by `{layout.hash} % partitions` as "
        f"soon as the number of partitions changes, and go on writing to retired ones. Stop them before it. {after}.",
    )


def stock_right(layout: Layout, partitions: int) -> bool:
    """Whether stock producers of the topic's hash place keys as keyorder does, with so many partitions, retired ones included."""
    return layout.split == 0 and layout.count == partitions


def open_change(topic: str, change: OpenChange) -> Notice:
    """The topic is being changed already (KIP-694's third warning)."""
    what = "values are re-homed" if change.slice is not None else f"it goes to {change.count} partitions"
    return Notice(
        Code.CHANGE_OPEN,
        f"The layout of {topic} is being changed already: {what} (epoch {change.epoch}, attempt {change.attempt}, "
        f"{change.phase.value}). To ask for the same count takes it over, and whoever works on it is fenced; "
        f"`keyorder change status --topic {topic}` shows how far it is, `keyorder change abort --topic {topic}` gives it up.",
    )


def of_shrink(timeline: Timeline, retirement: Retirement, compacted: bool = False) -> list[Notice]:
    """For what a shrink retires: whether it will be emptied at all."""
    topic = timeline.topic
    if compacted:
        return [
            Notice(
                Code.COMPACTED,
                f"{topic} is compacted: a retired partition may hold the only value of a key, so it is kept and stays "
                "readable until `keyorder topics drain --rehome` has taken its values to their keys' homes.",
            )
        ]
    if not boolean(timeline.settings, DELETE_ENABLE, False):
        return [
            Notice(
                Code.SWITCH_OFF,
                f"{DELETE_ENABLE} is false for {topic}: retired partitions keep their records. Switch it on with "
                f"`keyorder topics alter --topic {topic} --config {DELETE_ENABLE}=true` to have them emptied.",
            )
        ]
    if retirement.forced:
        return [Notice(Code.FORCED, "Forced: no group is waited for. What they have not read of it is lost.")]
    return []


def of_lagging(topic: str, lagging: Mapping[str, int], named: Collection[str]) -> list[Notice]:
    """Groups that a shrink does not wait for and that still have records to read in what it retires."""
    late = {group: lag for group, lag in sorted(lagging.items()) if lag > 0 and group not in named}
    if not late:
        return []
    names = ", ".join(f"{group} ({lag} records)" for group, lag in late.items())
    return [
        Notice(
            Code.GROUPS_LAG,
            f"These groups of {topic} have not read what is to be retired, and are not named by --wait-for-groups: {names}. "
            "They lose what they have not read by the time it is emptied.",
        )
    ]
