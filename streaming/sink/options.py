"""What the sink may be told. Spelled as Spark's own sink spells it; ours begin with `keyorder.`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ...connector.config import boolean, producer_settings
from ...partitioner.errors import ConfigError
from ..client_options import client_config

VERSION_HEADER = "keyorder.sink.version.header"
EXACTLY_ONCE = "keyorder.sink.exactly.once"
EXPLICIT_PARTITION = "keyorder.allow.explicit.partition"
_TRANSACTION_TIMEOUT_MS = 300_000

# name -> what docs/spark-sink.md says of it. `kafka.*` goes to the client library.
SINK_OPTIONS = {
    "kafka.bootstrap.servers": "where the cluster is",
    "topic": "the topic of all rows; wins over a `topic` column",
    EXPLICIT_PARTITION: "take a `partition` column at its word (false)",
    VERSION_HEADER: "name of a header with a growing version per row",
    EXACTLY_ONCE: "one transaction per task, replays are recognised (false)",
    "includeHeaders": "taken and ignored, as Spark's own sink does: a `headers` column is always written",
}
_STRONGER_HERE = {"acks": ("0", "1"), "request.required.acks": ("0", "1"), "enable.idempotence": ("false",)}
_LOG = logging.getLogger("keyorder.streaming")
_OWNED = ("transactional.id", "enable.idempotence", "acks", "partitioner")


@dataclass(frozen=True)
class SinkOptions:
    """Options of one write, parsed. Picklable: it travels to the executors.

    client: settings for an OrderedProducer; it may hold secrets, so it is not in the repr.
    topic: wins over a `topic` column. version_header: None where rows carry no version.
    """

    client: Mapping[str, Any]
    topic: str | None = None
    version_header: str | None = None
    exactly_once: bool = False
    explicit_partition: bool = False

    def __repr__(self) -> str:
        return f"SinkOptions(topic={self.topic!r}, exactly_once={self.exactly_once})"


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse what `.option(...)` was given; names without case, as Spark's are.

    Raises ConfigError naming the option and the fix. Option names as in Spark's "Structured Streaming + Kafka
    Integration Guide", section "Writing Data to Kafka".
    """
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in SINK_OPTIONS}
    for name in given:
        if name.startswith("keyorder.") and name not in known and not _is_producer_option(name):
            near = get_close_matches(name, known, 1, 0.8)
            fix = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(SINK_OPTIONS))}"
            raise ConfigError(name, "the sink has no such option", fix)
    client = client_config(options)
    for name, weaker in _STRONGER_HERE.items():
        if str(client.get(name, "")).strip().lower() in weaker:
            # A promise beyond what was asked for: the rows are acknowledged by all replicas, and none is doubled.
            _LOG.warning(
                "kafka.%s=%s is left out: the sink needs acks=all and idempotence for order", name, client[name]
            )
            del client[name]
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
    producer_settings(client)  # the driver hears of a wrong setting before any task starts
    version_header = given.get(VERSION_HEADER)
    if version_header is not None and not version_header.strip():
        raise ConfigError(VERSION_HEADER, "it is blank", "name the header, such as version")
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("topic", "it is blank", "name the topic, or leave the option out and give a topic column")
    return SinkOptions(client, topic, version_header, exactly_once, explicit)


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
