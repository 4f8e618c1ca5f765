"""A consumer process: one member of a group, of keyorder's or of stock consumers, that spends some time on each record."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from .. import clock
from ..consuming.consumer import OrderedConsumer
from ..messages import offset_of, place_of
from ..verify.events import decode_value
from ..verify.recorder import Recorder
from .worker import Line

_WAIT = 0.1
_TELL = 0.5
_NAP = 0.004
# Alike on both sides: new partitions and lost members are noticed soon, nothing that is in the log is skipped.
_GROUP = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 1_000,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 1_000,
}


class Member:
    """The member's work: record what it is given, spend the time that a record takes, record that it is done."""

    def __init__(self, line: Line, recorder: Recorder) -> None:
        self._line, self._recorder = line, recorder
        self._work = line.spec["work_ms"] / 1000
        self._owed = 0.0
        self.delivered = 0
        self.owned: set[int] = set()

    def assigned(self, _: Any, places: list[TopicPartition]) -> None:
        """The group gave us partitions."""
        self._recorder.assign([place.partition for place in places])
        self.owned |= {place.partition for place in places}

    def revoked(self, _: Any, places: list[TopicPartition]) -> None:
        """The group asked them back."""
        self._recorder.revoke([place.partition for place in places])
        self.owned -= {place.partition for place in places}

    def lost(self, _: Any, places: list[TopicPartition]) -> None:
        """The group took them away."""
        self._recorder.lost([place.partition for place in places])
        self.owned -= {place.partition for place in places}

    def committed(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """The broker answered a commit."""
        for place in places:
            if place.offset >= 0:
                failed = error is not None or place.error is not None
                self._recorder.commit(place.partition, place.offset, "unknown" if failed else "ok")

    def process(self, message: Message) -> None:
        """What an application would do with a record."""
        partition, offset = place_of(message)[1], offset_of(message)
        data = message.value()
        value = None if data is None else decode_value(data if isinstance(data, bytes) else data.encode())
        self._recorder.deliver_start(partition, offset, value)
        self._owed += self._work
        if self._owed >= _NAP:
            # One nap for several records: a nap for each would mostly measure the scheduler.
            before = clock.now()
            time.sleep(self._owed)
            self._owed -= clock.now() - before
        self._recorder.deliver_end(partition, offset, value)
        self.delivered += 1


def main() -> None:
    """Run until told to stop."""
    line = Line()
    spec = line.spec
    with Recorder(spec["file"], spec["name"], group=spec["group"], run=spec["run"]) as recorder:
        member = Member(line, recorder)
        config = {
            **_GROUP,
            "bootstrap.servers": spec["bootstrap_servers"],
            "client.id": spec["name"],
            "group.id": spec["group"],
            "on_commit": member.committed,
        }
        stock = {**config, "enable.auto.offset.store": False}
        _consume(OrderedConsumer(config) if spec["side"] == "keyorder" else Consumer(stock), line, member)
        line.tell(delivered=member.delivered, partitions=[], gates=[])


def _consume(consumer: Consumer | OrderedConsumer, line: Line, member: Member) -> None:
    """The same loop for both: poll, work, and now and then a word about it.

    The stock consumer stores offsets only after the work, so that a killed member loses nothing; with keyorder's a
    record counts as processed at the next poll anyway.
    """
    consumer.subscribe([line.spec["topic"]], on_assign=member.assigned, on_revoke=member.revoked, on_lost=member.lost)
    told = 0.0
    while not line.stop.is_set():
        message = consumer.poll(_WAIT)
        if message is not None:
            error = message.error()
            if error is not None:
                raise RuntimeError(f"the consumer reports {error.name()}: {error.str()}")
            member.process(message)
            if not isinstance(consumer, OrderedConsumer):  # ours is a Consumer too
                consumer.store_offsets(message)
        if clock.now() - told >= _TELL:
            told = clock.now()
            gates = _gates(consumer) if isinstance(consumer, OrderedConsumer) else []
            line.tell(delivered=member.delivered, partitions=sorted(member.owned), gates=gates)
    consumer.close()


def _gates(consumer: OrderedConsumer) -> list[dict[str, int]]:
    return [
        {
            "partition": gate.partition,
            "waits_for": gate.waits_for,
            "missing": gate.needs_offset - gate.at_offset,
            "held": gate.records_held,
        }
        for gate in consumer.gates()
    ]


if __name__ == "__main__":
    main()
