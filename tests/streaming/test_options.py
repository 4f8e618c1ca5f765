"""The source's options, without a broker and without Spark."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from keyorder.partitioner.errors import ConfigError
from keyorder.streaming.source.offsets import from_dict, parse_offsets, parse_partitions, to_dict
from keyorder.streaming.source.options import BoundKind, source_options

BASE = {"kafka.bootstrap.servers": "h:9", "subscribe": "t"}


def test_the_defaults_are_those_of_sparks_own_source() -> None:
    """Each of them, streaming and batch."""
    stream, batch = source_options(BASE, streaming=True), source_options(BASE, streaming=False)

    assert (stream.start.kind, batch.start.kind) == (BoundKind.LATEST, BoundKind.EARLIEST)
    assert (stream.group_prefix, batch.group_prefix) == ("spark-kafka-source", "spark-kafka-relation")
    assert (stream.fail_on_data_loss, stream.headers, stream.poll_timeout) == (True, False, 120.0)
    assert (stream.fetch_retries, stream.fetch_retry_interval, stream.max_trigger_delay) == (3, 0.01, 900.0)
    assert (stream.max_offsets, stream.min_offsets, stream.min_partitions, stream.max_records) == (None,) * 4
    assert (stream.ordered, stream.commit_group, stream.latest_without_match) == (True, None, False)


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900.0), ("100ms", 0.1), ("5s", 5.0), ("2h", 7200.0), ("250", 0.25), ("1min", 60.0)]
)
def test_durations_are_read_as_spark_reads_them(text: str, seconds: float) -> None:
    """A bare number is milliseconds."""
    assert source_options({**BASE, "maxTriggerDelay": text}, streaming=True).max_trigger_delay == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("failOnDataLoss", "perhaps"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "many"),
        ("maxTriggerDelay", "soon"),
        ("startingOffsets", "yesterday"),
        ("startingOffsets", '{"t":{"0":"x"}}'),
        ("startingOffsets", '{"t":[0]}'),
        ("startingOffsetsByTimestampStrategy", "guess"),
        ("subscribePattern", "("),
        ("endingOffsets", "latest"),
        ("endingTimestamp", "5"),
        ("keyorder.commit.grup", "g"),
        ("minPartitions", "4"),
        ("maxRecordsPerPartition", "4"),
        ("enable.ordered.delivery", "1"),
    ],
)
def test_a_bad_option_is_one_error_that_names_it(name: str, value: str) -> None:
    """Before anything is asked of the cluster."""
    given = {k: v for k, v in BASE.items() if not (name == "subscribePattern" and k == "subscribe")}
    with pytest.raises(ConfigError) as raised:
        source_options({**given, name: value}, streaming=True)

    assert raised.value.setting == name


def test_a_split_is_allowed_by_name_only() -> None:
    """keyorder.allow.split says that the query orders the rows itself."""
    options = source_options({**BASE, "minPartitions": "4", "keyorder.allow.split": "true"}, streaming=True)

    assert options.min_partitions == 4


def test_no_secret_is_shown() -> None:
    """Neither in the options' text nor in an error about them."""
    secret = {
        **BASE,
        "kafka.sasl.jaas.config": 'a.PlainLoginModule required username="u" password="hunter2";',
        "kafka.ssl.key.password": "hunter2",
    }
    options = source_options(secret, streaming=True)

    assert options.client["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(ConfigError) as raised:
        source_options({**secret, "failOnDataLoss": "x"}, streaming=True)
    assert "hunter2" not in str(raised.value)


def test_offsets_have_sparks_shape_and_one_text() -> None:
    """Whatever order they come in; the key of gates is not a topic."""
    offsets = {("b", 10): 7, ("b", 2): 5, ("a", 0): 1}

    assert list(to_dict(offsets)["b"]) == ["2", "10"]
    assert to_dict(offsets) == {"a": {"0": 1}, "b": {"2": 5, "10": 7}}
    assert from_dict({**to_dict(offsets), "keyorder:gates": {}}) == offsets
    assert parse_offsets("o", '{"t":{"0":23,"1":-1}}') == {("t", 0): 23, ("t", 1): -1}
    assert parse_partitions("o", '{"t":[1,0]}') == (("t", 0), ("t", 1))


def test_the_pure_parts_need_no_spark() -> None:
    """Nor does planning or reading: only the classes that Spark asks for do."""
    modules = ", ".join(f"keyorder.streaming.source.{name}" for name in ("driver", "reading", "batch"))
    code = f"import {modules}, sys; assert 'pyspark' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
