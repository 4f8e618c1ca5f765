"""What the sink may be told. Spelled as Spark's own sink spells it; ours begin with `keyorder.`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...connector.compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG, chosen_strategy
from ...connector.config import connection_of, producer_settings
from ...connector.settings import boolean
from ...partitioner.errors import ConfigError
from ..client_options import PREFIX, check_client, client_config, given_names, refuse_misspelt

VERSION_HEADER = "keyorder.sink.version.header"
STALE = "keyorder.sink.stale"
EXACTLY_ONCE = "keyorder.sink.exactly.once"
EXPLICIT_PARTITION = "keyorder.allow.explicit.partition"
_TRANSACTION_TIMEOUT_MS = 300_000

# name -> what docs/spark-sink.md says of it. `kafka.*` goes to the client library.
SINK_OPTIONS = {
    "kafka.bootstrap.servers": "where the cluster is",
    "topic": "the topic of all rows; wins over a `topic` column",
    EXPLICIT_PARTITION: "take a `partition` column at its word (false)",
    VERSION_HEADER: "name of a header with a growing version per row",
    STRATEGY_CONFIG: "header, where it is given: how versions compete",
    HEADER_CONFIG: "the header that a column `version` becomes (the topic's own)",
    STALE: "rows whose version is below their key's in the topic: write, skip or fail (write)",
    EXACTLY_ONCE: "one transaction per task, replays are recognised (false)",
    "includeHeaders": "taken and ignored, as Spark's own sink does: a `headers` column is always written",
}
_STRONGER_HERE = {"acks": ("0", "1"), "request.required.acks": ("0", "1"), "enable.idempotence": ("false",)}
# By both names that the client library has for each.
_RETRIES = ("retries", "message.send.max.retries")
_IN_FLIGHT = ("max.in.flight.requests.per.connection", "max.in.flight")
_MOST_IN_FLIGHT = 5
_LOG = logging.getLogger("keyorder.streaming")
_OWNED = ("transactional.id", "enable.idempotence", "acks", "partitioner")


@dataclass(frozen=True)
class SinkOptions:
    """Options of one write, parsed. Picklable: it travels to the executors.

    client: settings for an OrderedProducer; it may hold secrets, so it is not in the repr.
    topic: wins over a `topic` column. version_header: None where rows carry no version of keyorder's making.
    compaction_header: what a column `version` becomes; None where it is no concern of the sink, or where by_topic says that
    each row's topic decides. stale: write, skip, fail. one_batch: a batch write, none of a query's batches.
    """

    client: Mapping[str, Any]
    topic: str | None = None
    version_header: str | None = None
    exactly_once: bool = False
    explicit_partition: bool = False
    compaction_header: str | None = None
    stale: str = "write"
    by_topic: bool = False
    one_batch: bool = False

    def __repr__(self) -> str:
        return f"SinkOptions(topic={self.topic!r}, exactly_once={self.exactly_once})"


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse what `.option(...)` was given; names without case, as Spark's are.

    Raises ConfigError naming the option and the fix. Option names as in Spark's "Structured Streaming + Kafka
    Integration Guide", section "Writing Data to Kafka".
    """
    given = {name.lower(): value for name, value in options.items()}
    refuse_misspelt((n for n in given if not _is_producer_option(n)), SINK_OPTIONS)
    client = client_config(options, producer=True)
    _strengthen(client)
    exactly_once = boolean(given, EXACTLY_ONCE, False)
    if exactly_once:
        for name in _OWNED:
            if name in client and name == "transactional.id":
                raise ConfigError(
                    f"kafka.{name}", "the sink names its transactions after query and task", "leave it out"
                )
        client.setdefault("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)
    elif "transactional.id" in client:
        raise ConfigError(
            "kafka.transactional.id",
            "one id for all tasks would let each task fence the others",
            f"leave it out; {EXACTLY_ONCE}=true writes in transactions",
        )
    explicit = boolean(given, EXPLICIT_PARTITION, False)
    client.update((name, value) for name, value in given.items() if _is_producer_option(name))
    _check_producer(client, exactly_once, given_names(options))
    version_header = given.get(VERSION_HEADER)
    if version_header is not None and not version_header.strip():
        raise ConfigError(VERSION_HEADER, "it is blank", "name the header, such as version")
    topic = given["topic"].strip() if "topic" in given else None
    if topic == "":
        raise ConfigError("topic", "it is blank", "name the topic, or leave the option out and give a topic column")
    header, stale = given.get(HEADER_CONFIG), (given.get(STALE) or "write").strip().lower()
    if (given.get(STRATEGY_CONFIG) or "header").strip().lower() != "header":
        raise ConfigError(STRATEGY_CONFIG, "a sink writes versions as headers", "use header, or leave it out")
    if header is not None and not header.strip():
        raise ConfigError(HEADER_CONFIG, "it is blank", "name the header, such as version")
    if header is not None and header == version_header:
        raise ConfigError(VERSION_HEADER, f"the column version is written as {header} already", "leave one of both out")
    if stale not in ("write", "skip", "fail"):
        raise ConfigError(STALE, f"{given[STALE]!r} is not one", "use write, skip or fail")
    return SinkOptions(client, topic, version_header, exactly_once, explicit, header, stale)


def _strengthen(client: dict[str, Any]) -> None:
    """Take out, or lower, what the sink does not do: a promise beyond what was asked for is kept.

    The rows are acknowledged by all replicas, and none is doubled.
    """
    for name, weaker in _STRONGER_HERE.items():
        if str(client.get(name, "")).strip().lower() in weaker:
            _leave_out(client, name)
    for name in _RETRIES:
        if _number(client.get(name)) == 0:
            _leave_out(client, name)
    for name in _IN_FLIGHT:
        number = _number(client.get(name))
        if number is not None and number > _MOST_IN_FLIGHT:
            _LOG.warning("kafka.%s=%s is lowered to %d: idempotence needs that", name, client[name], _MOST_IN_FLIGHT)
            client[name] = str(_MOST_IN_FLIGHT)


def _leave_out(client: dict[str, Any], name: str) -> None:
    _LOG.warning("kafka.%s=%s is left out: the sink needs acks=all and idempotence for order", name, client.pop(name))


def _number(value: Any) -> int | None:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _check_producer(client: Mapping[str, Any], exactly_once: bool, names: Mapping[str, str]) -> None:
    """Look at the settings that a task's producer has: the driver hears of a wrong one before any task starts.

    names: as by `given_names`. Raises ConfigError.
    """
    own = {"transactional.id": "keyorder-check"} if exactly_once else {}
    try:
        _, theirs = producer_settings({**client, **own})
    except ConfigError as error:
        name = names.get(error.setting, error.setting)
        if not name.startswith("keyorder."):
            raise ConfigError(f"{PREFIX}{name}", error.problem, error.fix) from None
        raise
    check_client(theirs, producer=True, names=names)


def with_topics_header(options: SinkOptions) -> SinkOptions:
    """For rows with a column `version` and no option that says what becomes of it: the header of the topic's own strategy.

    Without one the column is no concern of the sink. Where rows name their topics, the tasks look.
    Raises as `own_header` and `topics_header`.
    """
    if options.topic is None:
        return replace(options, by_topic=True)
    return replace(options, compaction_header=topics_header(options, own_header(options, options.topic)))


def topics_header(options: SinkOptions, own: str) -> str | None:
    """What a column `version` becomes in a topic with this `own_header`. Raises ConfigError where the rows have it already."""
    if own and own == options.version_header:
        raise ConfigError(VERSION_HEADER, f"the column version is written as {own} already", "leave the option out")
    return own or None


def own_header(options: SinkOptions, topic: str) -> str:
    """The header of a topic's own strategy, or nothing. Raises what an admin raises."""
    from ...connector.admin import TopicAdmin

    with TopicAdmin(connection_of(options.client)) as admin:
        timeline = admin.managed(topic)
    return "" if timeline is None else chosen_strategy(timeline.settings)[1]


def _is_producer_option(name: str) -> bool:
    """Settings of the OrderedProducer itself; the writer's name is not among them: each process has its own."""
    return name in (
        "keyorder.adopt",
        "keyorder.control.timeout.ms",
        "keyorder.lease.ms",
        "keyorder.lease.renew.interval.ms",
        "keyorder.lease.margin.ms",
        EXPLICIT_PARTITION,
    )
