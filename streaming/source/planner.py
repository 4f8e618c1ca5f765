"""Which offsets a micro-batch ends at. Pure: `(start, ends, log_starts, timelines, limit) -> ends, closed gates`.

Invariants of every micro-batch:

1. Each key is found in exactly one partition: a partition that keys entered is read up to its first closed gate, and
2. a gate opens by the batch's *start* offsets alone, so that what lies before it was in *earlier* batches; whatever
   shuffles the rows of a batch cannot mix a key's records from before and after a change.
3. A batch is a function of its two sets of offsets, which Spark keeps: a restart plans the same one again.
4. TopicRegistration control gives to what closed gates wait for first, so that it never holds a moved key back for long.

The ends must have been taken before the timelines were read to their end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import ceil

from ...partitioner.gates.gate import Gate, Gates, Opened, consistent_starts
from ...partitioner.timeline import Timeline
from .offsets import Place

Waivers = Mapping[str, Collection[tuple[int, int]]]


@dataclass(frozen=True)
class Situation:
    """What is known of the topics at one moment.

    ends, log_starts: by place, of every partition that the query reads. timelines: of the managed topics, read to their
    end after `ends` were taken. outside: log starts of partitions that it does not read (`assign`), where gates may have
    their origins. waived: (partition, epoch) by topic.
    """

    ends: Mapping[Place, int]
    log_starts: Mapping[Place, int]
    timelines: Mapping[str, Timeline] = field(default_factory=dict)
    outside: Mapping[Place, int] = field(default_factory=dict)
    waived: Waivers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClosedGate:
    """A gate behind which records wait. blockers: ((origin, offset needed, offset there), ...)."""

    topic: str
    partition: int
    epoch: int
    begins: int
    blockers: tuple[tuple[int, int, int], ...]

    def __str__(self) -> str:
        waits = ", ".join(f"partition {q} to {needed} (at {at})" for q, needed, at in self.blockers)
        return f"epoch {self.epoch}: from offset {self.begins} on it waits for {waits}"


@dataclass(frozen=True, slots=True)
class Planned:
    """Where the batch ends, and which gates keep records out of it.

    open_ends: how far it could have gone without a limit.
    """

    ends: dict[Place, int]
    open_ends: dict[Place, int]
    closed: tuple[ClosedGate, ...]


def begins_of(start: Mapping[Place, int], situation: Situation) -> dict[Place, int]:
    """Where reading goes on, for every partition that exists: one that is new begins at its log start."""
    return {place: start.get(place, situation.log_starts[place]) for place in situation.ends}


def plan(start: Mapping[Place, int], situation: Situation, limit: int | None = None) -> Planned:
    """The end offsets of the batch that starts at `start`. limit: most records, None for all.

    A partition whose log ends below its start gets that lower end: the caller has to report the loss.
    """
    begins = begins_of(start, situation)
    opened = {t: _opened(t, timeline, begins, situation) for t, timeline in situation.timelines.items()}
    closed: list[ClosedGate] = []
    ends: dict[Place, int] = {}
    for place, end in situation.ends.items():
        topic, partition = place
        timeline = situation.timelines.get(topic)
        if timeline is not None and not timeline.mode(partition).readable:
            # KIP-694: nobody reads it any more; what lies above its cut are strays, below it is being deleted.
            end = min(end, max(begins[place], timeline.cut_of_retired(partition)))
        gate = opened[topic].first_closed(partition) if topic in opened else None
        if gate is not None and gate.begins < end:
            closed.append(_closed_gate(topic, gate, opened[topic], _position(topic, begins, situation)))
            end = max(begins[place], gate.begins)
        ends[place] = end
    if limit is None:
        return Planned(ends, ends, tuple(closed))
    urgent: dict[Place, int] = {}
    for gate_ in closed:
        for q, needed, _ in gate_.blockers:
            origin = (gate_.topic, q)
            if origin in ends:
                urgent[origin] = max(urgent.get(origin, 0), min(needed, ends[origin]))
    return Planned(admit(begins, ends, limit, urgent), ends, tuple(closed))


def admit(
    begins: Mapping[Place, int], ends: Mapping[Place, int], limit: int, urgent: Mapping[Place, int]
) -> dict[Place, int]:
    """End offsets for about `limit` records: first what `urgent` names (up to which offset), then all by their backlog.

    The shares are those of Spark's own source: in proportion, rounded down, but one record at least.
    """
    first = {p: max(begins[p], upto) for p, upto in urgent.items()}
    wanted = sum(first[p] - begins[p] for p in first)
    if wanted >= limit:
        return {**_nothing_more(begins, ends), **_shares({p: begins[p] for p in first}, first, limit)}
    return _shares({p: first.get(p, begins[p]) for p in ends}, ends, limit - wanted)


def _nothing_more(begins: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
    """Nothing more for anybody; a log that ends below its start keeps its lower end."""
    return {p: min(begins[p], end) for p, end in ends.items()}


def _shares(begins: Mapping[Place, int], ends: Mapping[Place, int], limit: int) -> dict[Place, int]:
    sizes = {p: end - begins[p] for p, end in ends.items() if end > begins[p]}
    total = sum(sizes.values())
    if total == 0:
        return _nothing_more(begins, ends)
    found: dict[Place, int] = {}
    for place, end in ends.items():
        size = sizes.get(place)
        if size is None:
            found[place] = end
            continue
        share = limit * (size / total)
        found[place] = min(end, begins[place] + (ceil(share) if share < 1 else int(share)))
    return found


def consistent(offsets: Mapping[Place, int], situation: Situation) -> dict[Place, int]:
    """These offsets (taken before the timelines were read), lowered wherever one lies behind a gate that is closed there.

    For the first offsets of a query, and for the targets of Trigger.AvailableNow: a set of offsets that was listed
    partition by partition may skip a record in the middle, or have a moved key's new records without its older ones.
    """
    found = dict(offsets)
    for topic, timeline in situation.timelines.items():
        mine = {p: o for (t, p), o in offsets.items() if t == topic}
        log_starts = {p: o for (t, p), o in {**situation.log_starts, **situation.outside}.items() if t == topic}
        known = {p: max(mine.get(p, 0), log_starts.get(p, 0)) for p in range(timeline.highest_count)}
        known.update({p: max(o, log_starts.get(p, 0)) for p, o in mine.items() if p not in known})
        lowered = consistent_starts(Gates(timeline), known, situation.waived.get(topic, ()))
        for p in mine:
            if lowered[p] < known[p]:
                found[topic, p] = max(lowered[p], log_starts.get(p, 0))
    return found


def stuck(situation: Situation, start: Mapping[Place, int]) -> ClosedGate | None:
    """A gate that waits for a partition which the query does not read (`assign`), and which therefore never opens."""
    begins = begins_of(start, situation)
    for topic, timeline in situation.timelines.items():
        opened = _opened(topic, timeline, begins, situation)
        for t, partition in situation.ends:
            gate = opened.first_closed(partition) if t == topic else None
            if gate is None:
                continue
            found = _closed_gate(topic, gate, opened, _position(topic, begins, situation))
            if any((topic, q) not in situation.ends for q, _, _ in found.blockers):
                return found
    return None


def _position(topic: str, begins: Mapping[Place, int], situation: Situation) -> Callable[[int], int]:
    """What earlier batches have taken. The log start counts too: batches are sequential, so nothing below it is on its way."""

    def position(q: int) -> int:
        place = (topic, q)
        if place in begins:
            return max(begins[place], situation.log_starts[place])
        return situation.outside.get(place, 0)

    return position


def _opened(topic: str, timeline: Timeline, begins: Mapping[Place, int], situation: Situation) -> Opened:
    return Gates(timeline).open_now(_position(topic, begins, situation), situation.waived.get(topic, ()))


def _closed_gate(topic: str, gate: Gate, opened: Opened, position: Callable[[int], int]) -> ClosedGate:
    blockers = tuple((q, needed, position(q)) for q, needed in sorted(opened.blockers(gate)))
    return ClosedGate(topic, gate.partition, gate.epoch, gate.begins, blockers)
