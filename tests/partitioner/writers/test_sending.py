"""A writer's side of a change: who is held, who flows, in which order the held go, and when the writer is READY."""

from __future__ import annotations

from random import Random

import pytest
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.errors import IdentityMismatchError, TimelineRegressionError
from keyorder.partitioner.routing import Route
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.sending import Held, TopicSending
from support.dumb import dumb_home, dumb_moves, key_of_hash, timeline_of

START = timeline_of(2, [])
STAYS, MOVES, OTHER = key_of_hash(0, 4), key_of_hash(2, 4), key_of_hash(1, 4)  # 2 -> 3 moves hashes that are 2 mod 4


def _prepare(timeline: Timeline, count: int) -> Timeline:
    return timeline.opened(count, ChangePhase.PLAN).prepared()


def _commit(timeline: Timeline) -> Timeline:
    change = timeline.change
    assert change is not None
    moves = dumb_moves(timeline.initial, timeline.newest.count, change.count)
    return timeline.committed({q: 0 for q, _ in moves}, {p: 0 for _, p in moves})


def _offer(sending: TopicSending[int], key: bytes | None, record: int, sent: list[tuple[bytes | None, int]]) -> None:
    """As a producer does: hold the record or send it."""
    route = sending.routing.of(key) if key is not None else None
    if sending.must_wait(key, route):
        sending.hold(key, record)
    else:
        sent.append((key, record))


def _take_all(sent: list[tuple[bytes | None, int]]) -> object:
    def send(held: Held[int], route: Route | None) -> bool:
        sent.append((held.key, held.record))
        return True

    return send


@pytest.mark.kip("K253-26", "K253-28", "C-07")
def test_only_moving_keys_are_held() -> None:
    """While a PREPARE is open; before it, during the PLAN, and after it all flow."""
    sending: TopicSending[int] = TopicSending(START)
    planned = START.opened(3, ChangePhase.PLAN)
    for timeline in (START, planned):
        sending.apply(timeline)
        assert not any(sending.must_wait(key, sending.routing.of(key)) for key in (STAYS, MOVES, OTHER))
    sending.apply(planned.prepared())
    assert [sending.must_wait(key, sending.routing.of(key)) for key in (STAYS, MOVES, OTHER)] == [False, True, False]
    sending.apply(_commit(planned.prepared()))
    assert not sending.must_wait(MOVES, sending.routing.of(MOVES))
    assert sending.routing.of(MOVES).home == 2


def test_records_without_a_key_wait_only_behind_held_ones() -> None:
    """They have no home that moves; one that had to wait keeps its place before later ones."""
    sending: TopicSending[int] = TopicSending(_prepare(START, 3))
    assert not sending.must_wait(None, None)
    sending.hold(None, 1)
    assert sending.must_wait(None, None)
    assert not sending.must_wait(STAYS, sending.routing.of(STAYS))


@pytest.mark.kip("C-07", "K253-40")
@pytest.mark.parametrize("seed", range(20))
def test_release_keeps_each_keys_order_however_often_the_queue_is_full(seed: int) -> None:
    """A send that refuses at random: each key's records still go in their order, none twice, none lost."""
    random = Random(seed)
    sending: TopicSending[int] = TopicSending(_prepare(START, 4))
    sent: list[tuple[bytes | None, int]] = []
    keys = [MOVES, key_of_hash(3, 4), STAYS]
    for record in range(30):
        _offer(sending, random.choice(keys), record, sent)
    waiting = list(sending.held)
    assert {held.key for held in waiting} == set(keys[:2])
    sending.apply(_commit(sending.timeline))

    def send(held: Held[int], route: Route | None) -> bool:
        if random.random() < 0.5:
            return False
        assert route is not None
        assert route.home == dumb_home(2, 4, {MOVES: 2}.get(held.key or b"", 3))
        sent.append((held.key, held.record))
        return True

    record, before = 30, len(sent)
    while sending.held:
        held = len(sending.held)
        assert sending.release(send) == held - len(sending.held)
        if record < 40:
            _offer(sending, random.choice(keys), record, sent)
            record += 1
    for key in keys:
        own = [number for k, number in sent if k == key]
        assert own == sorted(own)
    assert len(sent) == len(set(sent)) == record
    assert len(sent) - before >= len(waiting)


def test_nothing_moving_is_released_while_the_prepare_is_open() -> None:
    """Release may be called at any time."""
    sending: TopicSending[int] = TopicSending(_prepare(START, 3))
    sent: list[tuple[bytes | None, int]] = []
    _offer(sending, MOVES, 1, sent)
    assert sending.release(_take_all(sent)) == 0  # type: ignore[arg-type]
    assert [held.record for held in sending.held] == [1]


def test_a_send_that_raises_loses_nothing() -> None:
    """Whatever the client library throws: what was sent is sent, all others are still held, in their order."""
    sending: TopicSending[int] = TopicSending(_prepare(START, 4))
    for record, key in enumerate([MOVES, key_of_hash(3, 4), MOVES, key_of_hash(3, 4)]):
        sending.hold(key, record)
    sending.apply(_prepare(_commit(sending.timeline).opened(4, ChangePhase.PLAN).given_up(), 3))
    sent: list[int] = []

    def send(held: Held[int], _: Route | None) -> bool:
        if len(sent) == 1:
            raise RuntimeError("broken")
        sent.append(held.record)
        return True

    with pytest.raises(RuntimeError):
        sending.release(send)
    assert sent == [0]
    assert [held.record for held in sending.held] == [1, 2, 3]
    assert sending.must_wait(MOVES, sending.routing.of(MOVES))


@pytest.mark.kip("K253-26")
def test_ready_waits_for_what_was_sent_before_the_prepare() -> None:
    """Records of an origin that were on their way; those sent since belong to keys that stay and are not waited for."""
    sending: TopicSending[int] = TopicSending(START)
    before, elsewhere = sending.in_flight(0), sending.in_flight(1)
    before.unresolved, elsewhere.unresolved = 2, 1
    prepared = _prepare(START, 3)
    assert sending.ready_epoch(0) is None
    assert sending.apply(prepared)
    assert sending.ready_epoch(0) is None
    since = sending.in_flight(0)
    assert since is not before
    since.unresolved = 1
    before.unresolved = 1
    assert sending.ready_epoch(0) is None
    before.unresolved = 0
    assert not sending.answered
    assert sending.ready_epoch(0) == prepared.last_number
    assert sending.unresolved() == 2
    sending.said_ready(prepared.last_number)
    assert sending.answered
    assert sending.ready_epoch(0) is None


@pytest.mark.kip("K253-26")
def test_a_record_that_timed_out_is_waited_for_one_request_longer() -> None:
    """The client library gave it up, but it may still be on its way to the broker."""
    sending: TopicSending[int] = TopicSending(START)
    in_flight = sending.in_flight(0)
    in_flight.settles_at = 30.0
    sending.apply(_prepare(START, 3))
    assert not in_flight.resolved(29.9)
    assert not sending.settled(29.9)
    assert sending.ready_epoch(29.9) is None
    assert sending.settled(30.0)
    assert sending.ready_epoch(30.0) == 1


@pytest.mark.kip("K253-64")
def test_a_record_that_follows_an_earlier_one_is_waited_for_too() -> None:
    """A move tombstone goes out after its key's record was acknowledged: a READY that is not said yet waits for it."""
    sending: TopicSending[int] = TopicSending(START)
    sending.in_flight(0).unresolved = 1
    first = sending.in_flight(0)
    sending.apply(_prepare(START, 3))
    follower = sending.side_in_flight(1)
    follower.unresolved = 1
    first.unresolved = 0
    assert sending.ready_epoch(0) is None
    follower.unresolved = 0
    assert sending.ready_epoch(0) == 1


@pytest.mark.kip("K903-17")
def test_a_writer_that_starts_under_a_prepare_is_ready_at_once_and_holds_from_its_first_record() -> None:
    """It has sent nothing, and sends nothing of the moving keys."""
    sending: TopicSending[int] = TopicSending(_prepare(START, 3))
    assert sending.must_wait(MOVES, sending.routing.of(MOVES))
    assert sending.ready_epoch(0) == 1


def test_nothing_on_the_way_is_given_up_while_a_change_is_open_or_between_two_attempts() -> None:
    """An application that purges again and again would keep every attempt waiting for longer than it may hold records."""
    sending: TopicSending[int] = TopicSending(START)
    assert sending.purgeable(0.0)
    sending.apply(START.opened(3, ChangePhase.PLAN), 1.0)
    assert not sending.purgeable(1000.0)
    sending.apply(sending.timeline.prepared(), 1000.0)
    sending.apply(sending.timeline.given_up(), 1001.0)
    assert [sending.purgeable(1001.0 + after) for after in (0, 59.9, 60)] == [False, False, True]
    sending.apply(_prepare(sending.timeline, 3), 1002.0)
    assert not sending.purgeable(2000.0)
    sending.apply(_commit(sending.timeline), 2001.0)
    assert sending.purgeable(2001.0)


def test_after_an_abort_the_next_prepare_asks_for_ready_again() -> None:
    """What went out in between is waited for under the new number; the old number's READY is not said for it."""
    sending: TopicSending[int] = TopicSending(_prepare(START, 3))
    sent: list[tuple[bytes | None, int]] = []
    _offer(sending, MOVES, 1, sent)
    assert sending.ready_epoch(0) == 1
    sending.said_ready(1)
    aborted = sending.timeline.given_up()
    sending.apply(aborted)
    assert sending.ready_epoch(0) is None
    assert sending.release(_take_all(sent)) == 1  # type: ignore[arg-type]
    sending.in_flight(0).unresolved = 1
    sending.apply(_prepare(aborted, 3))
    assert sending.ready_epoch(0) is None
    sending._draining[0].unresolved = 0
    assert sending.ready_epoch(0) == 2


def test_a_prepare_that_follows_a_prepare_waits_for_both() -> None:
    """The log cleaner may have removed the end of the first attempt: its unresolved records still count."""
    first = _prepare(START, 3)
    sending: TopicSending[int] = TopicSending(START)
    in_flight = sending.in_flight(0)
    in_flight.unresolved = 1
    sending.apply(first)
    later = sending.in_flight(0)
    later.unresolved = 1
    sending.apply(_prepare(first.given_up(), 3))
    assert sending.ready_epoch(0) is None
    in_flight.unresolved = 0
    assert sending.ready_epoch(0) is None
    later.unresolved = 0
    assert sending.ready_epoch(0) == 2


def test_held_records_of_a_key_that_moves_again_stay_held() -> None:
    """Aborted and prepared again before they were released: they wait on, later ones of the key behind them."""
    sending: TopicSending[int] = TopicSending(_prepare(START, 3))
    sent: list[tuple[bytes | None, int]] = []
    _offer(sending, MOVES, 1, sent)
    sending.apply(_prepare(sending.timeline.given_up(), 3))
    assert sending.release(_take_all(sent)) == 0  # type: ignore[arg-type]
    _offer(sending, MOVES, 2, sent)
    assert [held.record for held in sending.held] == [1, 2]
    done = _commit(sending.timeline)
    sending.apply(_prepare(done, 6))  # hashes that are 2 mod 8 stay at 2, those that are 6 mod 8 move on
    stays = dumb_home(2, 6, 2) == 2
    assert stays
    sending.apply(_commit(sending.timeline))
    assert sending.release(_take_all(sent)) == 2  # type: ignore[arg-type]
    assert [record for _, record in sent] == [1, 2]


def test_a_key_that_no_longer_moves_is_released_under_the_next_prepare() -> None:
    """What the next attempt does not move flows, though an earlier attempt held it."""
    sending: TopicSending[int] = TopicSending(_prepare(START, 4))
    third = key_of_hash(3, 4)
    sent: list[tuple[bytes | None, int]] = []
    _offer(sending, third, 1, sent)
    _offer(sending, MOVES, 2, sent)
    sending.apply(_prepare(sending.timeline.given_up(), 3))
    assert sending.release(_take_all(sent)) == 1  # type: ignore[arg-type]
    assert sent == [(third, 1)]
    assert [held.record for held in sending.held] == [2]


def test_acknowledged_offsets_are_reported_for_the_origins_of_the_attempt_only() -> None:
    """A change with few origins has a small READY, whatever the topic's size."""
    sending: TopicSending[int] = TopicSending(START)
    sending.acknowledged.update({0: 10, 1: 20})
    assert sending.acknowledged_origins() == {}
    sending.apply(_prepare(START, 3))
    assert sending.acknowledged_origins() == {0: 10}


@pytest.mark.kip("C-07")
def test_dropping_held_records() -> None:
    """One key's behind a failure, or all of them at an abort of the transaction; the others keep their places."""
    sending: TopicSending[int] = TopicSending(_prepare(START, 4))
    third = key_of_hash(3, 4)
    for record, key in enumerate([MOVES, third, MOVES, None]):
        sending.hold(key, record)
    assert [held.record for held in sending.drop_key(MOVES)] == [0, 2]
    assert sending.drop_key(MOVES) == []
    assert [held.record for held in sending.held] == [1, 3]
    assert [held.record for held in sending.drop_held()] == [1, 3]
    assert not sending.held
    sending.apply(_commit(sending.timeline))
    assert not any(sending.must_wait(key, sending.routing.of(key)) for key in (MOVES, third))
    assert not sending.must_wait(None, None)


def test_a_timeline_that_goes_back_or_belongs_elsewhere_changes_nothing() -> None:
    """The error is raised before anything is taken over; the same timeline again is no news."""
    done = _commit(_prepare(START, 3))
    sending: TopicSending[int] = TopicSending(done)
    with pytest.raises(TimelineRegressionError):
        sending.apply(START)
    with pytest.raises(IdentityMismatchError):
        sending.apply(Timeline("t", "other", "cluster-id", 2, done.epochs))
    assert sending.timeline == done
    assert not sending.apply(done)
