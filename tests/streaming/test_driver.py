"""A query's driver and its tasks on a real broker, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.arrow.reader import ArrowReader
from keyorder.connector.metadata import wait_for_partitions
from keyorder.partitioner.errors import ConfigError, IdentityMismatchError
from keyorder.streaming.errors import DataLossError, OffsetsMismatchError
from keyorder.streaming.source import reading
from keyorder.streaming.source.driver import QueryDriver
from keyorder.streaming.source.offsets import Place, Range, from_dict
from keyorder.streaming.source.options import SourceOptions, source_options
from keyorder.streaming.source.readers import StreamReader
from keyorder.streaming.source.reading import read_ranges
from pyspark.sql.streaming.datasource import ReadAllAvailable
from support.cluster import KafkaUnderTest
from support.spark_source import create, send


@pytest.fixture(autouse=True, scope="module")
def _no_reader_is_left() -> Iterator[None]:
    """Tasks ran in this process: their warm readers would go on asking for a broker that has stopped."""
    yield
    reading._WARM.close()


def options(kafka: KafkaUnderTest, **given: str) -> SourceOptions:
    """A streaming query's, from the beginning."""
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest"}
    return source_options({**base, **{name.replace("_", "."): value for name, value in given.items()}}, streaming=True)


def grown(kafka: KafkaUnderTest, topic: str) -> TopicAdmin:
    """2 -> 4 partitions, sixty records of 20 keys before and after."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic, 2)
    with OrderedProducer({**kafka.client_config(), "linger.ms": 1}) as producer:
        for n in range(120):
            if n == 60:
                assert producer.flush(120) == 0
                admin.expand(topic, 4)
            producer.produce(topic, b"%d" % (n // 20), b"k%d" % (n % 20))
        assert producer.flush(120) == 0
    return admin


def batches(driver: QueryDriver, start: dict[Place, int]) -> list[dict[Place, int]]:
    """The ends of batch after batch until nothing is left."""
    found = []
    while (end := driver.latest(start, limited=True)) != start:
        found.append(end)
        start = end
    return found


@pytest.mark.kip("K253-01")
def test_new_partitions_come_a_batch_after_their_origins(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The first batch has what lies before the gates, and says what the rest waits for; the second has the rest."""
    grown(kafka, topic_name)
    driver = QueryDriver(options(kafka, subscribe=topic_name))
    start = driver.initial()
    first = driver.latest(start, limited=True)
    closed = {gate.partition: [(q, at) for q, _, at in gate.blockers] for gate in driver.closed}
    second = driver.latest(first, limited=True)

    assert {p: first[topic_name, p] for p in (2, 3)} == {2: 0, 3: 0}
    assert closed == {2: [(0, 0)], 3: [(1, 0)]}
    assert second == driver.ends
    assert driver.closed == ()
    # The same question again, by a driver that knows nothing: the batch is a function of its offsets.
    again = QueryDriver(options(kafka, subscribe=topic_name))
    assert again.tasks(first, second)[0] == driver.tasks(first, second)[0]
    driver.close()
    again.close()


def test_without_ordered_delivery_everything_comes_at_once(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The option of the query wins over the topic's setting."""
    grown(kafka, topic_name)
    driver = QueryDriver(options(kafka, subscribe=topic_name, enable_ordered_delivery="false"))

    assert batches(driver, driver.initial()) == [driver.ends]
    driver.close()


def test_latest_starts_are_a_consistent_cut(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Offsets by hand that skip the origins but not the moved keys are lowered."""
    grown(kafka, topic_name)
    by_hand = json.dumps({topic_name: {"0": 0, "1": -1, "2": -1, "3": -1}})
    driver = QueryDriver(options(kafka, subscribe=topic_name, startingOffsets=by_hand))
    start = driver.initial()

    assert start[topic_name, 2] == 0
    assert start[topic_name, 3] == driver.latest(start, limited=True)[topic_name, 3] > 0
    driver.close()


def test_a_partition_without_its_origin_is_refused(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It would wait for ever; the error names both ways out."""
    grown(kafka, topic_name)
    driver = QueryDriver(options(kafka, assign=json.dumps({topic_name: [1, 2, 3]})))

    with pytest.raises(ConfigError, match=r"assign its origins too, or set enable\.ordered\.delivery=false"):
        driver.latest(driver.initial(), limited=True)
    driver.close()


def test_a_managed_topic_made_again_stops_the_query(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its timeline is another topic's: nothing is planned by it, whatever failOnDataLoss says."""
    grown(kafka, topic_name)
    driver = QueryDriver(options(kafka, subscribe=topic_name, failOnDataLoss="false"))
    start = driver.initial()
    raw = kafka.admin()
    raw.delete_topics([topic_name])[topic_name].result(120)
    create(kafka, topic_name, 4)

    with pytest.raises(IdentityMismatchError, match="adopt"):
        driver.latest(start, limited=True)
    driver.close()


@pytest.mark.scala("KafkaMicroBatchSourceSuite", "compositeReadLimit")
def test_few_records_wait_and_many_are_cut(kafka: KafkaUnderTest, topic_name: str) -> None:
    """minOffsetsPerTrigger and maxOffsetsPerTrigger together: what is left over waits for the least number, too."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"x")] * 8)
    limits = {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "6", "maxTriggerDelay": "1h"}
    driver = QueryDriver(options(kafka, subscribe=topic_name, **limits))
    first = driver.latest({}, limited=True)
    waiting = driver.latest(first, limited=True)
    send(kafka, topic_name, [(0, None, b"x")] * 6)
    cut = driver.latest(first, limited=True)

    assert [o[topic_name, 0] for o in (first, waiting, cut)] == [6, 6, 12]
    driver.close()


@pytest.mark.scala(
    "KafkaMicroBatchSourceSuite",
    "minOffsetsPerTrigger",
)
def test_few_records_wait_for_more_or_for_the_delay(kafka: KafkaUnderTest, topic_name: str) -> None:
    """minOffsetsPerTrigger: the first batch comes at once, then only with enough; maxTriggerDelay ends the wait."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"x")] * 2)
    driver = QueryDriver(options(kafka, subscribe=topic_name, minOffsetsPerTrigger="5", maxTriggerDelay="1h"))
    first = driver.latest({}, limited=True)
    send(kafka, topic_name, [(0, None, b"x")] * 4)
    waiting = driver.latest(first, limited=True)
    unlimited = driver.latest(first, limited=False)
    send(kafka, topic_name, [(0, None, b"x")])
    enough = driver.latest(first, limited=True)

    assert [o[topic_name, 0] for o in (first, waiting, unlimited, enough)] == [2, 2, 6, 7]
    driver.close()
    hasty = QueryDriver(options(kafka, subscribe=topic_name, minOffsetsPerTrigger="5", maxTriggerDelay="0ms"))
    assert hasty.latest({(topic_name, 0): 6}, limited=True) == {(topic_name, 0): 7}
    hasty.close()


def test_an_error_that_is_no_loss_loses_nothing(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log still holds everything: the task asks again from what it has given out, with failOnDataLoss=false too."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(n % 2, None, b"%d" % n) for n in range(40)])
    real, calls = ArrowReader.read, []

    def read(self: ArrowReader, max_rows: int = 7, timeout: float = 1.0) -> Any:
        batch = real(self, 7, timeout)
        calls.append(len(batch))
        if len(calls) in (1, 3):  # the rows of this call are gone with it
            raise KafkaException(KafkaError(KafkaError._AUTO_OFFSET_RESET))
        return batch

    monkeypatch.setattr(ArrowReader, "read", read)
    ranges = tuple(Range(topic_name, p, 0, 20) for p in range(2))
    for strict in ("true", "false"):
        calls.clear()
        given = options(kafka, subscribe=topic_name, failOnDataLoss=strict)
        rows = [row for batch in read_ranges(given, ranges, {}) for row in batch.to_pylist()]

        assert sorted(int(row["value"]) for row in rows) == list(range(40))
        for p in range(2):
            assert [row["offset"] for row in rows if row["partition"] == p] == list(range(20))


def test_a_range_beyond_the_log_is_a_loss(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Said with its offsets; with failOnDataLoss=false there is what there is."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"x")] * 3)
    beyond = (Range(topic_name, 0, 7, 9),)

    with pytest.raises(DataLossError, match="ends at 3, before offset 9"):
        list(read_ranges(options(kafka, subscribe=topic_name), beyond, {}))
    assert list(read_ranges(options(kafka, subscribe=topic_name, failOnDataLoss="false"), beyond, {})) == []


def test_rows_that_are_taken_slowly_are_no_silence_of_the_log(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafkaConsumer.pollTimeoutMs is the patience with the broker: how long the query works on a batch is its own affair."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"%d" % n) for n in range(6)])
    ahead = [0.0]
    real = clock.now
    monkeypatch.setattr(reading, "_ROWS", 2)
    monkeypatch.setattr(clock, "now", lambda: real() + ahead[0])
    rows: list[Any] = []
    for batch in read_ranges(options(kafka, subscribe=topic_name), (Range(topic_name, 0, 0, 6),), {}):
        rows += batch.to_pylist()
        ahead[0] += 1000.0

    assert [row["value"] for row in rows] == [b"%d" % n for n in range(6)]
    assert ahead[0] >= 3000.0


def test_records_that_come_while_a_query_begins_are_no_loss(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Trigger.AvailableNow from `latest`: Spark prepares it before it asks for the start, and the topic is being written."""
    create(kafka, topic_name, 1)
    send(kafka, topic_name, [(0, None, b"x")] * 3)
    reader = StreamReader(options(kafka, subscribe=topic_name, startingOffsets="latest"))
    reader.prepareForTriggerAvailableNow()
    send(kafka, topic_name, [(0, None, b"x")] * 2)
    start = reader.initialOffset()
    send(kafka, topic_name, [(0, None, b"x")] * 4)
    end = reader.latestOffset(start, ReadAllAvailable())
    send(kafka, topic_name, [(0, None, b"x")])
    again = reader.latestOffset(end, ReadAllAvailable())

    assert start == {topic_name: {"0": 5}}
    assert from_dict(end) == from_dict(again) == {(topic_name, 0): 9}
    reader.stop()


def test_a_run_to_what_was_there_passes_a_growth_and_shrink(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Trigger.AvailableNow: a partition that comes and goes meanwhile lies beyond what is to be read, and stops nothing."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1)

    def write() -> None:
        with OrderedProducer({**kafka.client_config(), "linger.ms": 1}) as producer:
            for n in range(40):
                producer.produce(topic_name, b"x", b"k%d" % n)
            assert producer.flush(120) == 0

    write()
    driver = QueryDriver(options(kafka, subscribe=topic_name, maxOffsetsPerTrigger="10"))
    driver.target()
    start = driver.initial()
    first = driver.latest(start, limited=True)
    for count in (2, 1):
        (admin.expand if count == 2 else admin.shrink)(topic_name, count)
        write()
    ends = batches(driver, first)

    assert [end[topic_name, 0] for end in (first, *ends)] == [10, 20, 30, 40]
    driver.close()


def test_a_first_batch_runs_again_after_the_topic_has_grown(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Offsets by hand name the partitions of the query's start: a batch that is run again has its end already."""
    create(kafka, topic_name, 2)
    send(kafka, topic_name, [(p, None, b"x") for p in (0, 1) for _ in range(8)])
    given = options(kafka, subscribe=topic_name, startingOffsets=json.dumps({topic_name: {"0": 5, "1": 7}}))
    reader = StreamReader(given)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic_name, 3)])[topic_name].result(120)
    wait_for_partitions(admin, topic_name, 3, kafka.bootstrap_servers)
    # Spark asks a second time within one run, and once more when it is started again before the batch was done.
    again = reader.initialOffset()
    restarted = StreamReader(given)
    other = restarted.initialOffset()

    for reader_, begins in ((reader, again), (restarted, other)):
        assert begins == start
        ranges = [r for task in reader_.partitions(begins, end) for r in task.ranges]
        assert sorted((r.partition, r.start, r.end) for r in ranges) == [(0, 5, 8), (1, 7, 8)]
    new = StreamReader(given)
    with pytest.raises(OffsetsMismatchError):
        new.latestOffset(new.initialOffset(), ReadAllAvailable())
    for each in (reader, restarted, new):
        each.stop()
