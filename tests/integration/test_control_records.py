"""Records in the control topics that are damaged, foreign, older or newer: who stops, what it says, and how it goes on."""

from __future__ import annotations

import io
import itertools
from contextlib import suppress
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control.control_topics import timeline_slot, writer_slot
from keyorder.partitioner.errors import CorruptRecordError, KeyorderError, RecordVersionError
from keyorder.partitioner.records import codec
from keyorder.partitioner.records.control_records import (
    TIMELINE,
    Waiver,
    decode_timeline,
    encode_waiver,
    lease_key,
    timeline_key,
    waiver_key,
)
from support.cluster import KafkaUnderTest
from support.control import last_value, put
from support.groups import group_config, grown
from support.workload import Worker, Workload, assert_in_order

QUICK = {"keyorder.view.age.ms": "400"}
SHORT_LEASE = {
    "keyorder.lease.ms": 6_000,
    "keyorder.lease.renew.interval.ms": 1_000,
    "keyorder.lease.margin.ms": 500,
    "delivery.timeout.ms": 3_000,
}
CORRUPT = b"\x00\x01 no record at all"


def produced(producer: OrderedProducer, topic: str, value: str) -> None:
    """Send one record and see it acknowledged."""
    producer.produce(topic, value, b"k")
    assert producer.flush(120) == 0


def consumed(consumer: OrderedConsumer, count: int) -> list[str]:
    """The next values; fails after a while."""
    values: list[str] = []
    deadline = clock.now() + 180
    while len(values) < count:
        assert clock.now() < deadline, f"{values}; gates: {consumer.gates()}"
        values.extend((m.value() or b"").decode() for m in consumer.consume(count, 0.2))
    return values


def stops(what: object, call: str, *arguments: object) -> KeyorderError:
    """Call until it raises a typed error: clients hear of a control record when it reaches them."""
    deadline = clock.now() + 180
    while clock.now() < deadline:
        try:
            getattr(what, call)(*arguments)
        except KeyorderError as error:
            return error
    raise AssertionError(f"{what} went on")


@pytest.mark.kip("K903-14")
@pytest.mark.parametrize(
    ("damage", "error", "fix"),
    [
        (lambda good: CORRUPT, CorruptRecordError, "Write the last good value of that key again"),
        (lambda good: good[:3] + b"\x09" + good[4:], RecordVersionError, "upgrade keyorder"),
    ],
    ids=["foreign bytes", "next major version"],
)
def test_a_timeline_that_cannot_be_read_stops_all_who_need_it_until_it_is_superseded(
    kafka: KafkaUnderTest, topic_name: str, damage: object, error: type[KeyorderError], fix: str
) -> None:
    """Producer, consumer, controller and admin name the place and the remedy; with the good value back all goes on."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    group = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
    short = {**kafka.client_config(), **SHORT_LEASE}  # a writer that stopped is waited for as long as its lease runs
    producer, consumer = OrderedProducer(short), OrderedConsumer(group)
    consumer.subscribe([topic_name])
    produced(producer, topic_name, "1")
    assert consumed(consumer, 1) == ["1"]
    admin.expand(topic_name, 3)
    produced(producer, topic_name, "2")
    assert consumed(consumer, 1) == ["2"]
    consumer.commit(asynchronous=False)
    good = last_value(kafka, topic_name)
    slot = timeline_slot(topic_name)

    offset = put(kafka, slot, timeline_key(topic_name), damage(good))  # type: ignore[operator]

    found = [
        stops(producer, "produce", topic_name, "never", b"k"),
        stops(consumer, "poll", 0.1),
        stops(admin, "describe", topic_name),
        stops(admin, "expand", topic_name, 4),
        stops(OrderedProducer(short), "produce", topic_name, "never", b"k"),
    ]
    assert [type(each) for each in found] == [error] * len(found)
    assert [each for each in found if f"_keyorder[{slot[1]}]@{offset}" not in str(each) or fix not in str(each)] == []
    assert not any(each.retriable for each in found)
    producer.close()
    consumer.close()

    put(kafka, slot, timeline_key(topic_name), good)

    assert admin.expand(topic_name, 4).changed
    with OrderedProducer(kafka.client_config()) as again, OrderedConsumer(group) as reader:
        produced(again, topic_name, "last")
        reader.subscribe([topic_name])
        values = consumed(reader, 1)
        # What the stopped producer had let through while the bad record was on its way to it comes first.
        while values[-1] != "last":
            values.extend(consumed(reader, 1))
        assert set(values[:-1]) <= {"never"}


@pytest.mark.kip("K903-14")
def test_a_run_goes_on_after_a_damaged_timeline_with_nothing_lost(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Writer and reader under load end with an error; their successors go on, through a growth, in order."""
    with Workload(kafka, tmp_path, topic_name, config=QUICK) as run:
        reader, writer = run.consumer("c1", "g"), run.writer("w1", rate=300, config=SHORT_LEASE)
        writer.expect_progress(run)
        good = last_value(kafka, topic_name)
        put(kafka, timeline_slot(topic_name), timeline_key(topic_name), CORRUPT)
        for ended in (reader, writer):
            assert _ended(ended) != 0
            run.kill(ended)  # noted in the history: what it had not heard of may be in the log or not

        put(kafka, timeline_slot(topic_name), timeline_key(topic_name), good)
        run.consumer("c2", "g")
        run.writer("w2", rate=300)
        assert run.expand(6) == 0

        assert_in_order(run.finish())


def _ended(worker: Worker) -> int:
    return worker.process.wait(120)


@pytest.mark.kip("K903-14")
def test_minor_versions_are_read_by_all_and_a_newer_one_is_never_written_again(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """An older timeline is read and written anew; a newer one is read, and the controller asks for an upgrade."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    slot, key = timeline_slot(topic_name), timeline_key(topic_name)
    good = last_value(kafka, topic_name)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, TIMELINE.schemas[0], codec.decode(TIMELINE, good).fields)
    put(kafka, slot, key, good[:4] + b"\x00" + out.getvalue())
    with OrderedProducer(kafka.client_config()) as producer:
        produced(producer, topic_name, "1")
        assert admin.expand(topic_name, 3).changed
        produced(producer, topic_name, "2")

        newer = last_value(kafka, topic_name)
        assert newer[4] == TIMELINE.minor
        put(kafka, slot, key, newer[:4] + bytes([newer[4] + 1]) + newer[5:] + b"a field of the future")

        produced(producer, topic_name, "3")
        with pytest.raises(RecordVersionError, match="upgrade keyorder"):
            admin.expand(topic_name, 4)
        assert admin.describe(topic_name).layout.count == 3
        group = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
        with OrderedConsumer(group) as consumer:
            consumer.subscribe([topic_name])
            assert consumed(consumer, 3) == ["1", "2", "3"]
    put(kafka, slot, key, newer)
    assert admin.expand(topic_name, 4).changed


@pytest.mark.kip("C-20")
def test_a_lease_that_cannot_be_read_stops_the_change_and_nobody_else(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Who may be behind it is not known, so no change can be proven; writers go on. A null value removes it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    with OrderedProducer({**kafka.client_config(), "keyorder.writer.id": f"{topic_name}-w"}) as producer:
        produced(producer, topic_name, "1")
        slot, key = writer_slot(f"{topic_name}-w"), lease_key("foreign", "n")
        offset = put(kafka, slot, key, CORRUPT)
        put(kafka, slot, b"metrics:of another program", CORRUPT)

        try:
            with pytest.raises(CorruptRecordError, match=rf"_keyorder_writers\[{slot[1]}\]@{offset} .*a null value"):
                admin.expand(topic_name, 3)
            produced(producer, topic_name, "2")
        finally:
            put(kafka, slot, key, None)

        assert admin.expand(topic_name, 3).changed
        produced(producer, topic_name, "3")


@pytest.mark.parametrize("when", ["while it reads", "before it begins"])
def test_a_waiver_that_cannot_be_read_stops_its_topic_until_it_is_superseded(
    kafka: KafkaUnderTest, topic_name: str, when: str
) -> None:
    """Also after the topic was assigned anew: it is not read without its gates, nor as if nobody had let one go."""
    grown(kafka, topic_name)
    waiver = Waiver(topic_name, "another topic of its name", topic_name, 1, 1, "an operator", "a test")
    slot, key, early = timeline_slot(topic_name), waiver_key(waiver), when == "before it begins"
    places = [TopicPartition(topic_name, p, OFFSET_BEGINNING) for p in range(2)]
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        try:
            if not early:
                consumer.assign(places)
                assert consumed(consumer, 2) == ["old", "new"]
            offset = put(kafka, slot, key, CORRUPT)
            for _ in range(2):
                consumer.assign(places)
                error = stops(consumer, "poll", 0.1)
                assert isinstance(error, CorruptRecordError), error
                assert f"_keyorder[{slot[1]}]@{offset} " in str(error)
        finally:
            put(kafka, slot, key, None if early else encode_waiver(waiver))

        values: list[str] = []
        while not values:
            consumer.assign(places)
            with suppress(CorruptRecordError):  # what supersedes it is on its way
                values = consumed(consumer, 2)
        assert sorted(values) == ["new", "old"]


def neighbours(kafka: KafkaUnderTest, topic: str) -> str:
    """The name of another topic whose timeline stands in the same partition of `_keyorder`."""
    names = (f"{topic}-{number}" for number in itertools.count())
    return next(name for name in names if timeline_slot(name) == timeline_slot(topic))


def test_a_damaged_timeline_of_another_topic_stops_nobody(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Though it stands in the same partition of the control topic: it is not looked into."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    other = neighbours(kafka, topic_name)
    put(kafka, timeline_slot(other), timeline_key(other), CORRUPT)
    try:
        with OrderedProducer(kafka.client_config()) as producer:
            produced(producer, topic_name, "1")
            assert admin.expand(topic_name, 3).changed
            produced(producer, topic_name, "2")
        group = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
        with OrderedConsumer(group) as consumer:
            consumer.subscribe([topic_name])
            assert consumed(consumer, 2) == ["1", "2"]
    finally:
        put(kafka, timeline_slot(other), timeline_key(other), None)


@pytest.mark.kip("K253-01")
def test_a_topic_that_is_followed_later_is_known_though_its_timeline_was_passed_by(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """Two topics share a partition of the control topic; the second, subscribed to later, has its gates all the same."""
    admin = TopicAdmin(kafka.client_config())
    other = neighbours(kafka, topic_name)
    with OrderedProducer(kafka.client_config()) as producer:
        for topic in (topic_name, other):
            admin.create(topic, 1, config=QUICK)
            produced(producer, topic, "1")
            admin.expand(topic, 2)
            produced(producer, topic, "2")
    group = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
    with OrderedConsumer(group) as consumer:
        consumer.subscribe([topic_name])
        assert consumed(consumer, 2) == ["1", "2"]
        consumer.subscribe([topic_name, other])
        assert consumed(consumer, 2) == ["1", "2"]
        timeline = consumer._assignment.view(other).timeline
        assert timeline.epochs == decode_timeline(last_value(kafka, other)).epochs
