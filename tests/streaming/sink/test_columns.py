"""Rows as columns: what is refused before anything is written, and what becomes of topics, headers and versions."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.errors import ConfigError
from keyorder.streaming.sink.columns import (
    HEADER_TYPE,
    NullTopicError,
    SinkSchemaError,
    check_schema,
    split_by_topic,
)
from keyorder.streaming.sink.errors import ReplayMismatchError, StaleTaskError, TaskCountError
from keyorder.streaming.sink.fingerprint import Fingerprint
from keyorder.streaming.sink.options import sink_options
from keyorder.streaming.sink.versions import VersionRangeError, versions, with_versions
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType

BASE = {"kafka.bootstrap.servers": "localhost:9092"}
HEADERS = st.lists(
    st.none()
    | st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})),
    max_size=8,
)


def schema_of(text: str) -> StructType:
    """`name type, name type` as a schema, without a session that could parse it."""
    kinds = {
        "map<string,binary>": spark_types.MapType(spark_types.StringType(), spark_types.BinaryType()),
        "int": spark_types.IntegerType(),
        "long": spark_types.LongType(),
        "string": spark_types.StringType(),
        "binary": spark_types.BinaryType(),
    }
    schema = StructType()
    for field in text.split(", "):
        name, kind = field.split(" ")
        schema.add(name, kinds[kind])
    return schema


@pytest.mark.parametrize(
    ("schema", "topic", "words"),
    [
        ("key string", "t", "'value' not found"),
        ("value string", None, "topic option required"),
        ("value int", "t", "value attribute type must be a string or binary"),
        ("value string, key long", "t", "key attribute type"),
        ("value string, topic binary", None, "topic attribute type"),
        ("value string, headers map<string,binary>", "t", "headers attribute type"),
    ],
)
def test_schemas_that_are_no_records_are_refused_with_the_columns_name(
    schema: str, topic: str | None, words: str
) -> None:
    with pytest.raises(SinkSchemaError, match=words):
        check_schema(schema_of(schema), topic, False)


def test_a_topic_column_counts_only_without_the_option() -> None:
    """The option wins, and a blank around its name is none of it, as in Spark's own sink."""
    check_schema(schema_of("value string, topic binary"), "t", False)
    assert sink_options({**BASE, "topic": " t "}).topic == "t"


def test_a_partition_column_needs_the_option_that_allows_it() -> None:
    schema = schema_of("value string, partition int")
    with pytest.raises(ConfigError, match=r"keyorder\.allow\.explicit\.partition"):
        check_schema(schema, "t", False)
    check_schema(schema, "t", True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "kafka.bootstrap.servers: it is missing"),
        ({**BASE, "topic": " "}, "topic: it is blank"),
        ({**BASE, "keyorder.sink.version.header": ""}, "keyorder.sink.version.header: it is blank"),
        ({**BASE, "keyorder.sink.exactly.once": "maybe"}, "neither true nor false"),
        ({**BASE, "keyorder.sink.typo": "1"}, "keyorder.sink.typo: there is no such option"),
        ({**BASE, "topics": "t"}, "topics: there is no such option; did you mean topic?"),
        (
            {**BASE, "kafka.linger.mss": "5"},
            "kafka.linger.mss: there is no such setting; did you mean kafka.linger.ms?",
        ),
        ({**BASE, "kafka.linger.ms": "soon"}, "kafka.linger.ms"),
        ({**BASE, "kafka.buffer.memory": "much"}, "kafka.buffer.memory: 'much' is no whole number"),
        ({**BASE, "kafka.key.serializer": "x"}, "kafka.key.serializer: it is not supported"),
        ({**BASE, "kafka.partitioner.class": "com.example.Mine"}, "kafka.partitioner.class"),
        ({**BASE, "kafka.transactional.id": "x"}, "kafka.transactional.id"),
        ({**BASE, "kafka.transactional.id": "x", "keyorder.sink.exactly.once": "true"}, "kafka.transactional.id"),
    ],
)
def test_options_that_cannot_be_are_refused_with_their_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sink_options(options)


def test_settings_of_a_consumer_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One set of options for source and sink, as Spark's own take it."""
    of_consumers = ("auto.offset.reset", "enable.auto.commit", "key.deserializer", "value.deserializer")
    client = sink_options({**BASE, **{f"kafka.{name}": "x" for name in of_consumers}}).client

    assert not set(of_consumers) & set(client)
    assert all(name in caplog.text for name in of_consumers)


def test_a_weaker_promise_than_the_sinks_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Options of a job that wrote with Spark's own sink: rows are acknowledged by all replicas here, and none is doubled."""
    weaker = {"kafka.acks": "1", "kafka.enable.idempotence": "false", "kafka.partition.assignment.strategy": "x"}
    levels = {"kafka.compression.zstd.level": "3", "kafka.compression.gzip.level": "9"}
    options = sink_options({**BASE, **weaker, **levels, "kafka.compression.type": "zstd"})

    assert "acks" not in options.client
    assert "enable.idempotence" not in options.client
    assert options.client["compression.level"] == "3"
    assert all(name in caplog.text for name in weaker)


def test_no_secret_shows_in_what_travels_to_the_executors() -> None:
    options = sink_options({**BASE, "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.password": "hush", "topic": "t"})
    assert options.client["sasl.password"] == "hush"
    assert "hush" not in repr(options)


def test_rows_go_to_the_topic_of_the_option_or_of_their_column_in_order() -> None:
    batch = pa.record_batch(
        {"topic": ["a", "b", "a"], "key": [b"1", None, b"3"], "value": pa.array(["x", "y", None], pa.string())}
    )
    by_column = {rows.topic: rows for rows in split_by_topic(batch, None)}
    assert by_column["a"].key.to_pylist() == [b"1", b"3"]
    assert by_column["a"].value.to_pylist() == [b"x", None]
    assert by_column["b"].key.to_pylist() == [None]
    (rows,) = split_by_topic(batch, "c")
    assert (rows.topic, rows.value.to_pylist()) == ("c", [b"x", b"y", None])


def test_a_row_without_topic_is_refused() -> None:
    batch = pa.record_batch({"topic": ["a", None], "value": [b"x", b"y"]})
    with pytest.raises(NullTopicError, match="null topic"):
        list(split_by_topic(batch, None))


@given(HEADERS, st.integers(0, 5))
def test_a_version_is_the_last_header_of_its_row(
    given_headers: list[list[dict[str, object]] | None], first: int
) -> None:
    numbers = versions(7, 3, first, len(given_headers))
    column = with_versions(pa.array(given_headers, HEADER_TYPE), "v", numbers)
    expected = [
        [*(headers or []), {"key": "v", "value": struct.pack(">q", (7 << 35) + (3 << 23) + first + row)}]
        for row, headers in enumerate(given_headers)
    ]
    assert column.to_pylist() == expected


def test_versions_grow_with_rows_tasks_and_batches_and_never_overflow() -> None:
    assert list(versions(0, 0, 0, 3)) == [0, 1, 2]
    assert versions(1, 0, 0, 1)[0] > versions(0, 4095, (1 << 23) - 1, 1)[0]
    assert versions((1 << 28) - 1, 4095, (1 << 23) - 1, 1)[0] == (1 << 63) - 1
    for part in ((1 << 28, 0, 0), (0, 4096, 0), (0, 0, 1 << 23)):
        with pytest.raises(VersionRangeError):
            versions(*part, 1)


@pytest.mark.parametrize(
    "error",
    [ReplayMismatchError("q/0", 7, "1:", "2:"), StaleTaskError("q/0", 6, 7), TaskCountError("q", 7, 2, [2, 3])],
)
def test_who_is_told_to_start_a_new_checkpoint_hears_of_versions(error: Exception) -> None:
    """They begin at 0 again with it."""
    assert "new checkpoint" in str(error)
    assert "versions of keyorder.sink.version.header start anew with it" in str(error)


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "key": st.none() | st.binary(max_size=4),
                "value": st.none() | st.text(max_size=4),
                "headers": st.none()
                | st.lists(st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.none()})),
                "partition": st.none() | st.integers(0, 9),
            }
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 12),
    st.data(),
)
def test_a_fingerprint_tells_other_rows_and_not_other_batches(
    rows: list[dict[str, object]], cut: int, data: st.DataObject
) -> None:
    schema = pa.schema(
        [("key", pa.binary()), ("value", pa.string()), ("headers", HEADER_TYPE), ("partition", pa.int32())]
    )

    def fingerprint(*parts: list[dict[str, object]]) -> str:
        seen = Fingerprint()
        for part in parts:
            seen.add(pa.RecordBatch.from_pylist(part, schema))
        return seen.digest()

    whole = fingerprint(rows)
    assert fingerprint(rows[:cut], rows[cut:]) == whole
    assert fingerprint(data.draw(st.permutations(rows))) == whole
    at, other = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.sampled_from(rows))
    assert fingerprint([*rows, other]) != whole
    assert fingerprint(rows[:at], rows[at + 1 :]) != whole
    if other != rows[at]:
        assert fingerprint(rows[:at], [other], rows[at + 1 :]) != whole
        name = data.draw(st.sampled_from([name for name in other if other[name] != rows[at][name]]))
        assert fingerprint(rows[:at], [{**rows[at], name: other[name]}], rows[at + 1 :]) != whole


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 127, 128, 129, 4_000])
def test_a_fingerprint_sees_each_byte_of_a_value(size: int) -> None:
    """Values are hashed eight bytes at a time, and long ones in another way; the rows beside it are longer and shorter."""

    def fingerprint(value: bytes, beside: int) -> str:
        seen = Fingerprint()
        seen.add(pa.record_batch({"value": pa.array([b"x" * beside, value, b"", None, b"ab"], pa.binary())}).slice(1))
        return seen.digest()

    value = bytes(n % 251 for n in range(size))
    changed = [value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :] for at in range(size)]
    others = {fingerprint(each, 3) for each in [*changed, value + b"\0", value[:-1] if size else b"a"]}
    assert len(others) == size + 2
    assert fingerprint(value, 0) == fingerprint(value, 5_000) == fingerprint(value, 3)
    assert fingerprint(value, 3) not in others


@pytest.mark.parametrize("size", [8, 16, 40])
def test_a_fingerprint_sees_the_signs_of_packed_numbers(size: int) -> None:
    """The top bits of neighbouring words: what differs in them alone is what a weak mixing of words cancels out."""

    def fingerprint(signs: int) -> str:
        seen, numbers = Fingerprint(), [(n + 1.5) * (-1 if signs >> n & 1 else 1) for n in range(size)]
        seen.add(pa.record_batch({"value": [struct.pack(f"<{size}f", *numbers)]}))
        return seen.digest()

    assert len({fingerprint(signs) for signs in range(256)}) == 256


def test_a_fingerprint_sees_which_column_a_value_is_in_and_which_row() -> None:
    def fingerprint(**columns: list[bytes]) -> str:
        seen = Fingerprint()
        seen.add(pa.record_batch(columns))
        return seen.digest()

    pairs = fingerprint(key=[b"a", b"b"], value=[b"1", b"2"])
    assert fingerprint(key=[b"b", b"a"], value=[b"2", b"1"]) == pairs
    assert fingerprint(key=[b"b", b"a"], value=[b"1", b"2"]) != pairs
    assert fingerprint(key=[b"1", b"2"], value=[b"a", b"b"]) != pairs
