"""A writer's READY: it is said once, and again when it could not be delivered."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from keyorder.connector import clock
from keyorder.connector.config import producer_settings
from keyorder.connector.producing.writer_session import WriterSession
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.records.control_records import Lease, LeaseState, Ready, decode_record
from keyorder.partitioner.writers.lease import Standing
from keyorder.partitioner.writers.sending import TopicSending
from support.dumb import timeline_of


class Control:
    """In the place of the client for control records: a test says what became of them."""

    def __init__(self) -> None:
        self.written: list[tuple[Any, Any]] = []

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Any) -> None:
        self.written.append((decode_record(key, value), on_delivery))

    def poll(self, timeout: float) -> int:
        return 0

    def ready(self) -> list[Any]:
        """What was said so far, with the callbacks."""
        return [(record, told) for record, told in self.written if isinstance(record, Ready)]


class Data:
    """In the place of the client for the application's records: it knows of all partitions."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=range(9))})


def preparing() -> tuple[WriterSession, Control]:
    """A session that has joined, and reads a PREPARE of its topic."""
    settings, theirs = producer_settings({"bootstrap.servers": "nowhere:1"})
    control, data = Control(), Data()
    link: Any = SimpleNamespace(
        servers="nowhere:1", offsets=None, writer=control, subscribe=lambda _: None, close=lambda: None
    )
    session = WriterSession(theirs, settings, data, threading.Lock(), link)  # type: ignore[arg-type]
    session.lease.read(session.lease.join("n", ["t"], clock.now()), 0, clock.now())
    sending: TopicSending[Any] = TopicSending(timeline_of(1, []))
    session.topics["t"] = sending
    sending.apply(sending.timeline.opened(2, ChangePhase.PLAN))
    sending.apply(sending.timeline.prepared())
    return session, control


@pytest.mark.kip("K253-01")
def test_a_ready_that_was_lost_is_said_again() -> None:
    """The leader of the writer's log was away for longer than a record lives: the change would wait for it in vain."""
    session, control = preparing()

    def turn() -> list[Any]:
        session._take_reports()
        session._responder.answer(session._working_topics(), lambda: None, lambda: None, clock.now())
        return control.ready()

    assert len(turn()) == 1
    first, told = turn()[0]  # nothing more while it is on its way
    assert len(control.ready()) == 1
    told(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert [record for record, _ in turn()] == [first, first]

    control.ready()[1][1](None, None)
    assert len(turn()) == 2  # delivered: that was all
    assert not [record for record, _ in control.written if isinstance(record, Lease)]


def test_a_ready_of_an_earlier_join_is_no_answer() -> None:
    """The lease ran out behind it: the writer joins anew, and says READY under that join too."""
    session, control = preparing()
    session._responder.answer(session._working_topics(), lambda: None, lambda: None, clock.now())
    session.lease.standing = Standing.LAPSED
    session.serve = lambda: None
    session._keep_lease(clock.now())
    joined = control.written[-1][0]
    assert joined.state is LeaseState.JOIN
    session.lease.read(joined, 1, clock.now())
    session._responder.answer(session._working_topics(), lambda: None, lambda: None, clock.now())
    assert [record.nonce for record, _ in control.ready()] == ["n", joined.nonce]


def test_a_lost_ready_of_an_earlier_attempt_is_not_said_again() -> None:
    """What is open now was answered by itself."""
    sending: TopicSending[Any] = TopicSending(timeline_of(1, []))
    sending.apply(sending.timeline.opened(2, ChangePhase.PLAN))
    sending.apply(sending.timeline.prepared())
    change = sending.timeline.change
    assert change is not None
    sending.said_ready(change.epoch)
    sending.lost_ready(change.epoch - 1)
    assert sending.answered
    sending.lost_ready(change.epoch)
    assert not sending.answered
