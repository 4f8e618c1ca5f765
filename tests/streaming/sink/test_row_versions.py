"""A column `version` as the header of version compaction, and rows that are below their key's version in the topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder import TopicAdmin
from keyorder.compaction.strategy import Strategy, StrategyKind, encode_version, header_version
from keyorder.compaction.view import CompactedView
from keyorder.connector.metadata import wait_until_gone
from keyorder.partitioner.errors import ConfigError
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.sink.columns import SinkSchemaError
from keyorder.streaming.sink.errors import ReplayMismatchError, StaleVersionError
from keyorder.streaming.sink.markers import ensure_marker_topic
from keyorder.streaming.sink.options import SinkOptions, sink_options
from keyorder.streaming.sink.task import Task
from keyorder.streaming.sink.versions import with_versions
from keyorder.streaming.sink.warm import WARM
from keyorder.streaming.sink.writer import Written, write_task
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType
from support.cleaning import HELD
from support.cluster import KafkaUnderTest
from support.spark_driver import read_topic
from support.spark_source import delete

BASE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
CONFIG = {**HELD, "compaction.strategy": "header", "compaction.strategy.header": "v", "keyorder.view.age.ms": "200"}
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(["v", "w"]), "value": st.none() | st.binary(max_size=3)}), max_size=3
)


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    """The producers of a worker process live here in the test's."""
    yield
    WARM.close()


def schema(version: spark_types.DataType | None = None) -> StructType:
    """Keys, values, and a version of that type."""
    found = StructType().add("key", spark_types.StringType()).add("value", spark_types.StringType())
    return found if version is None else found.add("version", version)


@given(st.lists(st.tuples(HEADERS, st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=6))
def test_a_version_is_the_last_header_of_its_row_and_none_where_it_is_null(rows: list[Any]) -> None:
    """Eight bytes, as KIP-280 and producers write them."""
    headers = pa.array([h for h, _ in rows], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    numbers = np.array([v or 0 for _, v in rows], np.int64)
    present = np.array([v is not None for _, v in rows], bool)
    for (given_headers, version), found in zip(
        rows, with_versions(headers, "v", numbers, present).to_pylist(), strict=True
    ):
        added = [] if version is None else [{"key": "v", "value": encode_version(version)}]
        assert found == [*(given_headers or []), *added]
    for (_, version), found in zip(rows, with_versions(None, "v", numbers, present).to_pylist(), strict=True):
        assert header_version([(h["key"], h["value"]) for h in found], "v") == version


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compaction.strategy.header": " "}, "compaction.strategy.header: it is blank"),
        ({"compaction.strategy": "offset"}, "a sink writes versions as headers"),
        ({"keyorder.sink.stale": "drop"}, "use write, skip or fail"),
        ({"compaction.strategy.header": "v", "keyorder.sink.version.header": "v"}, "leave one of both out"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], words: str) -> None:
    """With their names."""
    with pytest.raises(ConfigError, match=words):
        sink_options({**BASE, **options})


def test_the_column_is_a_bigint_and_there_where_the_option_asks_for_it() -> None:
    """In the driver, before a task runs."""
    source = KeyorderDataSource({**BASE, "compaction.strategy.header": "v"})
    source.writer(schema(spark_types.LongType()), overwrite=False)
    with pytest.raises(SinkSchemaError, match="version attribute type must be a long, not string"):
        source.writer(schema(spark_types.StringType()), overwrite=False)
    with pytest.raises(SinkSchemaError, match="'version' not found"):
        source.writer(schema(), overwrite=False)
    with pytest.raises(ConfigError, match="no version to compare by"):
        KeyorderDataSource({**BASE, "keyorder.sink.stale": "skip"}).writer(schema(), overwrite=False)
    by_topic = schema(spark_types.LongType()).add("topic", spark_types.StringType())
    with pytest.raises(ConfigError, match="or rows name their topics"):
        KeyorderDataSource({"kafka.bootstrap.servers": "localhost:9092", "keyorder.sink.stale": "skip"}).writer(
            by_topic, overwrite=False
        )


def write(options: SinkOptions, rows: list[tuple[str | None, str | None, int | None]], batch: int = 0) -> Written:
    """What one task writes of these (key, value, version)."""
    columns = {
        "key": pa.array([r[0] for r in rows], pa.string()),
        "value": pa.array([r[1] for r in rows], pa.string()),
        "version": pa.array([r[2] for r in rows], pa.int64()),
    }
    return write_task(iter([pa.RecordBatch.from_pydict(columns)]), options, Task("query", batch, 0))


def options_of(kafka: KafkaUnderTest, topic: str, **more: str) -> SinkOptions:
    """As the driver makes them for rows with a column `version`."""
    named = {name.replace("__", "."): value for name, value in more.items()}
    source = KeyorderDataSource({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **named})
    return source._sink(schema(spark_types.LongType()))


@pytest.mark.kafka
def test_the_topics_own_header_is_written_and_another_topic_knows_no_versions(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """Without an option the topic says what becomes of the column; without a strategy it is none of the sink's concern."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=CONFIG)
    admin.create(f"{topic_name}-plain", 1)
    rows = [("a", "2", 2), ("a", "1", 1), ("b", "none", None), ("c", None, 3)]
    assert write(options_of(kafka, topic_name), rows).rows == 4
    write(options_of(kafka, f"{topic_name}-plain"), rows)
    found = {(m.value() or b"").decode(): m.headers() for m in read_topic(kafka.client_config(), topic_name)}
    versions = {value: None if headers is None else header_version(headers, "v") for value, headers in found.items()}
    assert versions == {"2": 2, "1": 1, "none": None, "": 3}
    assert all(m.headers() is None for m in read_topic(kafka.client_config(), f"{topic_name}-plain"))
    with CompactedView(kafka.client_config(), topic_name) as view:
        assert dict(view.load().items()) == {b"a": b"2", b"b": b"none"}


def write_by_topic(options: SinkOptions, batch: int, *rows: tuple[str, str, Any], kind: Any = None) -> Written:
    """What one task writes of these (topic, value, version), each key being the value; a row is a batch of its own."""
    fields = [("topic", pa.string()), ("key", pa.string()), ("value", pa.string()), ("Version", kind or pa.int64())]
    batches = [
        pa.RecordBatch.from_pylist([{"topic": t, "key": v, "value": v, "Version": n}], pa.schema(fields))
        for t, v, n in rows
    ]
    return write_task(iter(batches), options, Task(f"query-{rows[0][0]}", batch, 0))


def options_by_topic(kafka: KafkaUnderTest, version: spark_types.DataType, **more: str) -> SinkOptions:
    """As the driver makes them for rows with columns `topic` and `version`."""
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **more}
    return KeyorderDataSource(given)._sink(schema(version).add("topic", spark_types.StringType()))


def versions_of(kafka: KafkaUnderTest, topic: str) -> dict[str, Any]:
    """The headers of each value, versions as numbers."""
    return {
        (m.value() or b"").decode(): {name: header_version([(name, value)], name) for name, value in m.headers() or []}
        for m in read_topic(kafka.client_config(), topic)
    }


@pytest.fixture
def topics(kafka: KafkaUnderTest, topic_name: str) -> list[str]:
    """Of strategy header (v), header (w), offset, and one that is not managed."""
    from support.spark_source import create

    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=CONFIG)
    admin.create(f"{topic_name}-w", 1, config={**CONFIG, "compaction.strategy.header": "w"})
    admin.create(f"{topic_name}-plain", 1)
    create(kafka, f"{topic_name}-foreign", 1)
    ensure_marker_topic(kafka.client_config())
    return [topic_name, f"{topic_name}-w", f"{topic_name}-plain", f"{topic_name}-foreign"]


@pytest.mark.kafka
@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_each_topic_of_a_column_says_what_becomes_of_a_version(
    kafka: KafkaUnderTest, topics: list[str], exactly_once: str
) -> None:
    """Where rows name their topics, as where the option does."""
    header, other, plain, foreign = topics
    options = options_by_topic(kafka, spark_types.LongType(), **{"keyorder.sink.exactly.once": exactly_once})
    rows = [
        (plain, "a", 1),
        (header, "b", 2),
        (other, "c", 3),
        (foreign, "d", 4),
        (header, "e", None),
        (header, "f", 5),
    ]
    assert write_by_topic(options, 0, *rows).rows == 6
    assert versions_of(kafka, header) == {"b": {"v": 2}, "e": {}, "f": {"v": 5}}
    assert versions_of(kafka, other) == {"c": {"w": 3}}
    assert versions_of(kafka, plain) == {"a": {}}
    assert versions_of(kafka, foreign) == {"d": {}}


@pytest.mark.kafka
def test_a_replay_has_the_versions_that_were_written(kafka: KafkaUnderTest, topics: list[str]) -> None:
    """Those that a topic has no use for may be others, such as the current time, however the rows are cut into batches."""
    header, _, plain, foreign = topics
    options = options_by_topic(kafka, spark_types.LongType(), **{"keyorder.sink.exactly.once": "true"})
    assert write_by_topic(options, 0, (plain, "a", 1), (header, "b", 2), (foreign, "c", 3)).replayed is False
    assert write_by_topic(options, 0, (plain, "a", 7), (header, "b", 2), (foreign, "c", None)).replayed is True
    with pytest.raises(ReplayMismatchError):
        write_by_topic(options, 0, (plain, "a", 1), (header, "b", 3), (foreign, "c", 3))


@pytest.mark.kafka
@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_a_column_that_only_happens_to_be_called_version_is_left_alone(
    kafka: KafkaUnderTest, topics: list[str], exactly_once: str
) -> None:
    """Of whatever type, in topics without the strategy; one with it wants a number."""
    header, _, plain, foreign = topics
    options = options_by_topic(kafka, spark_types.StringType(), **{"keyorder.sink.exactly.once": exactly_once})
    assert write_by_topic(options, 0, (plain, "a", "1.0"), (foreign, "b", None), kind=pa.string()).rows == 2
    assert versions_of(kafka, plain) == {"a": {}}
    assert versions_of(kafka, foreign) == {"b": {}}
    with pytest.raises(SinkSchemaError, match="version attribute type must be a long, not string"):
        write_by_topic(options, 1, (header, "c", "1.0"), kind=pa.string())


@pytest.mark.kafka
def test_a_topics_header_is_not_written_twice(kafka: KafkaUnderTest, topics: list[str]) -> None:
    """By the column and by keyorder.sink.version.header."""
    header, other, *_ = topics
    options = options_by_topic(kafka, spark_types.LongType(), **{"keyorder.sink.version.header": "v"})
    write_by_topic(options, 0, (other, "a", 1))
    assert versions_of(kafka, other) == {"a": {"v": 0, "w": 1}}
    with pytest.raises(ConfigError, match="the column version is written as v already"):
        write_by_topic(options, 0, (header, "b", 1))


@pytest.mark.kafka
@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_stale_rows_are_left_out(kafka: KafkaUnderTest, topic_name: str, exactly_once: str) -> None:
    """Below the topic's version or an earlier row's; equal ones, keys without versions and rows without keys are written."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=CONFIG)
    skip = options_of(kafka, topic_name, keyorder__sink__stale="skip", keyorder__sink__exactly__once=exactly_once)
    if exactly_once == "true":
        KeyorderDataSource(
            {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "keyorder.sink.exactly.once": "true",
                "topic": topic_name,
            }
        ).writer(schema(), overwrite=False)  # makes the topic of markers
    first = write(skip, [("a", "a5", 5), ("a", "a4", 4), ("b", "b0", None), ("b", "b1", 1), ("b", "b2", None)], 0)
    assert (first.rows, first.stale) == (5, 2)
    admin.expand(topic_name, 3)
    again = write(skip, [("a", "a4", 4), ("a", "a5", 5), ("b", "b-1", -1), ("b", "b3", 3), ("c", "c", 0)], 1)
    assert (again.rows, again.stale) == (5, 2)
    with CompactedView(kafka.client_config(), topic_name) as view:
        assert dict(view.load().items()) == {b"a": b"a5", b"b": b"b3", b"c": b"c"}
        assert view.counts.records - view.counts.move_tombstones == 3 + 3
    if exactly_once == "false":
        fail = options_of(kafka, topic_name, keyorder__sink__stale="fail")
        with pytest.raises(StaleVersionError, match="has version 2, and its key has version 5"):
            write(fail, [("a", "late", 2)], 2)


@pytest.mark.kafka
def test_versions_of_a_topic_that_is_made_again_count_no_more(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A worker process remembers a table between tasks, but not that of another topic of the same name."""
    from support.spark_source import create

    create(kafka, topic_name, 1)
    skip = options_of(kafka, topic_name, keyorder__sink__stale="skip", compaction__strategy__header="v")
    assert write(skip, [("a", "old", 9)]).stale == 0
    assert write(skip, [("a", "older", 8), (None, "of no key", 1)]).stale == 1
    WARM.close()
    delete(kafka, topic_name)
    wait_until_gone(kafka.admin(), topic_name, kafka.bootstrap_servers)
    create(kafka, topic_name, 1)
    TopicAdmin(kafka.client_config()).adopt(topic_name, again=True)
    assert write(skip, [("a", "new", 1)]).stale == 0
    strategy = Strategy(StrategyKind.HEADER, "v")
    with CompactedView(kafka.client_config(), topic_name, strategy) as view:
        assert dict(view.load().items()) == {b"a": b"new"}
