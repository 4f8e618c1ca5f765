"""One topic's trouble concerns that topic, and what a producer adds to records of one topic says nothing of another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.control.timeline_edit import edit
from keyorder.connector.producing.blocked import BlockedKeys
from keyorder.connector.producing.writer_session import default_writer_id
from keyorder.partitioner.errors import IdentityMismatchError, KeyBlockedError, RecordVersionError
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_gone, moving_key, upgrade_timeline
from support.holding import log_values, until


def sent(producer: OrderedProducer, topic: str, key: str = "k", value: str = "v") -> None:
    producer.produce(topic, value, key)
    assert producer.flush(120) == 0


def test_a_topic_made_again_stops_no_other(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The producer is told when it uses that topic, and goes on with the other; the next change does not wait for it."""
    other = f"{topic_name}-other"
    admin = TopicAdmin(kafka.client_config())
    for topic in (topic_name, other):
        admin.create(topic, 2, config=QUICK)
    with OrderedProducer(kafka.client_config()) as producer:
        sent(producer, topic_name)
        sent(producer, other)
        cluster = kafka.admin()
        cluster.delete_topics([other])[other].result(120)
        await_gone(cluster, other)
        admin.create(other, 2, config=QUICK)
        until(lambda: other in producer._writer.failures)
        for _ in range(2):
            with pytest.raises(IdentityMismatchError, match=other):
                producer.produce(other, "v", "k")
        sent(producer, topic_name)
        for topic in (other, topic_name):
            change = admin.expand(topic, 4)
            assert not any(step.name.startswith("expelled") for step in change.steps)
        sent(producer, topic_name)


def test_a_topic_whose_timeline_cannot_be_read_stops_no_other(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Written by a newer version: that topic is refused by the error that says so."""
    other = f"{topic_name}-other"
    admin = TopicAdmin(kafka.client_config())
    for topic in (topic_name, other):
        admin.create(topic, 2, config=QUICK)
    with OrderedProducer(kafka.client_config()) as producer:
        sent(producer, topic_name)
        sent(producer, other)
        upgrade_timeline(kafka, other)
        until(lambda: other in producer._writer.failures)
        with pytest.raises(RecordVersionError):
            producer.produce(other, "v", "k")
        sent(producer, topic_name)
    with OrderedProducer(kafka.client_config()) as producer:
        with pytest.raises(RecordVersionError):
            producer.produce(other, "v", "k")
        sent(producer, topic_name)


def headers_of(kafka: KafkaUnderTest, topic: str, partition: int) -> list[Any]:
    """The headers of the records of a partition."""
    consumer = Consumer({**kafka.client_config(), "group.id": "headers"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=120)[1]
    found = []
    while len(found) < end:
        found += [message.headers() for message in consumer.consume(end - len(found), 10)]
    consumer.close()
    return found


def test_a_hint_from_elsewhere_is_left_out(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Of records of keys that never moved too: on the fast path, under the lock, without a key, and of rows."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    given = [("a", b"1"), ("keyorder-epoch", b"99"), ("b", b"2")]
    columns = {"key": ["k", "k"], "value": ["v", "w"], "headers": [[{"key": n, "value": v} for n, v in given]] * 2}
    batch = pa.RecordBatch.from_pydict(columns)
    for native in (True, False):
        with OrderedProducer({**kafka.client_config(), "keyorder.arrow.native": native}) as producer:
            for _ in range(3):
                producer.produce(topic_name, "v", "k", headers=given)
                producer.produce(topic_name, "v", headers=dict(given))
            assert producer.produce_arrow(topic_name, batch) == 2
            assert producer.flush(120) == 0
    assert headers_of(kafka, topic_name, 0) == [[("a", b"1"), ("b", b"2")]] * 16


@pytest.mark.kip("K253-62")
def test_no_tombstones_where_ordered_delivery_is_off(kafka: KafkaUnderTest, topic_name: str) -> None:
    """KIP-253 clears old homes where delivery is ordered; elsewhere the topic is left as it is."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config={**QUICK, "cleanup.policy": "compact"})
    edit(kafka.client_config(), topic_name, lambda timeline: replace(timeline, ordered=False))
    key = moving_key(admin, topic_name, 2)
    with OrderedProducer(kafka.client_config()) as producer:
        sent(producer, topic_name, key, "old")
        admin.expand(topic_name, 2)
        sent(producer, topic_name, key, "new")
        assert producer.produce_arrow(topic_name, pa.RecordBatch.from_pydict({"key": [key], "value": ["newer"]})) == 1
        assert producer.flush(120) == 0
    assert log_values(kafka, topic_name, 0) == [(key.encode(), b"old")]


def test_blocked_keys_are_bounded_by_their_bytes() -> None:
    """Beyond the bound the topic's keys are all blocked, until that was told once."""
    blocked = BlockedKeys(most_bytes=10_000)
    for i in range(8):
        blocked.block("t", b"%d" % i + b"x" * 1_000, "why")
    blocked.refuse("t", b"another")
    with pytest.raises(KeyBlockedError):
        blocked.refuse("t", b"3" + b"x" * 1_000)
    blocked.refuse("t", b"3" + b"x" * 1_000)
    for i in range(8, 20):
        blocked.block("t", b"%d" % i + b"x" * 1_000, "why")
    assert blocked.any("t")
    assert not blocked.any("u")
    with pytest.raises(KeyBlockedError, match="more keys"):
        blocked.refuse("t", b"another")
    assert not blocked.any("t")


def test_a_transaction_that_was_aborted_blocks_nothing() -> None:
    """None of its records is there to be overtaken."""
    blocked = BlockedKeys()
    blocked.block("t", b"a", "why", 1)
    blocked.block("t", b"b", "why", 2)
    blocked.forget_transactions(2)
    blocked.refuse("t", b"b")
    with pytest.raises(KeyBlockedError):
        blocked.refuse("t", b"a")


def test_a_first_record_beside_a_close_says_that_it_is_closed(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The thread that would answer has gone: nobody waits for it, and no broker is blamed."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    with OrderedProducer({**kafka.client_config(), "keyorder.control.timeout.ms": 2_000}) as producer:
        producer._session.stop(120)
        with pytest.raises(RuntimeError, match="has been closed"):
            producer.join(topic_name)


def test_a_writer_is_named_after_its_client_machine_and_process() -> None:
    """Whoever waits for it finds the process. Bounded, and plain enough for any log."""
    first, second = default_writer_id("orders"), default_writer_id("orders")
    assert first != second
    assert first.rsplit("-", 1)[0] == second.rsplit("-", 1)[0]
    assert first.startswith("orders-")
    odd = default_writer_id("a b/ü:" * 100)
    assert len(odd) < 120
    assert all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in odd)


def test_what_a_deleted_topic_is_sent_fails_and_the_other_goes_on(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Whatever the library raises for the deleted topic, in bounded time."""
    other = f"{topic_name}-other"
    admin = TopicAdmin(kafka.client_config())
    for topic in (topic_name, other):
        admin.create(topic, 2, config=QUICK)
    failed: list[Any] = []
    with OrderedProducer({**kafka.client_config(), "delivery.timeout.ms": 3_000, "log_level": 0}) as producer:
        sent(producer, topic_name)
        sent(producer, other)
        cluster = kafka.admin()
        cluster.delete_topics([other])[other].result(120)
        await_gone(cluster, other)
        try:
            producer.produce(other, "v", "k", on_delivery=lambda error, _: failed.append(error))
            assert producer.flush(120) == 0
        except KafkaException as error:
            failed.append(error.args[0])
        assert len(failed) == 1
        assert failed[0] is not None
        sent(producer, topic_name)
