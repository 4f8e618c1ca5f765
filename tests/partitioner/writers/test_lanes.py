"""Records that go without the lock: whatever the threads' order, none of a moving key follows READY."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import murmur2
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.lanes import Cohort
from keyorder.partitioner.writers.sending import TopicSending
from support.dumb import key_of_hash, timeline_of

START = timeline_of(2, [])
MOVES, STAYS = key_of_hash(2, 4), key_of_hash(0, 4)  # 2 -> 3 moves hashes that are 2 mod 4; both live in partition 0
PREPARED = START.opened(3, ChangePhase.PLAN).prepared()


def _opened(timeline: Timeline, *keys: bytes) -> TopicSending[int]:
    sending: TopicSending[int] = TopicSending(timeline)
    for key in keys:
        sending.open_lane(key, sending.routing.of(key))
    return sending


def _cohort(sending: TopicSending[int], key: bytes) -> Cohort:
    assert sending.lanes is not None
    lane = sending.lanes.of[murmur2(key, sending.lanes.period)]
    assert lane is not None
    return lane.cohort


class Sender:
    """A thread of the application between two looks of the session: one step at a time, as produce() takes them."""

    def __init__(self, sending: TopicSending[int], cohort: Cohort) -> None:
        assert sending.lanes is not None
        self._lanes, self._cohort = sending.lanes, cohort
        self.on_its_way = self.handed_over = False
        self.steps = self._run()

    def _run(self) -> Iterator[None]:
        self._cohort.started()
        yield
        if not self._lanes.open:
            self._cohort.ended()
            return
        yield
        self.on_its_way = self.handed_over = True
        yield
        self.on_its_way = False
        self._cohort.ended()


def _merged(*queues: list[str]) -> Iterator[tuple[str, ...]]:
    if not any(queues):
        yield ()
    for n, queue in enumerate(queues):
        if queue:
            rest = [*queues[:n], queue[1:], *queues[n + 1 :]]
            yield from ((queue[0], *more) for more in _merged(*rest))


def test_none_is_on_its_way_nor_will_be_when_a_closed_cohort_is_found_empty() -> None:
    """All 11 550 orders of two senders' steps and the session's: READY is said in some, and no record follows it."""
    said = 0
    for order in _merged(["0"] * 4, ["1"] * 4, ["close", "ends", "starts"]):
        sending = _opened(START, MOVES)
        cohort = _cohort(sending, MOVES)
        senders = [Sender(sending, cohort) for _ in range(2)]
        look, between = order.index("ends"), order.index("starts")

        def run(steps: tuple[str, ...], sending: TopicSending[int] = sending, senders: list[Sender] = senders) -> None:
            for step in steps:
                if step == "close":
                    sending.apply(PREPARED)
                else:
                    next(senders[int(step)].steps, None)

        run(order[:look])
        _between_reads(cohort, lambda steps=order[look + 1 : between], run=run: run(steps))
        if sending.ready_epoch(0.0) is None:
            continue
        said += 1
        assert [sender.on_its_way for sender in senders] == [False, False]
        before = [sender.handed_over for sender in senders]
        run(order[between + 1 :])
        assert [sender.handed_over for sender in senders] == before
    assert said > 0


def _between_reads(cohort: Cohort, step: Callable[[], None]) -> None:
    """Let `step` come between the two reads of the next look, whichever comes first."""
    plain = {"started": cohort.started, "ended": cohort.ended}

    def read(name: str) -> Callable[[], int]:
        def reading() -> int:
            cohort.started, cohort.ended = plain["started"], plain["ended"]
            found = plain[name]()
            step()
            return found

        return reading

    cohort.started, cohort.ended = read("started"), read("ended")


def test_looks_do_not_count() -> None:
    """However often somebody looks, what is on its way is what was started and has not ended."""
    cohort = Cohort(0)
    for started in range(3):
        assert [cohort.on_the_way() for _ in range(3)] == [started] * 3
        cohort.started()
    cohort.unresolved += 2
    cohort.ended()
    assert cohort.on_the_way() == 4


@pytest.mark.parametrize("why", ["prepare", "hold"])
def test_lanes_close_for_good_when_a_record_may_have_to_wait(why: str) -> None:
    """Who still has the closed lanes asks under the lock; none open again while something is held or prepared."""
    sending = _opened(START, MOVES, STAYS)
    before = sending.lanes
    assert before is not None
    if why == "prepare":
        sending.apply(PREPARED)
    else:
        sending.hold(MOVES, 1)
    sending.open_lane(STAYS, sending.routing.of(STAYS))

    assert (before.open, sending.lanes) == (False, None)

    if why == "hold":
        assert [held.record for held in sending.drop_held()] == [1]
        sending.open_lane(STAYS, sending.routing.of(STAYS))
        after = sending.lanes
        assert after is not None
        assert (before.open, after.open, after is before) == (False, True, False)
