"""Latencies: quantiles, and how long a moved key's first record at its new home waited for its last at the old one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from ..verify.events import Kind
from ..verify.history import History
from ..verify.topology import Topology, locate


@dataclass(frozen=True, slots=True)
class HandOver:
    """One key's step to a new home.

    epoch: the change that moved it. milliseconds: from the moment at which its first record at the new home was
    acknowledged and its last record at the old home was done with, whichever came later, to the start of the former's
    delivery. waited: the record was in the log already when the old home was done, so it truly waited for the gate.
    """

    epoch: int
    milliseconds: float
    waited: bool


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all do not exceed; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """p50, p99, the highest and how many there are, rounded to hundredths."""
    named = {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99), "max": max(values, default=None)}
    rounded: dict[str, float | int | None] = {k: None if v is None else round(v, 2) for k, v in named.items()}
    return {**rounded, "count": len(values)}


@dataclass(slots=True)
class _Times:
    acknowledged: int | None = None
    started: int | None = None
    ended: int | None = None


def hand_overs(history: History, topology: Topology) -> list[HandOver]:
    """Every hand-over that the history shows. A key with nothing delivered at an earlier home hands nothing over."""
    stays: dict[str, dict[int, _Times]] = {}
    for event in history.events():
        if event.vid < 0 or event.kind not in (Kind.SEND_OK, Kind.DELIVER_START, Kind.DELIVER_END):
            continue
        key = history.values[event.vid].key
        chain = topology.chain(key.encode())
        if len(chain) < 2:
            continue
        number = locate(chain, event.partition, event.offset)
        if number is None:
            continue
        times = stays.setdefault(key, {}).setdefault(number, _Times())
        _take(times, event.kind, event.t)
    found: list[HandOver] = []
    for key, by_number in stays.items():
        found.extend(_of_key(by_number, [segment.epoch for segment in topology.chain(key.encode())]))
    return found


def gate_openings(history: History, topology: Topology) -> list[HandOver]:
    """How long each new partition stayed closed for no reason that the group's own work gives: one for each gate.

    From the moment at which the group was done with all that the origin held before the cut, and a record was there
    to be delivered behind the gate, to the start of that first delivery.
    """
    moves = {
        (here.epoch, before.home, here.home)
        for key in {value.key for value in history.values}
        for before, here in pairwise(topology.chain(key.encode()))
    }
    cuts = {epoch.epoch: epoch for epoch in topology.epochs}
    gates = {move: _Times() for move in moves}
    leaving: dict[int, list[tuple[int, _Times]]] = {}
    entering: dict[int, list[tuple[int, _Times]]] = {}
    for (e, q, p), times in gates.items():
        leaving.setdefault(q, []).append((cuts[e].ends[q], times))
        entering.setdefault(p, []).append((cuts[e].begins[p], times))
    ended: set[tuple[int, int]] = set()
    for event in history.events():
        place = event.partition, event.offset
        if event.kind is Kind.DELIVER_END and place not in ended:
            ended.add(place)
            for end, times in leaving.get(event.partition, ()):
                if event.offset < end:
                    times.ended = event.t
        elif event.kind in (Kind.SEND_OK, Kind.DELIVER_START):
            for begin, times in entering.get(event.partition, ()):
                if event.offset >= begin:
                    _take(times, event.kind, event.t)
    found: list[HandOver] = []
    for (e, _, _), times in sorted(gates.items()):
        found.extend(_of_key({0: _Times(ended=times.ended), 1: _Times(times.acknowledged, times.started)}, [e, e]))
    return found


def _take(times: _Times, kind: Kind, t: int) -> None:
    """The first acknowledgement, the first start and the last end of a stay; events come in order of time."""
    if kind is Kind.SEND_OK and times.acknowledged is None:
        times.acknowledged = t
    elif kind is Kind.DELIVER_START and times.started is None:
        times.started = t
    elif kind is Kind.DELIVER_END:
        times.ended = t


def _of_key(stays: dict[int, _Times], epochs: Sequence[int]) -> Iterable[HandOver]:
    done: int | None = None
    for number in sorted(stays):
        times = stays[number]
        if done is not None and times.started is not None and times.acknowledged is not None:
            since = max(done, times.acknowledged)
            # A delivery may be recorded before the acknowledgement of what it delivers: that is no time at all.
            waited = max(0, times.started - since) / 1e6
            yield HandOver(epochs[number], waited, times.acknowledged <= done)
        if times.ended is not None:
            done = times.ended
