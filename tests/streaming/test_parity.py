"""On a topic that never changes, `format("keyorder")` does what Spark's own `format("kafka")` does.

Each scenario runs through both; rows, offsets and errors are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from keyorder.connector.metadata import wait_for_partitions
from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest
from support.spark_source import create, reading, rows_of, run, send

TOPIC = "parity"
T0 = 1_600_000_000_000
BOTH = ("kafka", "keyorder")


@pytest.fixture(scope="module")
def source(spark: Any, kafka: KafkaUnderTest) -> Iterator[Any]:
    """The session, and a topic of three partitions: null keys, null values, headers, times a second apart."""
    spark.dataSource.register(KeyorderDataSource)
    create(kafka, TOPIC, 3)
    producer = Producer({**kafka.client_config(), "log_level": 0})
    for n in range(30):
        key = None if n % 7 == 0 else f"k{n % 5}".encode()
        value = None if n % 11 == 0 else f"v{n}".encode()
        headers: Any = [("a", b"1"), ("a", None), ("b", b"")] if n % 3 == 0 else None
        producer.produce(TOPIC, value, key, n % 3, timestamp=T0 + n * 1000, headers=headers)
    assert producer.flush(120) == 0
    return spark


def offsets(zero: int, one: int, two: int) -> str:
    return json.dumps({TOPIC: {"0": zero, "1": one, "2": two}})


BATCHES: dict[str, dict[str, str]] = {
    "everything": {},
    "headers": {"includeHeaders": "true"},
    "names in another case": {"STARTINGOFFSETS": "Earliest", "INCLUDEHEADERS": "TRUE"},
    "offsets": {"startingOffsets": offsets(2, -2, 7), "endingOffsets": offsets(5, -1, 8)},
    "a time": {"startingTimestamp": str(T0 + 9500), "endingTimestamp": str(T0 + 20_000)},
    "times": {
        "startingOffsetsByTimestamp": offsets(T0 + 1, T0 + 5000, T0 + 29_000),
        "endingOffsetsByTimestamp": offsets(T0 + 8000, T0 + 99_999_999, T0 + 99_999_999),
    },
    "time before offsets": {"startingTimestamp": str(T0 + 15_000), "startingOffsets": offsets(0, 0, 0)},
    "a time too late, strategy latest": {
        "startingTimestamp": str(T0 + 99_999_999),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "assign": {"assign": json.dumps({TOPIC: [0, 2]})},
    "pattern": {"subscribePattern": "pari.*"},
    "nothing": {"startingOffsets": offsets(3, 3, 3), "endingOffsets": offsets(3, 3, 3)},
}


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "get offsets from case insensitive parameters",
)
@pytest.mark.scala(
    "KafkaRelationSuite",
    "default starting and ending offsets",
    "default starting and ending offsets with headers",
)
@pytest.mark.parametrize("name", BATCHES)
def test_batch_reads_have_the_same_rows_and_schema(source: Any, kafka: KafkaUnderTest, name: str) -> None:
    """Every way to say where a batch query starts and ends."""
    options = dict(BATCHES[name])
    if not {"assign", "subscribePattern"} & set(options):
        options["subscribe"] = TOPIC
    native, ours = (reading(source, kafka, form, options) for form in BOTH)

    assert ours.schema == native.schema
    assert rows_of(ours) == rows_of(native)


# What is asked for: the words that both answers have.
ERRORS: dict[str, tuple[dict[str, str], str]] = {
    "no strategy": ({}, "one of the following options must be specified for kafka source"),
    "two strategies": (
        {"subscribe": TOPIC, "subscribePattern": "x"},
        "only one of the following options can be specified",
    ),
    "no topic": ({"subscribe": ""}, "no topics to subscribe to as specified value for option 'subscribe' is ''"),
    "no pattern": ({"subscribePattern": ""}, "pattern to subscribe is empty as specified value"),
    "assign without JSON": (
        {"assign": "t"},
        "no topicpartitions to assign as specified value for option 'assign' is 't'",
    ),
    "latest start": (
        {"subscribe": TOPIC, "startingOffsets": "latest"},
        "starting offset can't be latest for batch queries",
    ),
    "latest start of one": (
        {"subscribe": TOPIC, "startingOffsets": offsets(-1, 0, 0)},
        "can't be latest for batch queries on kafka",
    ),
    "earliest end": (
        {"subscribe": TOPIC, "endingOffsets": "earliest"},
        "ending offset can't be earliest for batch queries",
    ),
    "earliest end of one": (
        {"subscribe": TOPIC, "endingOffsets": offsets(-2, 0, 0)},
        "can't be earliest for batch queries on kafka",
    ),
    "a partition missing": (
        {"subscribe": TOPIC, "startingOffsets": json.dumps({TOPIC: {"0": 0}})},
        "use -1 for latest, -2 for earliest",
    ),
    "too late": (
        {"subscribe": TOPIC, "startingTimestamp": str(T0 + 99_999_999)},
        "no offset matched from request of topic-partition",
    ),
    "end before start": (
        {"subscribe": TOPIC, "startingOffsets": offsets(5, 0, 0), "endingOffsets": offsets(2, 1, 1)},
        "is greater than the",
    ),
    "reset": ({"subscribe": TOPIC, "kafka.auto.offset.reset": "latest"}, "startingoffsets"),
    "deserializer": ({"subscribe": TOPIC, "kafka.key.deserializer": "x"}, "is not supported"),
    "value deserializer": ({"subscribe": TOPIC, "kafka.value.deserializer": "x"}, "is not supported"),
    "auto commit": ({"subscribe": TOPIC, "kafka.enable.auto.commit": "true"}, "is not supported"),
    "interceptors": ({"subscribe": TOPIC, "kafka.interceptor.classes": "x"}, "not supported"),
    "least above most": (
        {"subscribe": TOPIC, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
        "is higher than the maxoffsetspertrigger(5)",
    ),
    "minPartitions": ({"subscribe": TOPIC, "minPartitions": "0"}, "minpartitions must be positive"),
}


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "unsupported kafka configs",
)
@pytest.mark.scala(
    "KafkaRelationSuite",
    "bad batch query options",
)
@pytest.mark.parametrize("name", ERRORS)
def test_wrong_options_are_refused_in_the_same_words(source: Any, kafka: KafkaUnderTest, name: str) -> None:
    """Both sources refuse, and say the same of it."""
    options, words = ERRORS[name]
    for form in BOTH:
        with pytest.raises(Exception, match=r".") as raised:
            reading(source, kafka, form, options).collect()
        assert words in str(raised.value).lower(), form


STREAMS: dict[str, dict[str, str]] = {
    "earliest": {"startingOffsets": "earliest"},
    "latest": {},
    "offsets": {"startingOffsets": offsets(4, -2, -1)},
    "a time": {"startingTimestamp": str(T0 + 14_000)},
    "few at a time": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"},
    "one at a time, skewed": {"startingOffsets": offsets(9, 2, 8), "maxOffsetsPerTrigger": "1"},
}


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "SPARK-27494: read kafka record containing null key/values.",
)
@pytest.mark.parametrize("name", STREAMS)
def test_streams_have_the_same_batches(source: Any, kafka: KafkaUnderTest, tmp_path: Path, name: str) -> None:
    """Rows and end offsets of every micro-batch, with Trigger.AvailableNow."""
    options = {"subscribe": TOPIC, **STREAMS[name]}
    results = []
    for form in BOTH:
        ran = run(source, kafka, form, options, tmp_path / form)
        results.append((ran.batches, ran.ends))

    assert results[1] == results[0]


def test_a_topic_that_is_not_there(source: Any, kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """Subscribing to it is an error, at once and not as an empty result."""
    for form in BOTH:
        options = {"subscribe": f"{TOPIC},no-such-topic", "startingOffsets": "earliest"}
        with pytest.raises(Exception, match=r"UnknownTopicOrPartition|no-such-topic"):
            run(source, kafka, form, options, tmp_path / form)


def test_a_stock_growth_and_restarts(source: Any, kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """New partitions of an unmanaged topic begin at their log start; a restart goes on from the checkpoint."""
    ends = []
    for form in BOTH:
        topic = f"grow-{form}"
        create(kafka, topic, 5)
        send(kafka, topic, [(p, None, b"old") for p in range(5)])

        def grow(topic: str = topic) -> None:
            admin = kafka.admin()
            admin.create_partitions([NewPartitions(topic, 10)])[topic].result(120)
            wait_for_partitions(admin, topic, 10, kafka.bootstrap_servers)
            send(kafka, topic, [(p, None, b"new") for p in range(10)])

        ran = run(source, kafka, form, {"subscribe": topic, "startingOffsets": "earliest"}, tmp_path / form, grow)
        assert sorted((row[3], row[1]) for row in ran.rows) == sorted(
            [(p, b"old") for p in range(5)] + [(p, b"new") for p in range(10)]
        )
        ends.append({n: end[topic] for n, end in ran.ends.items()})

    assert ends[1] == ends[0]


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "read Kafka transactional messages: read_committed",
    "read Kafka transactional messages: read_uncommitted",
)
def test_transactions(source: Any, kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """Aborted records are left out with read_committed and are there by default; gaps of markers are no loss."""
    create(kafka, "transactions", 1)
    producer = Producer({**kafka.client_config(), "transactional.id": "parity", "log_level": 0})
    producer.init_transactions()
    for commit, count in ((True, 3), (False, 4), (True, 0), (True, 2), (False, 5)):
        producer.begin_transaction()
        for n in range(count):
            producer.produce("transactions", f"{commit}-{n}".encode(), partition=0)
        producer.flush(120)  # an abort would throw away what was not sent yet
        producer.commit_transaction() if commit else producer.abort_transaction()
    for level, most in (("read_committed", "5"), ("read_uncommitted", "50")):
        options = {"subscribe": "transactions", "kafka.isolation.level": level, "startingOffsets": "earliest"}
        options["maxOffsetsPerTrigger"] = most
        native, ours = (run(source, kafka, form, options, tmp_path / level / form) for form in BOTH)

        assert len(native.rows) == (5 if level == "read_committed" else 14)
        assert (ours.batches, ours.ends) == (native.batches, native.ends)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_records_deleted_beneath_a_query(source: Any, kafka: KafkaUnderTest, tmp_path: Path, strict: str) -> None:
    """Deleted before they were read: an error, or with failOnDataLoss=false the rest."""
    results: list[Any] = []
    for form in BOTH:
        topic = f"loss-{form}-{strict}"
        create(kafka, topic, 2)
        send(kafka, topic, [(n % 2, None, b"%d" % n) for n in range(10)])

        def lose(topic: str = topic) -> None:
            send(kafka, topic, [(n % 2, None, b"%d" % n) for n in range(10, 40)])
            places = [TopicPartition(topic, p, 15) for p in range(2)]
            admin = kafka.admin()
            for future in admin.delete_records(places).values():
                future.result(120)

        options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": strict}
        try:
            ran = run(source, kafka, form, options, tmp_path / form, lose)
            results.append([(row[3], row[4], row[1]) for row in ran.rows])
        except Exception as error:
            results.append("lost" if "failOnDataLoss" in str(error) else str(error))

    assert results[1] == results[0]
    assert (results[0] == "lost") == (strict == "true")


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "subscribe topic by pattern with topic recreation between batches",
)
@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_topic_made_again(source: Any, kafka: KafkaUnderTest, tmp_path: Path, strict: str) -> None:
    """Shorter than what was read: an error, or with failOnDataLoss=false the query goes on with what comes."""
    results: list[Any] = []
    for form in BOTH:
        topic = f"again-{form}-{strict}"
        create(kafka, topic, 3)
        send(kafka, topic, [(n % 3, None, b"a") for n in range(15)])

        def again(topic: str = topic) -> None:
            admin = kafka.admin()
            admin.delete_topics([topic])[topic].result(120)
            create(kafka, topic, 3)
            send(kafka, topic, [(n % 3, None, b"b") for n in range(6)])

        options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": strict}
        try:
            ran = run(source, kafka, form, options, tmp_path / form, again)
            results.append([(row[3], row[4], row[1]) for row in ran.rows])
        except Exception as error:
            results.append("lost" if "failOnDataLoss" in str(error) else str(error))

    assert results[1] == results[0]
