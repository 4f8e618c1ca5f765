"""The settings of the clients that a worker opens: its own connection, its prefixes, then a connector's overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....partitioner.errors import ConfigError
from ...cli.connecting import from_java
from ...config import connection_of
from .pipeline import below

# What Kafka Connect's files hold for Java's clients, and librdkafka calls otherwise or does not have.
_JAVA_ONLY = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "max.poll.records")


def worker_connection(worker: Mapping[str, str]) -> dict[str, Any]:
    """How the worker itself reaches its cluster. Raises ConfigError for settings that only Java's clients know."""
    return connection_of(from_java(dict(worker)))


def consumer_config(worker: Mapping[str, str], connector: Mapping[str, str], name: str, task: int) -> dict[str, Any]:
    """An OrderedConsumer's settings for a sink task."""
    config = _client(worker, connector, "consumer")
    config.setdefault("auto.offset.reset", "earliest")
    config.setdefault("isolation.level", "read_committed")
    config.setdefault("client.id", f"connector-consumer-{name}-{task}")
    config["group.id"] = group_of(name)
    config["enable.auto.commit"] = False
    return config


def producer_config(
    worker: Mapping[str, str], connector: Mapping[str, str], name: str, task: int, exactly_once: bool
) -> dict[str, Any]:
    """An OrderedProducer's settings for a source task. The writer id makes a task's newer run the only writer."""
    config = _client(worker, connector, "producer")
    config.setdefault("client.id", f"connector-producer-{name}-{task}")
    group = worker.get("group.id", "standalone")
    config["keyorder.writer.id"] = f"connect-{group}-{name}-{task}"
    if exactly_once:
        config["transactional.id"] = transactional_id(group, name, task)
    return config


def transactional_id(group: str, name: str, task: int) -> str:
    """The transactional id of a source task, the same for each of its runs: a newer one fences the older (KIP-618)."""
    return f"{group}-{name}-{task}"


def group_of(connector: str) -> str:
    """The consumer group of a sink connector."""
    return f"connect-{connector}"


def _client(worker: Mapping[str, str], connector: Mapping[str, str], kind: str) -> dict[str, Any]:
    config: dict[str, Any] = worker_connection(worker)
    overrides = below(connector, f"{kind}.override.")
    if overrides and worker.get("connector.client.config.override.policy", "All") == "None":
        raise ConfigError(
            f"{kind}.override.{next(iter(overrides))}",
            "the worker does not allow overrides",
            "leave it out, or set connector.client.config.override.policy=All on the worker",
        )
    for more in (below(worker, f"{kind}."), overrides):
        config.update({k: v for k, v in from_java(more).items() if k not in _JAVA_ONLY})
    return config
