"""The source's options: those of Spark's own Kafka source, with its defaults, and a few of keyorder's. Pure.

Source: Spark's "Structured Streaming + Kafka Integration Guide". Names are taken in any case, as Spark takes them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...partitioner.errors import ConfigError
from ..client_options import client_config, given_names, refuse_misspelt
from .compacting import Compaction, compaction_options
from .given import Given
from .offsets import EARLIEST, LATEST, Place, parse_offsets, parse_offsets_and_words, parse_partitions

_LOG = logging.getLogger("keyorder.streaming")
# name: what it does (default). docs/spark.md has a row for each.
SOURCE_OPTIONS = {
    "assign": "exactly these partitions",
    "subscribe": "these topics",
    "subscribePattern": "all topics of such a name",
    "startingTimestamp": "start at this time, ms (none)",
    "startingOffsetsByTimestamp": "start at these times, ms (none)",
    "startingOffsets": "where a new query starts (latest, batch: earliest)",
    "startingOffsetsByTimestampStrategy": "when no record is that new (error)",
    "endingTimestamp": "batch: end at this time (none)",
    "endingOffsetsByTimestamp": "batch: end at these times (none)",
    "endingOffsets": "batch: where to end (latest)",
    "failOnDataLoss": "stop when records to be read are gone (true)",
    "kafkaConsumer.pollTimeoutMs": "how long a task waits for a record (120000)",
    "fetchOffset.numRetries": "how often offsets are asked for again (3)",
    "fetchOffset.retryIntervalMs": "and how long it waits before (10)",
    "maxOffsetsPerTrigger": "most records of a micro-batch (none)",
    "minOffsetsPerTrigger": "fewest records of a micro-batch (none)",
    "maxTriggerDelay": "how long to wait for those (15m)",
    "minPartitions": "split into this many tasks (none)",
    "maxRecordsPerPartition": "split ranges longer than this (none)",
    "groupIdPrefix": "first part of the clients' group id (spark-kafka-source, batch: spark-kafka-relation)",
    "includeHeaders": "a column of headers (false)",
    "enable.ordered.delivery": "gates on or off for this query (true)",
    "keyorder.allow.split": "let minPartitions and maxRecordsPerPartition split a stream's partitions (false)",
    "keyorder.commit.group": "commit finished batches' offsets to this group (none)",
    "keyorder.task.min.records": "ranges are put together up to this many records (2000)",
    "keyorder.compact": "topic: only each key's highest version, by the topic's own strategy (false)",
    "compaction.strategy": "only each key's highest version: by offset, timestamp or header (none)",
    "compaction.strategy.header": "the header of the strategy `header`",
    "keyorder.compact.read": "homes: each task the homes of its keys; all: each task every partition (homes)",
    "keyorder.compact.tombstones": "deleted keys, too, with a null value (false)",
    "keyorder.compact.memory.mb": "what a task may hold before it reads its keys in parts (256)",
    "keyorder.arrow.native": "read through the client library's C calls (true)",
}
_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_BATCH_ONLY = {
    "endingOffsets": "ending offset not valid in streaming queries",
    "endingOffsetsByTimestamp": "ending timestamp not valid in streaming queries",
    "endingTimestamp": "ending timestamp not valid in streaming queries",
}


class BoundKind(Enum):
    """How a start or an end is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMES = "times"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to start or to end. offsets: by place, -1 latest, -2 earliest, or ms; topics: for all partitions of a topic.
    time: ms for all.
    """

    kind: BoundKind
    option: str
    offsets: Mapping[Place, int] = field(default_factory=dict)
    time: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)

    def expanded(self, there: Iterable[Place]) -> dict[Place, int]:
        """`offsets`, and for the partitions of `topics` that there are."""
        return {**{place: self.topics[place[0]] for place in there if place[0] in self.topics}, **self.offsets}


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    places: tuple[Place, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"SubscribePattern[{self.pattern}]"
        if self.places:
            return f"Assign[{', '.join(f'{t}-{p}' for t, p in self.places)}]"
        return f"Subscribe[{', '.join(self.topics)}]"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query. client: settings of the Kafka client, secrets among them, and so not in its repr.

    client_names: as by `client_options.given_names`, for errors.
    """

    client: Mapping[str, Any] = field(repr=False)
    subscription: Subscription
    start: Bound
    end: Bound
    latest_without_match: bool
    fail_on_data_loss: bool
    poll_timeout: float
    fetch_retries: int
    fetch_retry_interval: float
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay: float
    min_partitions: int | None
    max_records: int | None
    group_prefix: str
    headers: bool
    ordered: bool
    commit_group: str | None
    task_records: int
    native: bool
    compaction: Compaction | None = None
    client_names: Mapping[str, str] = field(default_factory=dict, repr=False)


def source_options(options: Mapping[str, str], streaming: bool) -> SourceOptions:
    """The options of a streaming or a batch query. Raises ConfigError, which names the option and never shows a secret."""
    given = Given(options)
    refuse_misspelt(given.names(), SOURCE_OPTIONS)
    subscription = _subscription(given)
    client = client_config(options)
    if streaming:
        for name, problem in _BATCH_ONLY.items():
            if given.text(name) is not None:
                raise ConfigError(name, problem, "leave it out")
    start = _bound(given, "starting", BoundKind.LATEST if streaming else BoundKind.EARLIEST)
    end = _bound(given, "ending", BoundKind.LATEST)
    if not streaming:
        if start.kind is BoundKind.LATEST:
            raise ConfigError(
                start.option, "starting offset can't be latest for batch queries on Kafka", "use earliest"
            )
        if end.kind is BoundKind.EARLIEST:
            raise ConfigError(end.option, "ending offset can't be earliest for batch queries on Kafka", "use latest")
        _refuse_offset(start, LATEST, "starting offset for {} can't be latest for batch queries on Kafka")
        _refuse_offset(end, EARLIEST, "ending offset for {} can't be earliest for batch queries on Kafka")
        _refuse_backwards(start, end)
    most, least = given.count("maxOffsetsPerTrigger"), given.count("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise ConfigError(
            "minOffsetsPerTrigger",
            f"the value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})",
            "lower it",
        )
    prefix = given.text("groupIdPrefix") or ("spark-kafka-source" if streaming else "spark-kafka-relation")
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise ConfigError("startingOffsetsByTimestampStrategy", f"{strategy!r} is not one", "use error or latest")
    min_partitions, max_records = given.count("minPartitions"), given.count("maxRecordsPerPartition")
    compaction = compaction_options(given, streaming)
    if compaction is not None:
        # The value of an aborted transaction is no version of its key.
        client.setdefault("isolation.level", "read_committed")
        if subscription.places:
            raise ConfigError(
                "assign", "compaction looks at every home of a key", "name the topic by subscribe or subscribePattern"
            )
        if max_records is not None or (min_partitions is not None and not compaction.everywhere):
            _LOG.warning("minPartitions and maxRecordsPerPartition are left out: one task has all versions of a key")
            max_records, min_partitions = None, min_partitions if compaction.everywhere else None
    if (min_partitions or max_records) and streaming and not given.boolean("keyorder.allow.split", False):
        # Both are wishes, and a stream keeps its promise without them; a batch query promises no order.
        _LOG.warning(
            "%s is left out: splitting a partition over tasks loses the order of its keys within a micro-batch; with "
            "keyorder.allow.split=true it is obeyed, and the query has to order the rows by offset itself",
            "minPartitions" if min_partitions else "maxRecordsPerPartition",
        )
        min_partitions = max_records = None
    return SourceOptions(
        client=client,
        subscription=subscription,
        start=start,
        end=end,
        latest_without_match=strategy == "latest",
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        poll_timeout=given.count_or("kafkaConsumer.pollTimeoutMs", 120_000, least=1) / 1000,
        fetch_retries=given.count_or("fetchOffset.numRetries", 3),
        fetch_retry_interval=given.count_or("fetchOffset.retryIntervalMs", 10) / 1000,
        max_offsets=most,
        min_offsets=least,
        max_trigger_delay=given.duration("maxTriggerDelay", 900.0),
        min_partitions=min_partitions,
        max_records=max_records,
        group_prefix=prefix,
        headers=given.boolean("includeHeaders", False),
        ordered=given.boolean("enable.ordered.delivery", True),
        commit_group=given.text("keyorder.commit.group"),
        task_records=given.count_or("keyorder.task.min.records", 2000),
        native=given.boolean("keyorder.arrow.native", True),
        compaction=compaction,
        client_names=given_names(options),
    )


def _subscription(given: Given) -> Subscription:
    named = [name for name in _STRATEGIES if given.has(name)]
    known = ", ".join(sorted(name.lower() for name in _STRATEGIES))
    if not named:
        raise ConfigError(
            "subscribe", f"one of the following options must be specified for Kafka source: {known}", "give one"
        )
    if len(named) > 1:
        raise ConfigError(
            named[1],
            f"only one of the following options can be specified for Kafka source: {known}",
            "leave the others out",
        )
    text = given.text(named[0]) or ""
    if named[0] == "assign":
        if not text.strip().startswith("{"):
            raise ConfigError(
                "assign",
                f"no topicpartitions to assign as specified value for option 'assign' is '{text}'",
                "give JSON",
            )
        return Subscription(places=parse_partitions("assign", text))
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise ConfigError(
                "subscribe",
                f"no topics to subscribe to as specified value for option 'subscribe' is '{text}'",
                "name one",
            )
        return Subscription(topics=topics)
    if not text.strip():
        raise ConfigError(
            "subscribePattern",
            f"pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'",
            "give one",
        )
    java = java_only(text)
    if java is not None:
        raise ConfigError("subscribePattern", f"{text!r} has {java}", "write it without")
    try:
        re.compile(text.strip())
    except re.error as error:
        raise ConfigError("subscribePattern", f"invalid regular expression {text!r} ({error})", "correct it") from None
    return Subscription(pattern=text.strip())


def java_only(pattern: str) -> str | None:
    """What of a pattern means another thing in Java, where Spark's own source matches it, and here; None for nothing.

    What Python does not know at all, it says by itself.
    """
    inside = escaped = False
    for at, char in enumerate(pattern):
        if escaped:
            if char in "pPQEGRXhHvVkK" or (char in "NzZ" and not inside):
                return f"\\{char}, which Java's expressions know and Python's do not, or not so"
            escaped = False
        elif char == "\\":
            escaped = True
        elif inside and pattern.startswith("&&", at):
            return "an intersection of character classes (&&), which only Java's expressions know"
        elif inside and char == "[":
            return "a character class within another one, which only Java's expressions know"
        elif char == "[":
            inside = True
        elif char == "]" and not re.search(r"\[\^?$", pattern[:at]):
            inside = False
        elif not inside and char == "+" and at and pattern[at - 1] in "*+?}":
            return "a possessive quantifier, which not every Python knows"
    return None


def _bound(given: Given, side: str, default: BoundKind) -> Bound:
    """Precedence as in Spark: one time for all, then times by partition, then offsets."""
    name = f"{side}Timestamp"
    if given.has(name):
        return Bound(BoundKind.TIME, name, time=given.count_or(name, 0))
    name = f"{side}OffsetsByTimestamp"
    text = given.text(name)
    if text is not None:
        times = parse_offsets(name, text)
        for (topic, partition), time in times.items():
            # For the client library -1 is the end and -2 the beginning.
            if time < 0:
                raise ConfigError(name, f"the time {time} of {topic}-{partition} is negative", "give ms since 1970")
        return Bound(BoundKind.TIMES, name, times)
    name = f"{side}Offsets"
    text = given.text(name)
    if text is None:
        return Bound(default, name)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(BoundKind(word), name)
    offsets, topics = parse_offsets_and_words(name, text, {"latest": LATEST, "earliest": EARLIEST})
    return Bound(BoundKind.OFFSETS, name, offsets, topics=topics)


def _refuse_offset(bound: Bound, refused: int, problem: str) -> None:
    if bound.kind is BoundKind.OFFSETS:
        for (topic, partition), offset in bound.offsets.items():
            if offset == refused:
                raise ConfigError(bound.option, problem.format(f"{topic}-{partition}"), "give an offset")
        for topic, offset in bound.topics.items():
            if offset == refused:
                raise ConfigError(bound.option, problem.format(topic), "give offsets")


def _refuse_backwards(start: Bound, end: Bound) -> None:
    """Offsets by hand for both sides have to fit each other, whatever the topics hold; times likewise."""
    kinds = {BoundKind.OFFSETS: "offset", BoundKind.TIMES: "timestamp"}
    if start.kind is not end.kind or start.kind not in kinds or start.topics or end.topics:
        return
    word = kinds[start.kind]
    if set(start.offsets) != set(end.offsets):
        raise ConfigError(
            end.option,
            f"the specified start {word} and end {word} should have the same topic-partitions",
            "name the same partitions in both",
        )
    for (topic, partition), first in start.offsets.items():
        last = end.offsets[topic, partition]
        if 0 <= last < first:
            raise ConfigError(
                end.option,
                f"the specified start {word} {first} is greater than the end {word} {last} for topic {topic} partition "
                f"{partition}",
                f"raise it, or lower {start.option}",
            )
