"""The settings of the clients that a worker opens: its own connection, its prefixes, then a connector's overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....partitioner.errors import ConfigError
from ...cli.connecting import from_java
from ...config import connection_of, consumer_settings, producer_settings
from ...java_names import CLIENT_SETTINGS, check
from ..api.java import BLANKS
from ..api.java_regex import NOT_MEANT
from .settings import below

_LARGEST = 1_000_000_000  # the client library's: how large a record a topic takes is for its broker to say
_DELIVERY_MS = 300_000  # the client library's own: nobody waits for a dead letter before the next commit


def worker_connection(worker: Mapping[str, str]) -> dict[str, Any]:
    """How the worker itself reaches its cluster. Raises ConfigError for settings that only Java's clients know."""
    return connection_of(from_java(dict(worker)))


def consumer_config(worker: Mapping[str, str], connector: Mapping[str, str], name: str, task: int) -> dict[str, Any]:
    """An OrderedConsumer's settings for a sink task."""
    config = _client(worker, connector, "consumer")
    config.setdefault("auto.offset.reset", "earliest")
    config.setdefault("isolation.level", "read_committed")
    config.setdefault("client.id", f"connector-consumer-{name}-{task}")
    if connector.get("topics.regex"):
        config.setdefault("topic.blacklist", NOT_MEANT)
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


def dead_letter_config(worker: Mapping[str, str], connector: Mapping[str, str], name: str, task: int) -> dict[str, Any]:
    """The client library's settings for what writes a sink task's dead letter queue: as for a source task's producer."""
    config = _client(worker, connector, "producer")
    given = {key: value for key, value in config.items() if not key.startswith("keyorder.")}
    own = {
        "client.id": f"connector-dlq-producer-{name}-{task}",
        "delivery.timeout.ms": _DELIVERY_MS,
        "message.max.bytes": _LARGEST,
    }
    # In front of what is given, of whose several names for one setting the last counts.
    return producer_settings({**{k: v for k, v in own.items() if k not in given}, **given})[1]


def transactional_id(group: str, name: str, task: int) -> str:
    """The transactional id of a source task, the same for each of its runs: a newer one fences the older (KIP-618)."""
    return f"{group}-{name}-{task}"


def group_of(connector: str) -> str:
    """The consumer group of a sink connector."""
    return f"connect-{connector}"


def _client(worker: Mapping[str, str], connector: Mapping[str, str], kind: str) -> dict[str, Any]:
    config: dict[str, Any] = worker_connection(worker)
    overrides = below(connector, f"{kind}.override.")
    if overrides and worker.get("connector.client.config.override.policy", "All").strip(BLANKS) == "None":
        raise ConfigError(
            f"{kind}.override.{next(iter(overrides))}",
            "the worker does not allow overrides",
            "leave it out, or set connector.client.config.override.policy=All on the worker",
        )
    for prefix, more in ((f"{kind}.", below(worker, f"{kind}.")), (f"{kind}.override.", overrides)):
        config.update(CLIENT_SETTINGS.translated(more, prefix, kind))
    return config


def check_clients(kind: str, worker: Mapping[str, str], connector: Mapping[str, str]) -> None:
    """Raises ConfigError for an override that the clients of a connector's tasks would not take. kind: sink or source."""
    _check("consumer" if kind == "sink" else "producer", worker, connector)
    if kind == "sink" and connector.get("errors.deadletterqueue.topic.name"):
        _check("producer", worker, connector)


def _check(used: str, worker: Mapping[str, str], connector: Mapping[str, str]) -> None:
    prefix = f"{used}.override."
    check(CLIENT_SETTINGS.translated(below(connector, prefix), prefix, used), prefix, used)
    config = _client(worker, connector, used)
    try:
        if used == "producer":
            producer_settings(config)
        else:
            consumer_settings({**config, "group.id": "none"})
    except ConfigError as error:
        for given, start in ((connector, prefix), (worker, f"{used}.")):
            if error.setting in below(given, start):
                raise ConfigError(f"{start}{error.setting}", error.problem, error.fix) from None
        raise
