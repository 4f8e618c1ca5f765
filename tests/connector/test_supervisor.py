"""The supervisor's turns, with a cluster of paper: who is taken over when, what is told, what is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from keyorder.connector.topology.results import Change
from keyorder.connector.topology.scaling_policy import ScalingPolicies
from keyorder.connector.topology.supervisor import Event, Result, Supervisor, failure
from keyorder.partitioner.changes.scaling_policy import Load, Policy
from keyorder.partitioner.epochs import ChangePhase, Epoch, OpenChange
from keyorder.partitioner.errors import (
    BrokerUnreachableError,
    ControllerFencedError,
    CorruptRecordError,
    KeyorderError,
    OrderError,
    RecordVersionError,
    StockWritersError,
    WriterLateError,
)
from keyorder.partitioner.timeline import Timeline, crossings

STEADY = Timeline("t", "id", "cluster", 2, (Epoch(0, 2),))
PLANNED = STEADY.opened(4, ChangePhase.PLAN)
PREPARED = PLANNED.prepared()
GROWN = PREPARED.committed({0: 0, 1: 0}, {2: 0, 3: 0})
POLICIES = ScalingPolicies(
    Policy(max_records_per_s=100, min_records_per_s=10, hot_window_s=10, cooldown_after_growth_s=30)
)


@dataclass
class Paper:
    """A cluster that shows what the test puts into it, and writes down what is asked of it."""

    shown: dict[str, Timeline] = field(default_factory=dict)
    rate: float = 0.0
    asked: list[tuple[object, ...]] = field(default_factory=list)
    error: KeyorderError | None = None
    unreachable: KeyorderError | None = None
    unreadable: dict[str, OrderError] = field(default_factory=dict)

    def timelines(self) -> Mapping[str, Timeline]:
        if self.unreachable is not None:
            raise self.unreachable
        return self.shown

    def measure(self, timeline: Timeline, policy: Policy) -> Load | None:
        count = timeline.newest.count
        return Load({p: self.rate * float(timeline.layout.share(p)) for p in range(count)})

    def forget(self, topic: str) -> None:
        pass

    def resume(self, topic: str, change: OpenChange) -> Change:
        self.asked.append(("resume", topic, change.count))
        return self._done(topic, change.count)

    def resize(self, topic: str, current: int, count: int, policy: Policy) -> Change:
        self.asked.append(("resize", topic, count))
        return self._done(topic, count)

    def _done(self, topic: str, count: int) -> Change:
        if self.error is not None:
            raise self.error
        before = self.shown[topic]
        prepared = replace(before, change=None).opened(count, ChangePhase.PLAN).prepared()
        moves = crossings(before.initial, before.newest.count, count)
        self.shown[topic] = prepared.committed({q: 0 for q, _ in moves}, {p: 0 for _, p in moves})
        return Change(topic, before.newest.count, count, self.shown[topic].newest.number, changed=True, attempts=1)


class Later:
    """Changes and jobs that run when the test says so."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Put the work aside."""
        future: Future[Result] = Future()
        self.works.append((work, future))
        return future

    def run(self) -> None:
        """Do all of it."""
        works, self.works = self.works, []
        for work, future in works:
            try:
                future.set_result(work())
            except KeyorderError as error:
                future.set_exception(error)


def at_once(work: Callable[[], Result]) -> Future[Result]:
    """What is over when it begins."""
    later = Later()
    future = later.submit(work)
    later.run()
    return future


def names(events: Sequence[Event]) -> list[str]:
    """The events' kinds."""
    return [event.event for event in events]


def test_an_open_change_that_stands_still_is_finished() -> None:
    """It is told when seen, taken over after the patience, and what came of it is told in the next turn."""
    paper = Paper({"t": PREPARED})
    supervisor = Supervisor(paper, takeover_s=15, submit=at_once)

    assert names(supervisor.turn(0)) == ["change-open"]
    assert not supervisor.settled
    assert names(supervisor.turn(14.9)) == []
    (taken,) = supervisor.turn(15)
    assert taken.document() == {
        "event": "take-over", "topic": "t", "count": 4, "epoch": 1, "phase": "PREPARE", "stood_still_s": 15.0,
    }  # fmt: skip
    assert paper.asked == [("resume", "t", 4)]
    (changed,) = supervisor.turn(16)
    assert (changed.event, changed.facts["before"], changed.facts["after"]) == ("changed", 2, 4)
    assert supervisor.settled


def test_a_change_that_moves_is_left_alone() -> None:
    """Each new attempt or phase begins the patience anew; a change that ends is told."""
    paper = Paper({"t": PLANNED})
    supervisor = Supervisor(paper, takeover_s=15, submit=at_once)
    supervisor.turn(0)
    paper.shown["t"] = PREPARED
    assert names(supervisor.turn(14)) == ["change-open"]
    paper.shown["t"] = PREPARED.given_up().opened(4, ChangePhase.PLAN, 2).prepared()
    assert names(supervisor.turn(28)) == ["change-open"]
    paper.shown["t"] = GROWN
    assert names(supervisor.turn(42)) == ["change-closed"]
    assert paper.asked == []


def test_a_plan_may_take_longer() -> None:
    """A roll call may be waiting for a dead writer's lease, and holds nothing."""
    paper = Paper({"t": PLANNED})
    supervisor = Supervisor(paper, takeover_s=15, submit=at_once)
    supervisor.turn(0)

    assert names(supervisor.turn(59)) == []
    assert names(supervisor.turn(60)) == ["take-over"]


def test_a_late_attempt_may_take_longer() -> None:
    """Its deadline is longer than the usual patience, so it may be alive."""
    third = PREPARED.given_up().opened(4, ChangePhase.PLAN, 3).prepared()
    supervisor = Supervisor(Paper({"t": third}), takeover_s=15, submit=at_once)
    supervisor.turn(0)

    assert names(supervisor.turn(29)) == []
    assert names(supervisor.turn(30)) == ["take-over"]


@pytest.mark.parametrize(
    ("error", "event"), [(ControllerFencedError("t"), "fenced"), (WriterLateError("t", ("w",), 9.0), "failed")]
)
def test_a_setback_makes_patient(error: KeyorderError, event: str) -> None:
    """Fenced or failed, it goes on watching, and waits twice as long before it tries again."""
    paper = Paper({"t": PREPARED}, error=error)
    supervisor = Supervisor(paper, takeover_s=10, submit=at_once)
    supervisor.turn(0)
    supervisor.turn(10)
    assert names(supervisor.turn(11)) == [event, "change-open"]
    assert supervisor.settled
    assert names(supervisor.turn(30)) == []
    paper.error = None
    assert names(supervisor.turn(31)) == ["take-over"]
    assert names(supervisor.turn(32)) == ["changed"]


def test_other_topics_go_on_while_one_is_changed() -> None:
    """A change under way is not begun twice, and holds up nobody else."""
    paper, later = Paper({"t": PREPARED, "u": replace(PREPARED, topic="u")}), Later()
    supervisor = Supervisor(paper, takeover_s=10, submit=later.submit)
    supervisor.turn(0)
    assert names(supervisor.turn(10)) == ["take-over", "take-over"]
    assert names(supervisor.turn(30)) == []
    assert supervisor.running == ("t", "u")
    later.run()
    assert names(supervisor.turn(31)) == ["changed", "changed"]


def test_only_named_topics_are_looked_after() -> None:
    """With names given, others are not touched."""
    paper = Paper({"t": PREPARED, "u": replace(PREPARED, topic="u")})
    supervisor = Supervisor(paper, ["u"], takeover_s=0, submit=at_once)
    supervisor.turn(0)
    supervisor.turn(1)

    assert paper.asked == [("resume", "u", 4)]


def test_a_cluster_that_is_away_is_waited_for() -> None:
    """What may pass is told and tried again; what may not ends the process."""
    paper = Paper({"t": STEADY}, unreachable=BrokerUnreachableError("b", "x"))
    supervisor = Supervisor(paper)

    assert names(supervisor.turn(0)) == ["unreachable"]
    paper.unreachable = RecordVersionError("timeline", (2, 0), 1)
    with pytest.raises(RecordVersionError):
        supervisor.turn(1)


def test_a_dry_run_tells_a_decision_once_and_again_when_it_is_due() -> None:
    """Nothing is changed, and nothing is repeated."""
    paper = Paper({"t": STEADY}, rate=300)
    supervisor = Supervisor(paper, policies=POLICIES, submit=at_once)

    (early,) = supervisor.turn(0)
    assert early.document() == {
        "event": "decision", "topic": "t", "current": 2, "count": 4,
        "reason": "partition 0 takes 150 records/s, more than 100",
        "due": False, "due_in_s": 10.0, "hot_key_partitions": [], "applied": False,
    }  # fmt: skip
    assert supervisor.turn(5) == []
    (due,) = supervisor.turn(10)
    assert (due.facts["due"], due.facts["applied"]) == (True, False)
    assert supervisor.turn(60) == []
    assert paper.asked == []


def test_a_decision_is_applied_once_it_is_due() -> None:
    """It changes the topic, then keeps the cool-down, then decides on the new layout."""
    paper = Paper({"t": STEADY}, rate=300)
    supervisor = Supervisor(paper, policies=POLICIES, apply=True, submit=at_once)
    supervisor.turn(0)
    (due,) = supervisor.turn(10)
    assert due.facts["applied"] is True
    assert paper.asked == [("resize", "t", 4)]
    assert names(supervisor.turn(11)) == ["changed", "decision"]
    paper.rate = 600
    (next_one,) = supervisor.turn(12)
    assert (next_one.facts["count"], next_one.facts["due_in_s"]) == (8, 29.0)


def test_a_growth_that_fails_is_not_tried_at_every_turn() -> None:
    """After a failure there is a pause."""
    paper = Paper({"t": STEADY}, rate=300, error=WriterLateError("t", ("w",), 9.0))
    supervisor = Supervisor(paper, policies=POLICIES, apply=True, takeover_s=10, submit=at_once)
    supervisor.turn(0)
    for now in range(10, 30):
        supervisor.turn(now)
    assert len(paper.asked) == 1
    supervisor.turn(31)
    assert len(paper.asked) == 2


def test_a_topic_that_stock_producers_write_is_refused_once_and_watched_on() -> None:
    """Told once, tried again every minute, and scaled when they are gone; then all is told anew."""
    paper = Paper({"t": STEADY}, rate=300, error=StockWritersError("t", "records come in"))
    supervisor = Supervisor(paper, policies=POLICIES, apply=True, submit=at_once)
    told = [each for now in range(190) for each in supervisor.turn(now)]
    assert names(told) == ["decision", "decision", "refused"]
    assert (told[2].topic, told[2].facts["error"]) == ("t", failure(paper.error)["error"])
    assert (len(paper.asked), supervisor.refused) == (3, {"t"})
    assert supervisor.settled

    paper.error = None
    again = [each for now in range(190, 260) for each in supervisor.turn(now)]
    assert names(again)[0] == "changed"
    assert supervisor.refused == frozenset()


def test_a_refusal_is_over_when_the_policy_wants_no_change_any_more() -> None:
    """The next one is news again, be the load gone for a while or the topic changed by somebody else."""
    paper = Paper({"t": STEADY}, rate=300, error=StockWritersError("t", "records come in"))
    supervisor = Supervisor(paper, policies=POLICIES, apply=True, submit=at_once)
    for now in range(20):
        supervisor.turn(now)
    paper.rate = 30
    for now in range(20, 80):
        supervisor.turn(now)
    assert supervisor.refused == frozenset()
    paper.rate = 300
    again = [each for now in range(80, 100) for each in supervisor.turn(now)]
    assert names(again) == ["decision", "decision", "refused"]
    paper.shown["t"] = GROWN
    supervisor.turn(100)
    assert supervisor.refused == frozenset()


def test_a_refusal_delays_no_take_over() -> None:
    """It is no failure of this controller: what others left open is finished as soon as ever."""
    paper = Paper({"t": STEADY}, rate=300, error=StockWritersError("t", "records come in"))
    supervisor = Supervisor(paper, policies=POLICIES, apply=True, takeover_s=15, submit=at_once)
    for now in range(20):
        supervisor.turn(now)
    paper.shown["t"], paper.error = PREPARED, None
    assert names(supervisor.turn(20)) == ["change-open"]
    assert names(supervisor.turn(35)) == ["take-over"]


def test_a_topic_with_an_open_change_is_not_scaled() -> None:
    """One change at a time."""
    paper = Paper({"t": PREPARED}, rate=300)
    supervisor = Supervisor(paper, policies=POLICIES, apply=True, takeover_s=1_000, submit=at_once)

    assert [names(supervisor.turn(now)) for now in range(3)] == [["change-open"], [], []]


def test_a_topic_that_cannot_be_read_is_told_once_and_the_others_go_on() -> None:
    """Told again when it fails in another way, or after it was well in between; not at all where another is looked after."""
    paper = Paper({"t": PLANNED}, unreadable={"bad": CorruptRecordError("no record at all", "_keyorder[0]@7")})
    supervisor, elsewhere = Supervisor(paper, takeover_s=1), Supervisor(paper, topics=["t"])

    first = supervisor.turn(0)

    assert [(e.event, e.topic) for e in first] == [("unreadable", "bad"), ("change-open", "t")]
    assert "_keyorder[0]@7" in str(first[0].facts)
    assert names(elsewhere.turn(0)) == ["change-open"]
    assert names(supervisor.turn(10)) == ["take-over"]
    paper.unreadable["bad"] = RecordVersionError("timeline", (2, 0), 1)
    assert "unreadable" in names(supervisor.turn(11))
    paper.unreadable.clear()
    assert "unreadable" not in names(supervisor.turn(12))
    paper.unreadable["bad"] = RecordVersionError("timeline", (2, 0), 1)
    assert "unreadable" in names(supervisor.turn(13))


class Chore:
    """A job that is due at even moments."""

    name = "chore"

    def __init__(self) -> None:
        self.results: list[Mapping[str, object] | KeyorderError | None] = []

    def due(self, now: float) -> bool:
        return now % 2 == 0

    def run(self) -> Mapping[str, object] | None:
        result = self.results.pop(0)
        if isinstance(result, KeyorderError):
            raise result
        return result


def test_jobs_run_when_they_are_due() -> None:
    """What they return is told, None is not; a failure is told, and the job stays."""
    chore = Chore()
    chore.results = [{"removed": 3}, None, BrokerUnreachableError("b", "x"), {"removed": 0}]
    supervisor = Supervisor(Paper(), jobs=[chore], submit=at_once)

    assert [event.document() for event in supervisor.turn(0)] == [{"event": "job", "job": "chore", "removed": 3}]
    assert supervisor.turn(1) == []
    assert supervisor.turn(2) == []
    (failed,) = supervisor.turn(4)
    assert (failed.event, failed.facts["job"]) == ("failed", "chore")
    assert names(supervisor.turn(6)) == ["job"]


def test_a_long_job_stops_no_turn() -> None:
    """While it runs an open change is taken over, it is not begun a second time, and it sees the last turn's timelines."""
    chore, later, paper = Chore(), Later(), Paper({"t": PREPARED, "u": STEADY})
    chore.results = [{"removed": 1}, {"removed": 2}]
    supervisor = Supervisor(paper, takeover_s=4, jobs=[chore], submit=later.submit)

    assert names(supervisor.turn(0)) == ["change-open"]
    assert set(supervisor.timelines) == {"t", "u"}
    assert names(supervisor.turn(4)) == ["take-over"]
    assert (len(later.works), len(chore.results), supervisor.settled) == (2, 2, False)
    later.run()
    assert sorted(names(supervisor.turn(5))) == ["changed", "job"]
    assert supervisor.settled
    supervisor.turn(6)
    assert (len(later.works), supervisor.at_work) == (1, True)


def test_a_topic_that_a_job_works_at_is_not_changed_meanwhile() -> None:
    """Neither taken over nor scaled: a second controller would fence the first. Nor is one that is changed claimed by a job."""
    paper, later = Paper({"t": PREPARED}), Later()
    supervisor = Supervisor(paper, takeover_s=10, submit=later.submit)
    supervisor.turn(0)
    with supervisor.claims.claimed("t") as free:
        assert free
        assert supervisor.turn(20) == []
    assert names(supervisor.turn(21)) == ["take-over"]
    with supervisor.claims.claimed("t") as free:
        assert not free
    later.run()
    supervisor.turn(22)
    assert "t" not in supervisor.claims

    busy, paper = Later(), Paper({"t": STEADY}, rate=300)
    scaling = Supervisor(paper, policies=POLICIES, apply=True, submit=busy.submit)
    scaling.turn(0)
    scaling.claims.take("t")
    scaling.turn(10)
    assert busy.works == []
    scaling.claims.give_back("t")
    scaling.turn(11)
    assert len(busy.works) == 1
