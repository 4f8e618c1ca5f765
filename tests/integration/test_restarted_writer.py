"""KIP-903's race, for writers: a report of the time before a restart arrives when the writer has joined anew, or just before."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer
from keyorder import TopicAdmin
from keyorder.connector.control.control_topics import writer_slot
from keyorder.partitioner.records.control_records import (
    WRITERS_TOPIC,
    Lease,
    LeaseState,
    Ready,
    encode_lease,
    encode_ready,
    lease_key,
    ready_key,
)
from support.cluster import KafkaUnderTest

QUICK = {"keyorder.view.age.ms": "400"}


class ByHand:
    """One join of a writer whose every record is written when the test says so."""

    def __init__(self, producer: Producer, topic: str, writer: str, nonce: str, lease_ms: int) -> None:
        self._producer, self._topic, self._lease_ms = producer, topic, lease_ms
        self.writer, self.nonce = f"{writer}-{topic}", f"{nonce}-{topic}"
        self._sequence = 0
        self._incarnation: int | None = None

    def lease(self, state: LeaseState) -> None:
        """Write a lease record, acknowledged when this returns."""
        self._sequence += 1
        lease = Lease(self.writer, self.nonce, state, self._incarnation, self._lease_ms, self._sequence, (self._topic,))
        offset = self._write(lease_key(self.writer, self.nonce), encode_lease(lease))
        if state is LeaseState.JOIN:
            self._incarnation = offset

    def ready(self, epoch: int) -> None:
        """Say READY for an attempt."""
        report = Ready(self._topic, self.writer, self.nonce, epoch)
        self._write(ready_key(self._topic, self.writer, self.nonce), encode_ready(report))

    def _write(self, key: bytes, value: bytes) -> int:
        offsets: list[int] = []
        slot = writer_slot(self.writer)
        assert slot[0] == WRITERS_TOPIC
        self._producer.produce(*slot[:1], value, key, slot[1], on_delivery=lambda error, m: offsets.append(m.offset()))
        assert self._producer.flush(120) == 0
        return offsets[0]


@pytest.mark.kip("K903-01", "K903-03", "K903-06", "K903-08", "K903-16")
@pytest.mark.parametrize("late", [True, False], ids=["old READY after the restart", "old READY before the restart"])
def test_a_report_of_before_the_restart_completes_nothing(kafka: KafkaUnderTest, topic_name: str, late: bool) -> None:
    """Everybody else is READY, and so is the restarted writer: the change still waits out the older process's lease."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    producer = Producer({**kafka.client_config(), "acks": "all", "linger.ms": 0})
    before = ByHand(producer, topic_name, "twice", "before", lease_ms=2_000)
    after = ByHand(producer, topic_name, "twice", "after", lease_ms=60_000)
    other = ByHand(producer, topic_name, "other", "only", lease_ms=60_000)
    before.lease(LeaseState.JOIN)
    other.lease(LeaseState.JOIN)
    steps: list[str] = []
    attempt = TopicAdmin(kafka.client_config())

    def progress(step: str) -> None:
        """What the writers do at each step; on the controller's thread, so that nothing comes in between."""
        steps.append(step)
        first = steps.count("roll call") == 1
        if step == "roll call":
            other.lease(LeaseState.LIVE)
            (before if first else after).lease(LeaseState.LIVE)
        elif step == "collecting":
            change = attempt.timeline(topic_name).change
            assert change is not None
            if first and not late:
                before.ready(change.epoch)
            if first:
                after.lease(LeaseState.JOIN)
            if first and late:
                before.ready(change.epoch)
            after.ready(change.epoch)
            other.ready(change.epoch)

    try:
        change = TopicAdmin(kafka.client_config(), progress).expand(topic_name, 3, timeout=120)
    finally:
        after.lease(LeaseState.LEFT)
        other.lease(LeaseState.LEFT)

    assert change.attempts == 2, steps
    assert steps.count("cutting") == 1
    assert steps.index(f"expelled {before.writer}") < steps.index("cutting")


@pytest.mark.kip("K253-08", "C-20")
def test_adopters_who_ask_for_different_initial_counts_agree(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Whoever is first decides; the other finds the topic managed, and both describe the same one."""
    from confluent_kafka.admin import NewTopic

    stock = kafka.admin()
    stock.create_topics([NewTopic(topic_name, 12)])[topic_name].result(120)
    found: list[int] = []

    def adopt(initial: int) -> None:
        layout = TopicAdmin(kafka.client_config()).adopt(topic_name, initial_partition_count=initial).layout
        assert layout.count == 12
        found.append(layout.initial)

    threads = [threading.Thread(target=adopt, args=(initial,)) for initial in (12, 6, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 3
    assert len(set(found)) == 1
    description = TopicAdmin(kafka.client_config()).describe(topic_name)
    assert (len(description.epochs), description.layout.initial) == (1, found[0])
