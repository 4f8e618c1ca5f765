"""The source's options, without a broker and without Spark."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
from keyorder.partitioner.errors import ConfigError
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.errors import UnknownStartError
from keyorder.streaming.source.offsets import (
    from_dict,
    parse_offsets,
    parse_partitions,
    start_of,
    to_dict,
    with_start,
)
from keyorder.streaming.source.options import BoundKind, source_options
from keyorder.streaming.source.starts import first_start, known_start

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
    ("text", "seconds"),
    [
        ("15m", 900),
        ("100ms", 0.1),
        ("5s", 5),
        ("2h", 7200),
        ("250", 0.25),
        ("1min", 60),
        (" 15M ", 900),
        ("700us", 0.0007),
    ],
)
def test_durations_are_read_as_spark_reads_them(text: str, seconds: float) -> None:
    """A bare number is milliseconds."""
    assert source_options({**BASE, "maxTriggerDelay": text}, streaming=True).max_trigger_delay == pytest.approx(seconds)


def test_a_bound_that_another_one_wins_over_is_not_looked_at() -> None:
    """A time wins over offsets: what a batch query refuses there is refused only where it counts."""
    loser = {"startingOffsets": "latest", "endingOffsets": "earliest"}
    batch = source_options({**BASE, **loser, "startingTimestamp": "5", "endingTimestamp": "9"}, streaming=False)

    assert (batch.start.time, batch.end.time) == (5, 9)
    for name, value in loser.items():
        with pytest.raises(ConfigError, match=f"offset can't be {value} for batch queries"):
            source_options({**BASE, name: value}, streaming=False)


@pytest.mark.parametrize(
    ("end", "words"), [({"0": 9}, "same topic-partitions"), ({"0": 5, "1": 3}, "timestamp 4 is greater")]
)
def test_times_of_both_sides_fit_each_other(end: dict[str, int], words: str) -> None:
    """Whatever the topics hold, as offsets have to."""
    times = {"startingOffsetsByTimestamp": {"0": 4, "1": 4}, "endingOffsetsByTimestamp": end}
    with pytest.raises(ConfigError, match=words):
        source_options({**BASE, **{name: json.dumps({"t": by}) for name, by in times.items()}}, streaming=False)


def test_settings_of_a_producer_are_left_out_of_a_source(caplog: pytest.LogCaptureFixture) -> None:
    """One set of options for source and sink, as Spark's own take it."""
    client = source_options({**BASE, "kafka.key.serializer": "x", "kafka.value.serializer": "x"}, streaming=True).client

    assert not any("serializer" in name for name in client)
    assert "kafka.key.serializer" in caplog.text


@pytest.mark.parametrize("level", ["READ_COMMITTED", " read_committed "])
def test_an_isolation_level_is_one_word_for_driver_and_tasks(level: str) -> None:
    """The client library takes it in any case; the driver chooses by it where a batch ends."""
    client = source_options({**BASE, "kafka.isolation.level": level}, streaming=True).client

    assert client["isolation.level"] == "read_committed"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"startingOffsets": "latest", "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"endingOffsets": "5", "failOnDataLoss": "maybe"}, "endingOffsets"),
        ({"endingOffsets": "latest", "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5", "startingOffsets": "latest"},
            "minOffsetsPerTrigger",
        ),
    ],
)
def test_the_error_is_one_of_both_kinds_of_query(given: dict[str, str], named: str) -> None:
    """`load()` does not know which it is: what only the other kind refuses would mislead."""
    with pytest.raises(ConfigError) as raised:
        KeyorderDataSource({**BASE, **given}).schema()
    assert raised.value.setting == named


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
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}'),
        ("startingOffsetsByTimestamp", '{"t":{"0":5,"1":"-2"}}'),
        ("startingOffsetsByTimestampStrategy", "guess"),
        ("subscribePattern", "("),
        ("endingOffsets", "latest"),
        ("endingTimestamp", "5"),
        ("keyorder.commit.grup", "g"),
        ("enable.ordered.delivery", "1"),
        ("failOnDataLoss", ""),
    ],
)
def test_a_bad_option_is_one_error_that_names_it(name: str, value: str) -> None:
    """Before anything is asked of the cluster."""
    given = {k: v for k, v in BASE.items() if not (name == "subscribePattern" and k == "subscribe")}
    with pytest.raises(ConfigError) as raised:
        source_options({**given, name: value}, streaming=True)

    assert raised.value.setting == name


@pytest.mark.parametrize("value", [str(2**63), "9" * 5000])
@pytest.mark.parametrize(
    "name",
    [
        "startingTimestamp", "endingTimestamp", "minPartitions", "maxOffsetsPerTrigger", "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.retryIntervalMs", "keyorder.task.min.records", "keyorder.compact.memory.mb",
    ],
)  # fmt: skip
def test_a_number_beyond_all_that_there_are(name: str, value: str) -> None:
    """A broker's offsets and times have 64 bits, as numbers in Spark have: the option is named, and the most that it takes."""
    given = {**BASE, name: value, **({"keyorder.compact": "topic"} if "compact" in name else {})}
    with pytest.raises(ConfigError, match="9223372036854775807") as raised:
        source_options(given, streaming=False)
    assert raised.value.setting == name
    assert len(str(raised.value)) < 300


def test_the_largest_number_is_taken() -> None:
    """Also a time that no record has."""
    given = {**BASE, "startingTimestamp": str(2**63 - 1), "maxOffsetsPerTrigger": f" 00{2**63 - 1} "}
    options = source_options(given, streaming=True)
    assert (options.start.time, options.max_offsets) == (2**63 - 1, 2**63 - 1)


@pytest.mark.parametrize("value", ["9" * 5000 + "d", "9" * 400 + "d", f"{2**63}ms"])
def test_a_duration_beyond_all_that_there_are(value: str) -> None:
    """One error, which names the option."""
    with pytest.raises(ConfigError, match="not a duration") as raised:
        source_options({**BASE, "maxTriggerDelay": value}, streaming=True)
    assert (raised.value.setting, len(str(raised.value)) < 300) == ("maxTriggerDelay", True)


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
def test_a_stream_is_split_by_name_only(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A wish that would cost order is left out with a warning; keyorder.allow.split says that the query orders the rows."""
    field = "min_partitions" if name == "minPartitions" else "max_records"
    assert getattr(source_options({**BASE, name: "4"}, streaming=True), field) is None
    assert name in caplog.text
    assert getattr(source_options({**BASE, name: "4", "keyorder.allow.split": "true"}, streaming=True), field) == 4
    assert getattr(source_options({**BASE, name: "4"}, streaming=False), field) == 4  # a batch promises no order


@pytest.mark.parametrize(
    ("wrong", "right"), [("failOnDatalos", "failOnDataLoss"), ("startingOffset", "startingOffsets")]
)
def test_a_misspelt_option_is_refused_with_the_right_one(wrong: str, right: str) -> None:
    """One that resembles none is for somebody else, as in Spark."""
    with pytest.raises(ConfigError, match=f"did you mean {right}"):
        source_options({**BASE, wrong: "earliest"}, streaming=True)
    assert source_options({**BASE, "mergeSchema": "true", "path": "x"}, streaming=True)


@pytest.mark.parametrize("pattern", [r"\p{Lower}+", "[a-z&&[^b]]", "[a[bc]]", "a++", r"\Qx\E"])
def test_a_pattern_that_means_another_thing_in_java_is_refused(pattern: str) -> None:
    """Spark's own source matches in Java: a pattern that finds other topics here is an error, not other topics."""
    with pytest.raises(ConfigError, match="subscribePattern"):
        source_options({"kafka.bootstrap.servers": "x:1", "subscribePattern": pattern}, streaming=True)


@pytest.mark.parametrize("pattern", ["orders.*", "^a-[a-z]+$", "(a|b)+?c", "[]a]x", r"\\p", "[^]]+"])
def test_a_pattern_of_both_languages_is_taken(pattern: str) -> None:
    """What Java and Python read alike."""
    assert source_options({"kafka.bootstrap.servers": "x:1", "subscribePattern": pattern}, streaming=True)


def test_the_first_batch_says_where_it_starts() -> None:
    """In a form that Spark's own source reads as the same end; given numbers and untouched logs need no record."""
    start, end = {("t", 0): 5, ("t", 10): 0}, {("t", 0): 9, ("t", 10): 3}
    latest = source_options({**BASE, "startingOffsets": "latest"}, streaming=True).start
    earliest = source_options({**BASE, "startingOffsets": "earliest"}, streaming=True).start
    given = source_options({**BASE, "startingOffsets": '{"t":{"0":5,"10":0}}'}, streaming=True).start
    saved = json.loads(json.dumps(with_start(to_dict(end), first_start(latest, start))))

    assert {int(partition): offset for partition, offset in saved["t"].items()} == {0: 9, 10: 3}
    assert (from_dict(saved), start_of(saved)) == (end, start)
    assert first_start(earliest, start) == {("t", 0): 5}
    assert first_start(given, start) == {}
    moved = {("t", 0): 7, ("t", 10): 2}
    assert known_start(latest, moved, start) == start
    assert known_start(earliest, moved, {("t", 0): 5}) == start
    assert known_start(given, start, {}) == start
    with pytest.raises(UnknownStartError, match="startingOffsets"):
        known_start(latest, moved, {})


def test_a_word_stands_for_all_partitions_of_a_topic() -> None:
    """Of those that there are when it is looked up; a batch takes the words that mean something to it."""
    text = '{"t":"Earliest","u":{"0":3}}'
    start = source_options({**BASE, "subscribe": "t,u", "startingOffsets": text}, streaming=True).start
    assert start.expanded([("t", 0), ("t", 1), ("u", 0)]) == {("t", 0): -2, ("t", 1): -2, ("u", 0): 3}
    assert first_start(start, {("t", 0): 4}) == {("t", 0): 4}
    for name, text in (
        ("startingOffsets", '{"t":"latest"}'),
        ("endingOffsets", '{"t":"earliest"}'),
        ("startingOffsets", '{"t":"soon"}'),
        ("startingOffsetsByTimestamp", '{"t":"earliest"}'),
    ):
        with pytest.raises(ConfigError, match=name):
            source_options({**BASE, name: text}, streaming=False)


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


@pytest.mark.slow
def test_the_pure_parts_need_no_spark() -> None:
    """Nor does planning or reading: only the classes that Spark asks for do."""
    modules = ", ".join(f"keyorder.streaming.source.{name}" for name in ("driver", "reading", "batch"))
    code = f"import {modules}, sys; assert 'pyspark' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
