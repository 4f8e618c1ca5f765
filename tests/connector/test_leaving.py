"""A writer says goodbye only when nothing of it can reach the brokers any more; else its lease runs out by itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from keyorder.connector import clock
from keyorder.connector.config import producer_settings
from keyorder.connector.producing.writer_session import WriterSession
from keyorder.partitioner.records.control_records import Lease, LeaseState, decode_record
from keyorder.partitioner.writers.sending import TopicSending
from support.dumb import timeline_of


class Control:
    """In the place of the client for control records: keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Any) -> None:
        self.written.append(decode_record(key, value))

    def poll(self, timeout: float) -> int:
        return 0


class Link:
    """In the place of the shared clients: nothing comes."""

    servers = "nowhere:1"
    offsets: Any = None

    def __init__(self, control: Control) -> None:
        self.writer: Any = control

    def subscribe(self, interested: Any) -> Any:
        return None

    def close(self) -> None:
        pass


def live_session() -> tuple[WriterSession, Control, TopicSending[Any]]:
    """A session that has joined, with one topic."""
    settings, theirs = producer_settings({"bootstrap.servers": "nowhere:1"})
    control: Any = Control()
    data: Any = None
    session = WriterSession(theirs, settings, data, threading.Lock(), Link(control))
    session.lease.read(session.lease.join("n", ["t"], clock.now()), 0, clock.now())
    sending = session.topics["t"] = TopicSending(timeline_of(1, []))
    return session, control, sending


def test_a_writer_with_nothing_on_its_way_leaves() -> None:
    """LEFT is written: the next change need not wait for it."""
    session, control, sending = live_session()
    in_flight = sending.in_flight(0)
    in_flight.unresolved += 1
    in_flight.unresolved -= 1

    assert session._leave()

    left = [record.state for record in control.written if isinstance(record, Lease)]
    assert left == [LeaseState.LEFT]


@pytest.mark.parametrize("way", ["on its way", "timed out"])
@pytest.mark.kip("K253-01")
def test_a_writer_with_records_that_may_still_arrive_does_not_say_that_it_left(way: str) -> None:
    """close() with a time-out, or after a delivery time-out: a change that counted it as gone would get a stray."""
    session, control, sending = live_session()
    in_flight = sending.in_flight(0)
    if way == "on its way":
        in_flight.unresolved += 1
    else:
        in_flight.settles_at = clock.now() + 30

    assert not session._leave()

    assert control.written == []
