"""OrderedConsumer beside confluent_kafka.Consumer in the same scenario: what a program can see is the same."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from keyorder import OrderedConsumer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.groups import group_config, send

BOTH = pytest.mark.parametrize("kind", [Consumer, OrderedConsumer], ids=["stock", "ordered"])


@pytest.fixture
def topic(kafka: KafkaUnderTest, topic_name: str) -> str:
    """One partition, ten records."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    send(kafka, topic_name, *((f"k{n}", f"{n}") for n in range(10)))
    return topic_name


def first(consumer: Any, timeout: float = 120.0) -> Message:
    deadline = time.monotonic() + timeout
    while True:
        assert time.monotonic() < deadline
        message: Message | None = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            return message


@BOTH
def test_an_assignment_that_is_replaced_again_before_it_has_taken_hold(
    kafka: KafkaUnderTest, kind: Any, topic_name: str
) -> None:
    """librdkafka before 2.16 ends the process (its issue 5573), and a reader whose gates close and open does this often."""
    TopicAdmin(kafka.client_config()).create(topic_name, 8)
    send(kafka, topic_name, *((f"k{n}", f"{n}") for n in range(2_000)))
    consumer = kind(group_config(kafka, topic_name, enable_auto_commit=False))
    places = [TopicPartition(topic_name, p, OFFSET_BEGINNING) for p in range(8)]
    for _ in range(150):
        consumer.assign(places)
        consumer.consume(100, 0.01)
        consumer.assign(places[:4])
    consumer.assign(places)
    found: set[bytes] = set()
    deadline = time.monotonic() + 120
    while len(found) < 2_000:
        assert time.monotonic() < deadline
        found.update(message.value() for message in consumer.consume(500, 0.2))
    consumer.close()


@BOTH
@pytest.mark.parametrize(("offset", "expected"), [(3, 3), (OFFSET_BEGINNING, 0), (OFFSET_END, 10), (-2002, 8)])
@pytest.mark.parametrize("way", ["assign", "on_assign"])
def test_offsets_that_are_given_need_no_reset(
    kafka: KafkaUnderTest, kind: Any, topic: str, offset: int, expected: int, way: str
) -> None:
    """auto.offset.reset=error: a program that says where it begins is obeyed, by hand or when it is assigned."""
    consumer = kind(group_config(kafka, topic, auto_offset_reset="error", enable_auto_commit=False))
    places = [TopicPartition(topic, 0, offset)]
    if way == "assign":
        consumer.assign(places)
    else:
        consumer.subscribe([topic], on_assign=lambda c, _: c.assign(places))
    if offset == OFFSET_END:
        deadline = time.monotonic() + 120
        while consumer.position([TopicPartition(topic, 0)])[0].offset < 0 and kind is OrderedConsumer:
            assert time.monotonic() < deadline
            assert consumer.poll(0.1) is None
        for _ in range(20):
            assert consumer.poll(0.1) is None
        send(kafka, topic, ("k", "11"))
    assert first(consumer).offset() == expected
    consumer.close()


def reset_errors(consumer: Any, count: int) -> list[tuple[str | None, int | None, int]]:
    """The first messages that tell of a missing offset: topic, partition, code."""
    found: list[tuple[str | None, int | None, int]] = []
    deadline = time.monotonic() + 120
    while len(found) < count:
        assert time.monotonic() < deadline
        message = consumer.poll(0.2)
        if message is not None:
            found.append((message.topic(), message.partition(), message.error().code()))
    return sorted(found)


@BOTH
def test_a_missing_offset_is_a_messages_error_where_none_is_to_be_chosen(
    kafka: KafkaUnderTest, kind: Any, topic_name: str
) -> None:
    """auto.offset.reset=error in a new group: once for each partition; the application says where to go on."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    send(kafka, topic_name, ("k", "1"))
    consumer = kind(group_config(kafka, topic_name, auto_offset_reset="error"))
    consumer.subscribe([topic_name])
    assert reset_errors(consumer, 2) == [(topic_name, p, KafkaError._AUTO_OFFSET_RESET) for p in (0, 1)]
    assert [consumer.poll(0.1) for _ in range(20)] == [None] * 20
    consumer.assign([TopicPartition(topic_name, p, 0) for p in (0, 1)])
    assert first(consumer).value() == b"1"
    consumer.close()


@BOTH
def test_what_retention_has_deleted_is_a_messages_error_where_none_is_to_be_chosen(
    kafka: KafkaUnderTest, kind: Any, topic: str
) -> None:
    """auto.offset.reset=error and a committed offset below the log start: the application says where to go on."""
    config = group_config(kafka, topic, auto_offset_reset="error", enable_auto_commit=False)
    committing = Consumer(config)
    committing.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    committing.close()
    admin = AdminClient(kafka.client_config())
    admin.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0)].result(60)
    consumer = kind(config)
    consumer.subscribe([topic])
    assert reset_errors(consumer, 1) == [(topic, 0, KafkaError._AUTO_OFFSET_RESET)]
    assert [consumer.poll(0.1) for _ in range(20)] == [None] * 20
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert first(consumer).offset() == 5
    consumer.close()


@BOTH
def test_every_partition_is_told_of_whose_record_was_deleted(kafka: KafkaUnderTest, kind: Any, topic_name: str) -> None:
    """auto.offset.reset=error, a group of this very client that comes back late."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    send(kafka, topic_name, *((f"k{n}", f"{n}") for n in range(20)))
    config = group_config(kafka, topic_name, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer = kind(config)
    consumer.subscribe([topic_name])
    seen: set[int | None] = set()
    while seen != {0, 1}:
        seen.add(first(consumer).partition())
    consumer.commit(offsets=[TopicPartition(topic_name, p, 1) for p in (0, 1)], asynchronous=False)
    consumer.close()
    admin = AdminClient(kafka.client_config())
    deleted = admin.delete_records([TopicPartition(topic_name, p, 3) for p in (0, 1)])
    assert [each.result(60).low_watermark for each in deleted.values()] == [3, 3]
    consumer = kind({**config, "auto.offset.reset": "error"})
    consumer.subscribe([topic_name])
    assert reset_errors(consumer, 2) == [(topic_name, p, KafkaError._AUTO_OFFSET_RESET) for p in (0, 1)]
    consumer.close()


@BOTH
@pytest.mark.parametrize("what", ["commit", "store_offsets"])
def test_an_end_of_a_partition_is_no_position(kafka: KafkaUnderTest, kind: Any, topic: str, what: str) -> None:
    config = group_config(kafka, topic, enable_partition_eof=True, enable_auto_offset_store=what == "commit")
    consumer = kind(config)
    consumer.subscribe([topic])
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline
        message = consumer.poll(0.2)
        if message is not None and message.error() is not None:
            break
    with pytest.raises(KafkaException) as raised:
        getattr(consumer, what)(message)
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG
    with pytest.raises(KafkaException):
        getattr(consumer, what)(Message(error=KafkaError(KafkaError._TRANSPORT, "no place")))
    consumer.close()


@BOTH
def test_an_assigned_topic_that_is_being_made_is_waited_for(kafka: KafkaUnderTest, kind: Any, topic_name: str) -> None:
    """A broker hears of a new topic late; `topic.metadata.propagation.max.ms` says how late."""
    config = group_config(kafka, topic_name, topic_metadata_refresh_interval_ms=500)
    consumer = kind({**config, "topic.metadata.propagation.max.ms": 120_000})
    consumer.assign([TopicPartition(topic_name, 0, OFFSET_BEGINNING)])
    assert consumer.poll(1) is None
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    send(kafka, topic_name, ("k", "v"))
    assert first(consumer).value() == b"v"
    consumer.close()


@BOTH
def test_a_new_group_begins_where_the_nested_settings_say(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """`default.topic.config`, as programs of long ago have it, wins over the settings beside it."""
    config = group_config(kafka, topic, auto_offset_reset="latest")
    consumer = kind({**config, "default.topic.config": {"auto.offset.reset": "earliest"}})
    consumer.subscribe([topic])
    assert first(consumer).value() == b"0"
    consumer.close()


def test_statistics_have_what_is_assigned(kafka: KafkaUnderTest, topic: str) -> None:
    """From the first on, as stock's after `assign()`: a program looks its partition up in them."""
    told: list[dict[str, Any]] = []
    config = group_config(kafka, topic, statistics_interval_ms=5)
    consumer = OrderedConsumer({**config, "stats_cb": lambda text: told.append(json.loads(text))})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert first(consumer).value() == b"0"
    deadline = time.monotonic() + 120
    while not told:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.close()
    assert [each for each in told if "0" not in each["topics"].get(topic, {}).get("partitions", {})] == []


@BOTH
def test_the_last_commit_of_a_program_that_is_closed(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """on_revoke commits, inside close()."""
    consumer = kind(group_config(kafka, topic, enable_auto_commit=False))
    consumer.subscribe([topic], on_revoke=lambda c, _: c.commit(asynchronous=False))
    for expected in range(3):
        assert first(consumer).offset() == expected
    consumer.close()
    check = kind(group_config(kafka, topic))
    assert check.committed([TopicPartition(topic, 0)], 10)[0].offset == 3
    check.close()


@BOTH
def test_pause_and_seek_take_effect_at_once(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    consumer = kind(group_config(kafka, topic))
    consumer.subscribe([topic])
    first(consumer)
    consumer.pause(consumer.assignment())
    for _ in range(10):
        assert consumer.poll(0.05) is None
    consumer.resume(consumer.assignment())
    assert first(consumer).offset() == 1
    consumer.seek(TopicPartition(topic, 0, 7))
    assert first(consumer).offset() == 7
    consumer.close()


@BOTH
def test_a_member_that_was_away_for_too_long_hears_of_it_by_on_revoke(
    kafka: KafkaUnderTest, kind: Any, topic: str
) -> None:
    """Where there is no on_lost, on_revoke is called: max.poll.interval.ms is over."""
    revoked: list[int] = []
    consumer = kind(group_config(kafka, topic, session_timeout_ms=6_000, max_poll_interval_ms=6_000))
    consumer.subscribe([topic], on_revoke=lambda _, places: revoked.extend(p.partition for p in places))
    first(consumer)
    time.sleep(8)  # what is tested is time that passes
    deadline = time.monotonic() + 120
    while not revoked:
        assert time.monotonic() < deadline
        consumer.poll(0.2)
    assert revoked == [0]
    consumer.close()


@BOTH
def test_changes_of_an_assignment_that_make_no_sense(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """Twice the same partition, one that is not there, a position of somebody else's."""
    consumer = kind(group_config(kafka, topic, enable_auto_offset_store=False))
    place = TopicPartition(topic, 0, 2)
    consumer.incremental_assign([place])
    assert first(consumer).offset() == 2
    codes = []
    for call in (
        lambda: consumer.incremental_assign([place]),
        lambda: consumer.incremental_unassign([TopicPartition(topic, 7)]),
        lambda: consumer.store_offsets(offsets=[TopicPartition(topic, 7, 1)]),
    ):
        with pytest.raises(KafkaException) as raised:
            call()
        codes.append(raised.value.args[0].code())
    assert codes == [KafkaError._CONFLICT, KafkaError._INVALID_ARG, KafkaError._STATE]
    consumer.close()


@BOTH
def test_an_assignment_is_shown_as_it_was_given(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """With the offsets, the metadata and the leader epochs of the application's own call, wherever it was made."""

    def shown() -> list[tuple[int, int, str | None, int | None]]:
        return [(p.partition, p.offset, p.metadata, p.leader_epoch) for p in consumer.assignment()]

    assigned: list[Any] = []
    consumer = kind(group_config(kafka, topic, enable_auto_commit=False))
    consumer.assign([TopicPartition(topic, 0)])
    assert shown() == [(0, OFFSET_STORED, None, None)]
    consumer.assign([TopicPartition(topic, 0, 2, "mine", 0)])
    assert shown() == [(0, 2, "mine", 0)]
    assert first(consumer).offset() == 2
    consumer.seek(TopicPartition(topic, 0, 5))
    assert first(consumer).offset() == 5
    assert shown() == [(0, 2, "mine", 0)]
    consumer.incremental_unassign([TopicPartition(topic, 0)])
    assert shown() == []
    consumer.unassign()

    def on_assign(_: Any, places: list[TopicPartition]) -> None:
        consumer.assign([TopicPartition(p.topic, p.partition, 7) for p in places])
        assigned.append(shown())

    consumer.subscribe([topic], on_assign=on_assign)
    assert first(consumer).offset() == 7
    assert (assigned, shown()) == ([[(0, 7, None, None)]], [(0, 7, None, None)])
    consumer.close()


@BOTH
@pytest.mark.parametrize("name", ["on_revoke", "on_commit"])
def test_what_a_callback_raises_goes_out_of_close(kafka: KafkaUnderTest, kind: Any, topic: str, name: str) -> None:
    """Once, and the consumer is closed."""
    heard: list[str] = []

    def raises(*_: Any) -> None:
        heard.append(name)
        raise ValueError(name)

    settings = {"on_commit": raises, "auto.commit.interval.ms": 600_000} if name == "on_commit" else {}
    consumer = kind({**group_config(kafka, topic), **settings})
    consumer.subscribe([topic], **({} if settings else {"on_revoke": raises}))
    first(consumer)
    with pytest.raises(ValueError, match=name):
        consumer.close()
    consumer.close()
    assert heard == [name]


@BOTH
def test_no_commit_interval_leaves_the_commit_to_close(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """`auto.commit.interval.ms=0`: nothing is committed before."""
    place = TopicPartition(topic, 0)
    consumer = kind({**group_config(kafka, topic), "auto.commit.interval.ms": 0})
    consumer.subscribe([topic])
    first(consumer)
    consumer.poll(0.5)
    consumer.poll(0.5)
    assert consumer.committed([place], timeout=120)[0].offset in (OFFSET_INVALID, 0)  # 0: the initial commit
    consumer.close()
    after = kind(group_config(kafka, topic))
    assert after.committed([place], timeout=120)[0].offset == 3
    after.close()


@BOTH
def test_a_seek_to_the_stored_offset_is_refused(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """It names no place to go on from. The client library's own consumer stands still then; ours goes on."""
    consumer = kind(group_config(kafka, topic))
    consumer.subscribe([topic])
    assert first(consumer).offset() == 0
    with pytest.raises(KafkaException) as raised:
        consumer.seek(TopicPartition(topic, 0, OFFSET_STORED))
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG
    if kind is OrderedConsumer:
        assert first(consumer).offset() == 1
    consumer.close()
