"""Forecasts, warnings and the state of a change, from facts alone: nothing is guessed, nothing is left unsaid."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from keyorder.connector.operations import notices
from keyorder.connector.operations.change_status import Answer, change_status, drain_status
from keyorder.connector.operations.forecast import Sample, group_forecasts, hold_forecast, losses
from keyorder.connector.operations.notices import Code
from keyorder.connector.operations.outcomes import PartitionStatus, outcomes
from keyorder.connector.operations.stock_look import StockProducers
from keyorder.partitioner.changes.plan import plan_change
from keyorder.partitioner.epochs import ChangePhase, Drain, DrainState, Retirement
from keyorder.partitioner.gates.starts import Commit
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.records.control_records import Lease, LeaseState
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.members import Member
from support.dumb import timeline_of

FOUR = timeline_of(4, [])
TWO = timeline_of(1, [(4, {0: 0}, {}), (2, {2: 50, 3: 60}, {0: 70, 1: 80})])
RETIRED = replace(TWO, drains=(Drain(2, 2, 50), Drain(3, 2, 60)))
SWITCHED_ON = {"delete.topic.partition.enable": "true"}


def sample(at: float, ends: dict[int, int], **committed: dict[int, int]) -> Sample:
    """A look at a topic whose logs begin at 0."""
    commits = {group: {p: Commit(o, 0) for p, o in found.items()} for group, found in committed.items()}
    return Sample(at, dict.fromkeys(ends, 0), ends, commits)


def test_a_pace_needs_two_samples() -> None:
    """One tells none; two tell the slowest origin's time; a group that stands still has none, one that has read all does."""
    plan = plan_change(FOUR.layout, 6)  # 0 -> 4, 1 -> 5
    ends = {0: 100, 1: 100, 2: 100, 3: 100}
    first = sample(10.0, ends, quick={0: 20, 1: 80}, still={0: 50, 1: 100}, done={0: 100, 1: 100})
    last = sample(14.0, {**ends, 0: 140}, quick={0: 60, 1: 90}, still={0: 50, 1: 100}, done={0: 140, 1: 100})

    once = {g.group: g for g in group_forecasts(plan, last, last)}
    assert {name: g.gate_s for name, g in once.items()} == {"quick": None, "still": None, "done": 0}
    assert "--sample" in once["quick"].why
    twice = {g.group: g for g in group_forecasts(plan, first, last, named={"still"})}
    # 80 offsets of partition 0 at 10 per second; 10 of partition 1 at 2.5.
    assert twice["quick"].gate_s == 8.0
    assert [(b.partition, b.lag, b.consumed_per_s) for b in twice["quick"].backlogs] == [(0, 80, 10.0), (1, 10, 2.5)]
    assert (twice["still"].gate_s, twice["still"].named) == (None, True)
    assert "nothing of partition 0" in twice["still"].why
    hold = hold_forecast(FOUR, plan, first, last, at_most_s=5.0)
    assert (hold.seconds, hold.moving_per_s) == (None, 5.0)  # half of the keys of partition 0, which gets 10 per second
    assert hold_forecast(FOUR, plan, last, last, 5.0).moving_per_s is None


def test_holding_is_told_by_earlier_changes() -> None:
    """The longest of them; none without one."""
    known = replace(TWO, epochs=(*TWO.epochs[:2], replace(TWO.newest, held_ms=40)))
    plan = plan_change(known.layout, 4)
    look = sample(0.0, {0: 0, 1: 0, 2: 0, 3: 0})
    assert hold_forecast(known, plan, look, look, 5.0).seconds == 0.04
    assert hold_forecast(known, plan, look, look, 5.0).epochs == (2,)


def test_losses_are_what_lies_between_a_group_and_the_cut() -> None:
    """Where it has no commit the log start counts; a group that is past the cut loses nothing."""
    look = Sample(0.0, {2: 5, 3: 0}, {2: 55, 3: 60}, {"a": {2: Commit(20, 0), 3: Commit(60, 0)}, "b": {}})
    found = losses({2: 50, 3: 60}, look)
    assert [(x.group, x.partition, x.records) for x in found] == [("a", 2, 30), ("b", 2, 45), ("b", 3, 60)]


@pytest.mark.kip("K694-17", "K694-19", "C-23")
def test_a_change_warns_of_moving_keys_and_of_a_change_that_is_open() -> None:
    """A shrink speaks of retired partitions, not of an increase; the same count moves nothing."""
    (moving,) = notices.of_change(FOUR, 6, ordered_writers=1)
    assert moving.code is Code.KEYS_MOVE
    assert "25.0%" in moving.text
    assert notices.of_change(FOUR, 4) == []
    shrinking = notices.of_change(TWO, 1, ordered_writers=0)
    assert [n.code for n in shrinking] == [Code.KEYS_MOVE, Code.STOCK_WRITERS, Code.NO_ORDERED_WRITER]
    assert "retired" in shrinking[1].text
    assert not any("increase" in n.text for n in shrinking)
    changing = FOUR.opened(8, ChangePhase.PREPARE, 3)
    opened = notices.of_change(changing, 6)[0]
    assert opened.code is Code.CHANGE_OPEN
    assert "8 partitions" in opened.text
    assert "attempt 3" in opened.text


def test_a_change_warns_of_stock_writers_where_something_shows_one_or_nothing_can() -> None:
    """Before the first change a stock producer leaves no trace; later its records show, and who writes can be asked."""
    assert [n.code for n in notices.of_change(FOUR, 8)] == [Code.KEYS_MOVE, Code.STOCK_WRITERS]
    assert [n.code for n in notices.of_change(FOUR, 8, ordered_writers=2)] == [Code.KEYS_MOVE]
    assert [n.code for n in notices.of_change(TWO, 4)] == [Code.KEYS_MOVE]
    unread = notices.of_change(TWO, 4, 2, 4, stock=StockProducers(records=None))
    assert [n.code for n in unread] == [Code.KEYS_MOVE, Code.STOCK_WRITERS]
    assert "unknown: this user may not read them" in unread[1].text
    found = notices.of_change(TWO, 4, 2, 4, stock=StockProducers(records=7))
    assert [n.code for n in found] == [Code.KEYS_MOVE, Code.STOCK_WRITERS]
    assert "7 of the newest records are a stock producer's" in found[1].text


@pytest.mark.parametrize(
    ("timeline", "count", "physical", "right"),
    [(FOUR, 8, 4, True), (FOUR, 6, 4, False), (FOUR, 8, 9, False), (TWO, 1, 4, False), (TWO, 4, 4, True)],
)
def test_it_says_at_which_counts_a_stock_writer_is_right(
    timeline: Timeline, count: int, physical: int, right: bool
) -> None:
    """At initial * 2**k partitions of which none is retired: those that exist are what a stock producer counts."""
    text = notices.of_change(timeline, count, 0, physical)[1].text
    assert ("may go on afterwards" in text) is right
    counts = "1, 2, 4" if timeline is TWO else "4, 8, 16"
    assert (f"{counts}" in text) is not right
    hashed = replace(timeline, hash="crc32")
    assert "crc32 % partitions" in notices.of_change(hashed, count, 0, physical)[1].text


@pytest.mark.kip("K694-18", "C-23")
@pytest.mark.parametrize(
    ("settings", "wishes", "compacted", "code"),
    [
        ({}, Retirement(), False, Code.SWITCH_OFF),
        (SWITCHED_ON, Retirement(), False, None),
        ({}, Retirement(immediate=True), False, Code.SWITCH_OFF),
        (SWITCHED_ON, Retirement(delay_ms=0), False, None),
        (SWITCHED_ON, Retirement(forced=True), False, Code.FORCED),
        (SWITCHED_ON, Retirement(delay_ms=5), True, Code.COMPACTED),
    ],
)
def test_a_shrink_warns_where_nothing_would_be_emptied(
    settings: dict[str, str], wishes: Retirement, compacted: bool, code: Code | None
) -> None:
    """The switch is off, which no wish of the shrink goes past, or the cluster's log is compacted."""
    found = notices.of_shrink(replace(TWO, settings=settings), wishes, compacted)
    assert [n.code for n in found] == ([] if code is None else [code])


@pytest.mark.kip("K694-04", "K694-16", "C-14")
def test_a_drain_is_due_by_its_own_delay_and_names_whom_it_waits_for() -> None:
    """The shrink's delay goes before the topic's; a forced one waits for nobody; a switched-off one is never due."""
    topic = replace(RETIRED, settings={**SWITCHED_ON, "delete.topic.partition.interval.delay.ms": "7000"})
    late = {"g": {2: Commit(40, 0)}}
    epochs = tuple(replace(e, committed_at_ms=1_000_000) for e in topic.epochs)
    topic = replace(topic, epochs=epochs)

    def told(wishes: Retirement, timeline: Timeline = topic) -> tuple[int | None, str, dict[str, int]]:
        found = drain_status(timeline, Drain(2, 2, 50, retirement=wishes), False, late)
        return found.due_at_ms, found.waits_for, dict(found.behind)

    assert told(Retirement()) == (1_007_000, "its delay, and a controller", {})
    assert told(Retirement(groups=("g",))) == (1_007_000, "group g to reach 50", {"g": 10})
    assert told(Retirement(groups=("g", "h"), delay_ms=0))[0] == 1_000_000
    assert told(Retirement(groups=("g",), forced=True)) == (1_007_000, "its delay, and a controller", {})
    assert told(Retirement(), replace(topic, settings={}))[:2] == (None, "delete.topic.partition.enable is false")


@pytest.mark.kip("K694-23", "K694-10")
def test_a_failed_purge_is_counted_and_cleared_by_the_one_that_works() -> None:
    """waiting, purging, purge_failed, purged; other wishes reach only what still waits."""
    purging = RETIRED.drained(2, Mode.NONE)
    failed = purging.purge_failed(2, "no leader").purge_failed(2, "refused")
    states = [t.drains[0].state for t in (RETIRED, purging, failed, failed.drained(2, Mode.NONE, emptied=True))]
    assert states == [DrainState.WAITING, DrainState.PURGING, DrainState.PURGE_FAILED, DrainState.PURGED]
    assert (failed.drains[0].tries, failed.drains[0].error) == (2, "refused")
    wished = failed.retired_by(Retirement(forced=True))
    assert [d.retirement.forced for d in wished.drains] == [False, True]
    told = outcomes(failed, [])
    assert [(p.partition_index, p.status_code, p.error_code, p.error_message) for p in told] == [
        (2, PartitionStatus.PURGE_FAILED, -1, "refused"),
        (3, PartitionStatus.WAITING, 0, None),
    ]


def member(name: str) -> Member:
    """A live writer with a lease of 45 s."""
    return Member(Lease(name, name, LeaseState.LIVE, 1, 45_000, 2, ("t",)), 1, 0.0)


def state(heard: dict[str, int], ready: tuple[str, ...] = (), since: int = 100_000) -> Any:
    """What the control topics say: who was heard of when, and who is ready."""
    return SimpleNamespace(
        written_at={"t": since},
        writers=lambda topic: [member(name) for name in heard],
        is_ready=lambda m, topic, epoch: m.lease.writer in ready,
        renewed_at_ms=lambda m: heard[m.lease.writer],
    )


def test_a_plan_waits_for_signs_of_life_and_a_prepare_for_ready() -> None:
    """Who has answered since PLAN is there; a lease that ran out is told apart; PREPARE counts READY alone."""
    planned = FOUR.opened(6, ChangePhase.PLAN)
    found = change_status(planned, state({"a": 100_500, "b": 99_000, "c": 50_000}), (), now_ms=101_000)
    assert [(w.writer, w.answer) for w in found.writers] == [
        ("a", Answer.PRESENT), ("b", Answer.SILENT), ("c", Answer.LEASE_OVER),
    ]  # fmt: skip
    assert (found.late, found.deadline_at_ms, found.stalled) == (("b", "c"), None, None)
    assert "a lease renewal of b (last heard of 2 s ago, at most 43 s more), c (last heard" in found.next_step

    prepared = planned.prepared(deadline_ms=5_000)
    found = change_status(prepared, state({"a": 100_500, "b": 100_500}, ready=("a",)), (), now_ms=101_000)
    assert [w.answer for w in found.writers] == [Answer.READY, Answer.HOLDING]
    assert (found.late, found.deadline_at_ms, found.stalled) == (("b",), 105_000, False)
    assert "READY from b (last heard of 0 s ago, at most 4 s more)" in found.next_step
    left = change_status(prepared, state({}), (), now_ms=130_000)
    assert left.stalled
    assert "keyorder change abort" in left.next_step
    quiet = change_status(FOUR, state({}), (), now_ms=130_000)
    assert (quiet.change, quiet.since_ms, quiet.next_step) == (None, None, "")


def test_a_plan_says_what_a_long_lease_costs() -> None:
    """The longest one, by its writer's name; a usual one is nothing to speak of."""
    assert notices.long_leases("orders", {}) == []
    assert notices.long_leases("orders", {"a": 45.0}) == []
    (found,) = notices.long_leases("orders", {"a": 45.0, "b": 322.0, "c": 60.0})
    assert found.code is Code.LONG_LEASE
    assert "'b'" in found.text
    assert "322 s" in found.text
