"""The writer as a step machine: when it sends, when it says READY, when it leaves, and what stops it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import pytest
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.errors import (
    CorruptRecordError,
    IneligibleWriterError,
    KafkaOperationError,
    OrderError,
    ReleasedTopicError,
    UnmanagedTopicError,
)
from keyorder.partitioner.records.control_records import Lease, LeaseState
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers import events
from keyorder.partitioner.writers.lease import LeaseTerms, Standing
from keyorder.partitioner.writers.sending import TopicSending
from keyorder.partitioner.writers.writer import Writer
from support.dumb import timeline_of

TERMS = LeaseTerms(lease=45, renew_interval=10, delivery_timeout=20, margin=2)
BASE = timeline_of(1, [])
TOPIC = BASE.topic


class Read(NamedTuple):
    """A timeline's record that can be decoded."""

    record: Any


class Unreadable:
    """One that cannot."""

    @property
    def record(self) -> Any:
        raise CorruptRecordError("no JSON", "_keyorder[0]@7")


class Rig:
    """A writer, and a log of leases that it reads back when it is told to. now: seconds."""

    def __init__(self, transactional_id: str | None = None) -> None:
        nonces = count(1)
        self.writer: Writer[str] = Writer("w", TERMS, lambda: f"n{next(nonces)}", transactional_id)
        self.now = 100.0
        self.log: list[Lease] = []
        self.unread: list[tuple[Lease, int]] = []

    def step(self, event: events.Event) -> list[events.Action]:
        """One step. What it writes of leases lies in the log."""
        actions = self.writer.step(event, self.now)
        for action in actions:
            if isinstance(action, events.WriteLease):
                self.unread.append((action.lease, len(self.log)))
                self.log.append(action.lease)
        return actions

    def tick(self, seconds: float = 0.0) -> list[events.Action]:
        self.now += seconds
        return self.step(events.Tick())

    def read_back(self) -> list[events.Action]:
        """Its own records arrive."""
        unread, self.unread = self.unread, []
        return [action for lease, offset in unread for action in self.step(events.LeaseRead(lease, offset))]

    def see(self, timeline: Timeline | None, topic: str = TOPIC) -> list[events.Action]:
        return self.step(events.TimelineRead(topic, Read(timeline)))

    def look(self) -> list[events.Action]:
        """A tick asks for a look; everything is read."""
        looks = [action for action in self.tick() if isinstance(action, events.Look)]
        return [action for look in looks for action in self.step(events.Looked(look.number))]

    @property
    def sending(self) -> TopicSending[str]:
        return self.writer.topics[TOPIC]

    def sends(self, key: bytes = b"k") -> bool:
        return self.writer.sends(self.sending, key, self.sending.routing.of(key), self.now)


def joined(timeline: Timeline | None = BASE, transactional_id: str | None = None) -> Rig:
    """A writer whose lease names the topic and was read back; nothing was looked at under it. timeline: None, not managed."""
    rig = Rig(transactional_id)
    rig.step(events.Wanted(TOPIC))
    if timeline is not None:
        rig.see(timeline)
    rig.tick()
    rig.read_back()
    return rig


def live(timeline: Timeline = BASE, transactional_id: str | None = None) -> Rig:
    """A writer that may write the topic."""
    rig = joined(timeline, transactional_id)
    assert events.Admitted(TOPIC) in rig.look()
    return rig


def preparing() -> Rig:
    """It reads a PREPARE of the topic, whose new partition is known."""
    rig = live()
    plan = BASE.opened(2, ChangePhase.PLAN)
    rig.see(plan)
    rig.step(events.PartitionsFound(TOPIC, 2))
    rig.tick()
    rig.read_back()
    rig.see(plan.prepared())
    return rig


def ready(actions: list[events.Action]) -> list[events.WriteReady]:
    return [action for action in actions if isinstance(action, events.WriteReady)]


def test_it_sends_once_its_join_was_read_back_and_the_logs_were_read_to_their_ends() -> None:
    """Each of the steps before is not enough."""
    rig = Rig()
    rig.step(events.Wanted(TOPIC))
    rig.see(BASE)
    written = rig.tick()
    assert [type(action) for action in written] == [events.WriteLease]
    assert rig.log[0].state is LeaseState.JOIN
    assert rig.tick() == []  # nothing more while it is on its way
    rig.read_back()
    (look,) = rig.tick()
    assert isinstance(look, events.Look)
    assert look.topics == {TOPIC}
    assert rig.writer.send_until < rig.now
    assert rig.step(events.Looked(look.number)) == [events.Admitted(TOPIC)]
    assert rig.sends()
    assert rig.writer.send_until == 100 + TERMS.lease - TERMS.delivery_timeout - TERMS.margin


def test_a_look_under_an_earlier_join_counts_for_nothing() -> None:
    """It was asked for before a lapse: a change may have been committed without this writer since."""
    rig = joined()
    (before,) = rig.tick()
    rig.tick(TERMS.lease)  # lapses, and joins again
    rig.read_back()
    assert isinstance(before, events.Look)
    assert rig.step(events.Looked(before.number)) == []
    assert rig.writer.topics == {}
    assert events.Admitted(TOPIC) in rig.look()


def test_a_lapse_is_told_once_and_nothing_is_sent_until_it_has_joined_again() -> None:
    """It joins again only with nothing on its way."""
    rig = live()
    in_flight = rig.sending.in_flight(0)
    in_flight.unresolved += 1
    assert rig.tick(TERMS.lease) == [events.LeaseLapsed()]
    assert not rig.sends()
    assert rig.tick(1) == []
    assert rig.writer.settling
    in_flight.unresolved -= 1
    (again,) = rig.tick(1)
    assert isinstance(again, events.WriteLease)
    assert again.lease.state is LeaseState.JOIN
    rig.read_back()
    rig.look()
    assert rig.sends()


def test_an_expelled_writer_stops_at_once() -> None:
    """Before its next turn."""
    rig = live()
    gone = replace(rig.log[0], state=LeaseState.EXPELLED)
    assert rig.step(events.LeaseRead(gone, 9)) == [events.LeaseLapsed()]
    assert not rig.sends()


def test_a_newer_process_of_its_id_stops_it() -> None:
    """It never sends again."""
    rig = live()
    (failed,) = rig.step(events.LeaseRead(replace(rig.log[0], nonce="other"), 9))
    assert isinstance(failed, events.Fail)
    assert isinstance(failed.error, IneligibleWriterError)
    other = replace(rig.log[0], writer="x", nonce="other")
    assert live().step(events.LeaseRead(other, 9)) == []  # of somebody else


def test_what_stops_it_is_told_to_all_who_wait() -> None:
    """And to whoever comes later."""
    rig = Rig()
    rig.step(events.Wanted(TOPIC))
    error = KafkaOperationError("use", "it broke")
    assert rig.step(events.Failed(error)) == [events.Refused(TOPIC, error)]
    assert rig.step(events.Failed(error)) == []
    with pytest.raises(KafkaOperationError):
        rig.writer.check()


def test_a_topic_that_is_not_managed_is_refused_and_may_be_asked_for_again() -> None:
    """Somebody has adopted it meanwhile."""
    rig = joined(None)
    (refused,) = rig.look()
    assert isinstance(refused, events.Refused)
    assert isinstance(refused.error, UnmanagedTopicError)
    assert rig.writer.wanted == []
    rig.see(BASE)
    rig.step(events.Wanted(TOPIC))
    assert events.Admitted(TOPIC) in rig.look()


def test_a_topic_that_is_asked_for_again_at_once_is_looked_at_again() -> None:
    """The lease names it still; but what was read before it was refused says nothing of who has adopted it since."""
    rig = joined(None)
    (refused,) = rig.look()
    assert isinstance(refused, events.Refused)
    rig.step(events.Wanted(TOPIC))
    (look,) = rig.tick()
    assert isinstance(look, events.Look)
    rig.see(BASE)
    assert events.Admitted(TOPIC) in rig.step(events.Looked(look.number))


def test_a_topic_that_the_lease_did_not_name_for_a_while_is_looked_at_again() -> None:
    """A change that has read the lease without it waits for nobody: what was looked at before says nothing of that."""
    rig = joined(None)
    rig.look()  # refused
    rig.tick()
    assert [lease.topics for lease in rig.log] == [(TOPIC,), ()]
    rig.step(events.Wanted(TOPIC))
    rig.see(BASE)
    assert not [action for action in rig.tick() if isinstance(action, events.Admitted | events.Look)]
    assert rig.log[-1].topics == (TOPIC,)
    rig.read_back()
    assert events.Admitted(TOPIC) in rig.look()


def test_a_released_topic_is_refused() -> None:
    """The typed error says so."""
    rig = joined(BASE.given_back("2026-01-01 by x"))
    (refused,) = rig.look()
    assert isinstance(refused, events.Refused)
    assert isinstance(refused.error, ReleasedTopicError)


def test_a_timeline_that_cannot_be_read_stops_its_topic_alone() -> None:
    """The other topic goes on; the lease keeps naming the first one only while something of it is on its way."""
    rig = live()
    rig.step(events.Wanted("u"))
    rig.see(replace(BASE, topic="u"), "u")
    rig.tick()
    rig.read_back()
    rig.look()
    in_flight = rig.sending.in_flight(0)
    in_flight.unresolved += 1
    (failed,) = rig.step(events.TimelineRead(TOPIC, Unreadable()))
    assert isinstance(failed, events.FailTopic)
    assert failed.topic == TOPIC
    with pytest.raises(OrderError):
        rig.writer.check(TOPIC)
    rig.writer.check("u")
    rig.tick(TERMS.renew_interval)
    assert rig.log[-1].topics == (TOPIC, "u")
    in_flight.unresolved -= 1
    rig.tick(TERMS.renew_interval)
    assert rig.log[-1].topics == ("u",)


def test_a_timeline_of_somebody_elses_topic_is_not_looked_into() -> None:
    """Until the topic is wanted; then the newest that was read counts."""
    rig = Rig()
    rig.step(events.TimelineRead("u", Unreadable()))
    rig.step(events.Wanted(TOPIC))
    rig.see(BASE)
    assert rig.writer.failures == {}
    rig.step(events.Wanted("u"))
    rig.tick()
    assert set(rig.writer.failures) == {"u"}


def test_a_timeline_read_before_its_topic_was_wanted_never_replaces_a_newer_one() -> None:
    """Both come with one poll, and between them another thread asks for the topic: the newer one stands."""
    rig = Rig()
    grown = BASE.opened(2, ChangePhase.PLAN).prepared().committed({0: 3}, {1: 0})
    rig.see(BASE)
    rig.step(events.Wanted(TOPIC))
    assert rig.see(grown) == [events.EpochSeen(grown, BASE)]
    rig.tick()
    rig.read_back()
    rig.look()
    assert rig.sending.timeline == grown


def test_a_plan_is_answered_by_a_renewal_once() -> None:
    """So a change knows at once who lives."""
    rig = live()
    rig.see(BASE.opened(2, ChangePhase.PLAN))
    written = [action for action in rig.tick() if isinstance(action, events.WriteLease)]
    assert [action.lease.state for action in written] == [LeaseState.LIVE]
    assert not [action for action in rig.tick() if isinstance(action, events.WriteLease)]


def test_the_logs_are_checked_with_each_renewal() -> None:
    """A control topic that was made again has no record that would tell.

    Another client of the process may have asked for their ends a moment ago: that answer serves, but none that is so old
    that the log might go unchecked from one renewal to the next.
    """
    rig = live()
    assert rig.tick(1) == []
    (check,) = [action for action in rig.tick(TERMS.renew_interval) if isinstance(action, events.CheckLogs)]
    assert check == events.CheckLogs(frozenset({TOPIC}), rig.now - TERMS.renew_interval / 2)


def test_a_look_that_failed_is_begun_again() -> None:
    """The leader was away; the lease runs on."""
    rig = joined()
    (look,) = rig.tick()
    assert rig.tick() == []
    rig.step(events.Unreachable())
    assert [type(action) for action in rig.tick()] == [type(look)]


def test_new_partitions_are_asked_for_from_the_plan_on_and_before_ready() -> None:
    """A record that is released to a partition that the client library does not know would wait for its next refresh."""
    rig = live()
    plan = BASE.opened(2, ChangePhase.PLAN)
    rig.see(plan)
    assert events.FindPartitions(TOPIC) in rig.tick()
    rig.see(plan.prepared())
    assert events.FindPartitions(TOPIC) in rig.tick()
    rig.step(events.PartitionsFound(TOPIC, 1))
    assert events.FindPartitions(TOPIC) in rig.tick()
    rig.step(events.PartitionsFound(TOPIC, 2))
    assert len(ready(rig.tick())) == 1


def test_ready_is_written_before_a_broker_is_asked() -> None:
    """The leader of a control topic may be away for as long as a question takes; the change would wait for it."""
    rig = preparing()
    actions = rig.tick(TERMS.renew_interval)  # a renewal is due too, and with it a look at the logs
    assert [type(action) for action in actions] == [events.WriteLease, events.WriteReady, events.CheckLogs]


def test_ready_waits_for_what_is_on_its_way_from_before() -> None:
    """Whatever was sent to the origin before PREPARE was read."""
    rig = live()
    in_flight = rig.sending.in_flight(0)
    in_flight.unresolved += 1
    plan = BASE.opened(2, ChangePhase.PLAN)
    rig.see(plan)
    rig.step(events.PartitionsFound(TOPIC, 2))
    rig.see(plan.prepared())
    assert ready(rig.tick()) == []
    assert rig.writer.settling
    in_flight.unresolved -= 1
    assert len(ready(rig.tick())) == 1
    assert not rig.writer.settling


@pytest.mark.kip("K253-01")
def test_a_ready_that_was_lost_is_said_again() -> None:
    """The leader of the writer's log was away for longer than a record lives: the change would wait for it in vain."""
    rig = preparing()
    (first,) = ready(rig.tick())
    assert ready(rig.tick()) == []  # nothing more while it is on its way
    rig.step(events.NotWritten(first))
    assert ready(rig.tick()) == [first]
    assert ready(rig.tick()) == []


def test_a_ready_of_an_earlier_join_is_no_answer() -> None:
    """The lease ran out behind it: the writer joins anew, and says READY under that join too."""
    rig = preparing()
    (first,) = ready(rig.tick())
    rig.tick(TERMS.lease)
    rig.read_back()
    (second,) = ready(rig.tick())
    assert (first.ready.nonce, second.ready.nonce) == ("n1", "n2")
    assert first.ready.epoch == second.ready.epoch


def test_no_ready_without_a_lease() -> None:
    """It would count for a join that is over."""
    rig = preparing()
    rig.step(events.LeaseRead(replace(rig.log[0], state=LeaseState.EXPELLED), 9))
    assert ready(rig.tick()) == []  # it joins first
    assert rig.writer.lease.standing is Standing.JOINING


def test_a_lost_ready_of_an_earlier_attempt_is_not_said_again() -> None:
    """What is open now was answered by itself."""
    rig = preparing()
    (first,) = ready(rig.tick())
    earlier = events.WriteReady(replace(first.ready, epoch=first.ready.epoch - 1))
    rig.step(events.NotWritten(earlier))
    assert ready(rig.tick()) == []


def test_a_lost_join_is_begun_anew() -> None:
    """Nobody has read it, so nobody waits for it."""
    rig = Rig()
    rig.step(events.Wanted(TOPIC))
    (lost,) = rig.tick()
    assert isinstance(lost, events.WriteLease)
    rig.step(events.NotWritten(lost))
    (again,) = rig.tick()
    assert isinstance(again, events.WriteLease)
    assert again.lease.nonce != lost.lease.nonce


def test_a_writer_with_nothing_on_its_way_leaves() -> None:
    """LEFT is written: the next change need not wait for it."""
    rig = live()
    (left,) = rig.step(events.Leaving())
    assert isinstance(left, events.WriteLease)
    assert left.lease.state is LeaseState.LEFT
    assert not rig.sends()


def test_a_writer_whose_driver_has_ended_sends_nothing() -> None:
    """Nobody renews its lease, and nobody would hear that it has lapsed."""
    rig = live()
    assert rig.step(events.Ended()) == []
    assert not rig.sends()
    assert rig.writer.failure is None


@pytest.mark.parametrize("way", ["on its way", "timed out"])
@pytest.mark.kip("K253-01")
def test_a_writer_with_records_that_may_still_arrive_does_not_say_that_it_left(way: str) -> None:
    """close() with a time-out, or after a delivery time-out: a change that counted it as gone would get a stray."""
    rig = live()
    in_flight = rig.sending.in_flight(0)
    if way == "on its way":
        in_flight.unresolved += 1
    else:
        in_flight.settles_at = rig.now + 30
    assert rig.step(events.Leaving()) == []
    assert not rig.sends()


def test_a_transactional_writer_joins_as_soon_as_it_has_its_id() -> None:
    """By where the log ended before, a change knows whom that has fenced."""
    rig = Rig("tx")
    assert rig.writer.idle
    rig.step(events.TookId(5))
    assert not rig.writer.idle
    rig.tick()
    assert rig.log[0].took_id_after == 5
    assert rig.log[0].topics == ()


def test_a_lease_says_when_a_record_of_its_join_was_acknowledged() -> None:
    """What was acknowledged before proves nothing for this join."""
    rig = live(transactional_id="tx")
    rig.sending.acknowledged[0] = 3
    rig.tick(TERMS.renew_interval)
    assert rig.log[-1].proven
    rig.tick(TERMS.lease)
    rig.read_back()
    rig.tick(TERMS.renew_interval)
    assert rig.log[-1].nonce == "n2"
    assert not rig.log[-1].proven


def test_a_new_epoch_is_told() -> None:
    """For the log of whoever runs it."""
    rig = live()
    grown = BASE.opened(2, ChangePhase.PLAN).prepared().committed({0: 3}, {1: 0})
    assert rig.see(grown) == [events.EpochSeen(grown, BASE)]
