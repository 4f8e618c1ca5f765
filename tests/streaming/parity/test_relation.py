"""Batch reads as in Spark's KafkaRelationSuite, each through both formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_source import create, reading, rows_of, send

BOTH = ("kafka", "keyorder")
pytestmark = pytest.mark.timeout(900)  # several queries of two formats each
T0 = 1_600_000_000_000
LATE = 9_000_000_000_000


@pytest.fixture(scope="module")
def source(spark: Any) -> Any:
    """The session."""
    spark.dataSource.register(KeyorderDataSource)
    return spark


@pytest.fixture(scope="module")
def timed(source: Any, kafka: KafkaUnderTest) -> str:
    """A topic of thirty values over three partitions, ten each at one of three times a second apart."""
    create(kafka, "relation-times", 3)
    producer = Producer({**kafka.client_config(), "log_level": 0})
    for n in range(30):
        producer.produce("relation-times", b"%d" % n, None, n % 3, timestamp=T0 + n // 10 * 1000)
    assert producer.flush(120) == 0
    return "relation-times"


def numbers(frame: Any) -> list[int]:
    """The values of a frame."""
    return sorted(int(row[0]) for row in frame.selectExpr("cast(value as string)").collect())


def at(topic: str, *values: int) -> str:
    """Offsets or times of the first partitions."""
    return json.dumps({topic: {str(p): value for p, value in enumerate(values)}})


TIMES: dict[str, tuple[Callable[[str], dict[str, str]], Callable[[int], bool]]] = {
    "both": (
        lambda t: {
            "startingOffsetsByTimestamp": at(t, *[T0 + 1000] * 3),
            "endingOffsetsByTimestamp": at(t, *[T0 + 2000] * 3),
        },
        lambda n: 10 <= n < 20,
    ),
    "start, and offsets": (
        lambda t: {"startingOffsetsByTimestamp": at(t, *[T0] * 3), "endingOffsets": at(t, -1, -1, 1)},
        lambda n: n % 3 != 2 or n == 2,
    ),
    "offsets, and end": (
        lambda t: {"startingOffsets": at(t, -2, -2, 0), "endingOffsetsByTimestamp": at(t, *[T0 + 2000] * 3)},
        lambda n: n < 20,
    ),
    "start": (lambda t: {"startingOffsetsByTimestamp": at(t, *[T0 + 1000] * 3)}, lambda n: n >= 10),
    "end": (lambda t: {"endingOffsetsByTimestamp": at(t, *[T0 + 2000] * 3)}, lambda n: n < 20),
    "global": (
        lambda t: {"startingTimestamp": str(T0 + 1000), "endingTimestamp": str(T0 + 2000)},
        lambda n: 10 <= n < 20,
    ),
    "global before partitions": (
        lambda t: {
            "startingTimestamp": str(T0 + 2000),
            "startingOffsetsByTimestamp": at(t, *[T0 + 1000] * 3),
            "startingOffsets": "earliest",
        },
        lambda n: n >= 20,
    ),
    "partitions before offsets": (
        lambda t: {"startingOffsetsByTimestamp": at(t, *[T0 + 1000] * 3), "startingOffsets": "earliest"},
        lambda n: n >= 10,
    ),
    "no match at the end": (
        lambda t: {"endingOffsetsByTimestamp": at(t, T0 + 1000, T0 + 1000, LATE)},
        lambda n: n < 10 or n % 3 == 2,
    ),
}


@pytest.mark.scala(
    "KafkaRelationSuite",
    "timestamp provided for starting and ending",
    "timestamp provided for starting, offset provided for ending",
    "timestamp provided for ending, offset provided for starting",
    "timestamp provided for starting, ending not provided",
    "timestamp provided for ending, starting not provided",
    "global timestamp provided for starting and ending",
    "preferences on offset related options",
    "no matched offset for timestamp - endingOffsets",
)
@pytest.mark.parametrize("name", TIMES)
def test_times(source: Any, kafka: KafkaUnderTest, timed: str, name: str) -> None:
    """Starts and ends by time, alone and beside offsets."""
    options, expected = TIMES[name]
    for form in BOTH:
        found = numbers(reading(source, kafka, form, {"subscribe": timed, **options(timed)}))
        assert found == [n for n in range(30) if expected(n)], form


@pytest.mark.scala("KafkaRelationSuite", "no matched offset for timestamp - startingOffsets")
def test_a_start_that_no_record_matches(source: Any, kafka: KafkaUnderTest, timed: str) -> None:
    """One partition is enough."""
    for form in BOTH:
        options = {"subscribe": timed, "startingOffsetsByTimestamp": at(timed, T0, T0, LATE)}
        with pytest.raises(Exception, match=r"(?i)no offset matched from request"):
            reading(source, kafka, form, options).collect()


@pytest.mark.scala(
    "KafkaRelationSuite", "explicit earliest to latest offsets", "explicit offsets", "reuse same dataframe in query"
)
def test_earliest_and_latest_are_bound_late_and_offsets_are_not(
    source: Any, kafka: KafkaUnderTest, topic_name: str
) -> None:
    """What is given as a number stays; a frame may stand twice in one query."""
    found: dict[str, list[list[int]]] = {}
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 3)
        send(kafka, topic, [(min(n // 10, 2), None, b"%d" % n) for n in range(21)])
        open_ = reading(
            source, kafka, form, {"subscribe": topic, "startingOffsets": "earliest", "endingOffsets": "latest"}
        )
        fixed = {"startingOffsets": at(topic, -2, -2, 0), "endingOffsets": at(topic, -1, -1, 1)}
        some = reading(source, kafka, form, {"subscribe": topic, **fixed})
        seen = [numbers(open_), numbers(some), numbers(open_.union(open_))]
        send(kafka, topic, [(2, None, b"31")])
        seen += [numbers(open_), numbers(some)]
        send(kafka, topic, [(1, None, b"21")])
        found[form] = [*seen, numbers(open_), numbers(some)]
    assert found["keyorder"] == found["kafka"]
    assert [len(rows) for rows in found["keyorder"]] == [21, 21, 42, 22, 21, 23, 22]


@pytest.mark.scala("KafkaRelationSuite", "test late binding start offsets")
def test_a_start_at_earliest_moves_with_the_log(source: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Records that were deleted between two actions are no loss for the second one."""
    for form in BOTH:
        topic = f"{topic_name}-{form}"
        create(kafka, topic, 1)
        send(kafka, topic, [(0, None, b"%d" % n) for n in range(10)])
        frame = reading(source, kafka, form, {"subscribe": topic})
        assert numbers(frame) == list(range(10))
        place = TopicPartition(topic, 0, 10)
        admin = kafka.admin()
        admin.delete_records([place])[place].result(120)
        send(kafka, topic, [(0, None, b"%d" % n) for n in range(10, 20)])
        assert numbers(frame) == list(range(10, 20))


@pytest.mark.scala("KafkaRelationSuite", "SPARK-30656: minPartitions")
def test_a_split_batch_is_bound_late_too(source: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Inner edges stay where they were cut; records that come later are in the last piece of their partition."""
    create(kafka, topic_name, 3)
    send(kafka, topic_name, [(min(n // 10, 2), None, b"%d" % n) for n in range(21)])
    for form in BOTH:
        frame = reading(source, kafka, form, {"subscribe": topic_name, "minPartitions": "6"})
        before = numbers(frame)
        assert frame.rdd.getNumPartitions() >= 6
        send(kafka, topic_name, [(n % 3, None, b"%d" % n) for n in range(100, 109)])
        assert len(numbers(frame)) == len(before) + 9, form


@pytest.mark.scala(
    "KafkaRelationSuite",
    "read Kafka transactional messages: read_committed",
    "read Kafka transactional messages: read_uncommitted",
)
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions(source: Any, kafka: KafkaUnderTest, topic_name: str, level: str) -> None:
    """Open, committed, aborted, committed: what each action sees."""
    create(kafka, topic_name, 1)
    options = {"subscribe": topic_name, "kafka.isolation.level": level}
    frames = [reading(source, kafka, form, options) for form in BOTH]
    producer = Producer({**kafka.client_config(), "transactional.id": topic_name, "log_level": 0})
    producer.init_transactions()
    lengths = []
    for commit in (None, True, False, True):
        if commit is not True or lengths[1:]:
            producer.begin_transaction()
            for n in range(5):
                producer.produce(topic_name, b"%d" % n, partition=0)
            producer.flush(120)
        if commit is not None:
            producer.commit_transaction() if commit else producer.abort_transaction()
        found = [numbers(frame) for frame in frames]
        assert found[1] == found[0]
        lengths.append(len(found[0]))
    assert lengths == ([0, 5, 5, 10] if level == "read_committed" else [5, 5, 10, 15])


@pytest.mark.parametrize("level", [None, "read_committed", "read_uncommitted"])
def test_times_within_an_open_transaction(
    source: Any, kafka: KafkaUnderTest, topic_name: str, level: str | None
) -> None:
    """A time finds the records that the query reads: those of an open transaction, too, unless it reads committed ones."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"%d" % n) for n in range(5)], timestamp=T0)
    producer = Producer({**kafka.client_config(), "transactional.id": topic_name, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    for n in range(5, 10):
        producer.produce(topic_name, b"%d" % n, partition=0, timestamp=T0 + (n - 4) * 1000)
    assert producer.flush(120) == 0
    base = {"subscribe": topic_name, **({} if level is None else {"kafka.isolation.level": level})}
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    for form in BOTH:
        found = [
            numbers(reading(source, kafka, form, {**base, **late, "startingTimestamp": str(T0 + 2000)})),
            numbers(reading(source, kafka, form, {**base, "endingOffsetsByTimestamp": at(topic_name, T0 + 3000)})),
        ]
        expected = [[], [*range(5)]] if level == "read_committed" else [[*range(6, 10)], [*range(7)]]
        assert found == expected, form
        if level != "read_committed":
            found = [numbers(reading(source, kafka, form, {**base, "startingTimestamp": str(T0 + 2000)}))]
            assert found == [[*range(6, 10)]], form
    producer.abort_transaction()


BACKWARDS: dict[str, tuple[dict[str, str], str]] = {
    "other partitions": (
        {"startingOffsets": at("none", 1, 1, 1), "endingOffsets": at("none", 0, 0)},
        "start offset and end offset should have the same topic-partitions",
    ),
    "before it is looked up": (
        {"startingOffsets": at("none", 1, 1, 1), "endingOffsets": at("none", 0, 0, 0)},
        "the specified start offset 1 is greater than the end offset 0 for",
    ),
}


@pytest.mark.scala(
    "KafkaRelationSuite",
    "topic-partition for start offset and end offset must match",
    "unresolved start offset greater than end offset",
)
@pytest.mark.parametrize("name", BACKWARDS)
def test_bounds_that_do_not_fit_each_other(source: Any, kafka: KafkaUnderTest, name: str) -> None:
    """Told before any topic is looked at: this one is not there."""
    options, words = BACKWARDS[name]
    for form in BOTH:
        with pytest.raises(Exception, match=r".") as raised:
            reading(source, kafka, form, {"subscribe": "none", **options}).collect()
        assert words in str(raised.value).lower(), form


@pytest.mark.scala(
    "KafkaRelationSuite",
    "resolved start offset greater than end offset (without latest)",
    "resolved start offset greater than end offset (with latest)",
)
def test_a_start_behind_the_end_that_is_looked_up(source: Any, kafka: KafkaUnderTest, timed: str) -> None:
    """An end by time, and the end of the log."""
    for form in BOTH:
        for end in ({"endingOffsetsByTimestamp": at(timed, *[T0 + 1] * 3)}, {}):
            options = {"subscribe": timed, "startingOffsets": at(timed, 11, 11, 11), **end}
            with pytest.raises(Exception, match=r"The resolved start|the resolved start"):
                rows_of(reading(source, kafka, form, options))
