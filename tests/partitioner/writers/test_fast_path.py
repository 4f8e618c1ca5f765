"""Records that go without the lock: whatever the threads' order, none of a moving key follows READY."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import murmur2
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.fast_path import InFlight
from keyorder.partitioner.writers.sending import TopicSending
from support.dumb import key_of_hash, timeline_of

START = timeline_of(2, [])
MOVES, STAYS = key_of_hash(2, 4), key_of_hash(0, 4)  # 2 -> 3 moves hashes that are 2 mod 4; both live in partition 0
PREPARED = START.opened(3, ChangePhase.PLAN).prepared()


def _opened(timeline: Timeline, *keys: bytes) -> TopicSending[int]:
    sending: TopicSending[int] = TopicSending(timeline)
    for key in keys:
        sending.open_fast_path(key, sending.routing.of(key))
    return sending


def _in_flight(sending: TopicSending[int], key: bytes) -> InFlight:
    assert sending.fast_path is not None
    permit = sending.fast_path.of[murmur2(key, sending.fast_path.period)]
    assert permit is not None
    return permit.in_flight


class Sender:
    """A thread of the application between two looks of the session: one step at a time, as produce() takes them."""

    def __init__(self, sending: TopicSending[int], in_flight: InFlight) -> None:
        assert sending.fast_path is not None
        self._fast_path, self._in_flight = sending.fast_path, in_flight
        self.on_its_way = self.handed_over = False
        self.steps = self._run()

    def _run(self) -> Iterator[None]:
        self._in_flight.started()
        yield
        if not self._fast_path.open:
            self._in_flight.ended()
            return
        yield
        self.on_its_way = self.handed_over = True
        yield
        self.on_its_way = False
        self._in_flight.ended()


def _merged(*queues: list[str]) -> Iterator[tuple[str, ...]]:
    if not any(queues):
        yield ()
    for n, queue in enumerate(queues):
        if queue:
            rest = [*queues[:n], queue[1:], *queues[n + 1 :]]
            yield from ((queue[0], *more) for more in _merged(*rest))


def test_none_is_on_its_way_nor_will_be_when_a_closed_in_flight_is_found_empty() -> None:
    """All 11 550 orders of two senders' steps and the session's: READY is said in some, and no record follows it."""
    said = 0
    for order in _merged(["0"] * 4, ["1"] * 4, ["close", "ends", "starts"]):
        sending = _opened(START, MOVES)
        in_flight = _in_flight(sending, MOVES)
        senders = [Sender(sending, in_flight) for _ in range(2)]
        look, between = order.index("ends"), order.index("starts")

        def run(steps: tuple[str, ...], sending: TopicSending[int] = sending, senders: list[Sender] = senders) -> None:
            for step in steps:
                if step == "close":
                    sending.apply(PREPARED)
                else:
                    next(senders[int(step)].steps, None)

        run(order[:look])
        _between_reads(in_flight, lambda steps=order[look + 1 : between], run=run: run(steps))
        if sending.ready_epoch(0.0) is None:
            continue
        said += 1
        assert [sender.on_its_way for sender in senders] == [False, False]
        before = [sender.handed_over for sender in senders]
        run(order[between + 1 :])
        assert [sender.handed_over for sender in senders] == before
    assert said > 0


def _between_reads(in_flight: InFlight, step: Callable[[], None]) -> None:
    """Let `step` come between the two reads of the next look, whichever comes first."""
    plain = {"started": in_flight.started, "ended": in_flight.ended}

    def read(name: str) -> Callable[[], int]:
        def reading() -> int:
            in_flight.started, in_flight.ended = plain["started"], plain["ended"]
            found = plain[name]()
            step()
            return found

        return reading

    in_flight.started, in_flight.ended = read("started"), read("ended")


def test_looks_do_not_count() -> None:
    """However often somebody looks, what is on its way is what was started and has not ended."""
    in_flight = InFlight(0)
    for started in range(3):
        assert [in_flight.on_the_way() for _ in range(3)] == [started] * 3
        in_flight.started()
    in_flight.unresolved += 2
    in_flight.ended()
    assert in_flight.on_the_way() == 4


@pytest.mark.parametrize("why", ["prepare", "hold"])
def test_fast_path_close_for_good_when_a_record_may_have_to_wait(why: str) -> None:
    """Who still has the fast path that was shut asks under the lock; none open again while something is held or prepared."""
    sending = _opened(START, MOVES, STAYS)
    before = sending.fast_path
    assert before is not None
    if why == "prepare":
        sending.apply(PREPARED)
    else:
        sending.hold(MOVES, 1)
    sending.open_fast_path(STAYS, sending.routing.of(STAYS))

    assert (before.open, sending.fast_path) == (False, None)

    if why == "hold":
        assert [held.record for held in sending.drop_held()] == [1]
        sending.open_fast_path(STAYS, sending.routing.of(STAYS))
        after = sending.fast_path
        assert after is not None
        assert (before.open, after.open, after is before) == (False, True, False)
