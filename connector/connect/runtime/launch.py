"""Builds a worker from its settings: standalone or distributed."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....partitioner.errors import ConfigError
from ...config import connection_of
from ...java_names import CLIENT_SETTINGS, check
from ..config.providers import Resolver
from .clients import worker_connection
from .group.herder import Herder
from .group.membership import Alone, GroupMembership
from .group.place import WorkerPlace
from .group.state import ClusterState
from .group.stores import LedLog, MemoryLog, Statuses, TopicLog
from .offsets import FileOffsetStore, KafkaOffsetStore, OffsetStore
from .operations.operations import Operations
from .plugins import Plugins
from .settings import below, distributed_definition, standalone_definition, without_effect
from .tasks.task_base import State, TaskId
from .worker import Worker

_LOG = logging.getLogger("keyorder.connect.settings")
Listener = Callable[[TaskId, State, "str | None"], None]


@dataclass(frozen=True)
class Parts:
    """A worker's settings, resolved, and what is made of them before anything runs."""

    settings: dict[str, str]
    parsed: dict[str, Any]
    plugins: Plugins
    resolver: Resolver

    @classmethod
    def of(cls, given: Mapping[str, str], distributed: bool) -> Parts:
        """Check the settings. Raises ConfigError."""
        definition = distributed_definition() if distributed else standalone_definition()
        resolver = Resolver(given)
        settings = resolver.resolve(given)
        resolver.keep_secret(settings)
        parsed = definition.parse(settings)
        check(worker_connection(settings), "", "consumer")
        for warning in without_effect(definition, given, lambda name: name in connection_of({name: ""})):
            _LOG.warning("%s", warning)
        for kind in ("producer", "consumer"):
            prefix = f"{kind}."
            check(CLIENT_SETTINGS.translated(below(settings, prefix), prefix, kind), prefix, kind)
        if parsed["exactly.once.source.support"] != "disabled" and not distributed:
            raise ConfigError(
                "exactly.once.source.support", "a standalone worker keeps offsets in a file", "run distributed"
            )
        if distributed:
            topics = [parsed[f"{name}.storage.topic"] for name in ("config", "offset", "status")]
            if len(set(topics)) < 3:
                raise ConfigError("config.storage.topic", "two of the storage topics have one name", "give three names")
        return cls(settings, parsed, Plugins(parsed["plugin.classes"], parsed["plugin.path"]), resolver)


def standalone(parts: Parts, url: str) -> Operations:
    """A worker that is alone: offsets in a file, all else in memory. Not started yet."""
    parsed = parts.parsed
    state, known = ClusterState(), Statuses()
    offsets = FileOffsetStore(Path(parsed["offset.storage.file.filename"]))
    worker_id = _worker_id(url)
    configs, statuses = MemoryLog(state.apply), MemoryLog(known.apply)
    parking = parsed["parking.storage.topic"] or "connect-parked"
    place = WorkerPlace(worker_id, url, parts.settings, parsed, state, configs, known, statuses, Alone(worker_id))
    return _operations(parts, place, offsets, None, parking)


def distributed(parts: Parts, url: str) -> Operations:
    """A worker of a group. Makes the internal topics if they are missing. Not started yet."""
    parsed = parts.parsed
    connection = worker_connection(parts.settings)
    group: str = parsed["group.id"]
    worker_id = _worker_id(url)
    state, known = ClusterState(), Statuses()
    with ExitStack() as opened:
        configs = opened.enter_context(
            closing(
                LedLog(
                    connection,
                    parsed["config.storage.topic"],
                    parsed["config.storage.replication.factor"],
                    state.apply,
                    f"keyorder-connect-leader-{group}",
                )
            )
        )
        statuses = opened.enter_context(
            closing(
                TopicLog(
                    connection,
                    parsed["status.storage.topic"],
                    parsed["status.storage.partitions"],
                    parsed["status.storage.replication.factor"],
                    known.apply,
                )
            )
        )
        offsets = opened.enter_context(
            closing(
                KafkaOffsetStore(
                    connection,
                    parsed["offset.storage.topic"],
                    parsed["offset.storage.partitions"],
                    parsed["offset.storage.replication.factor"],
                )
            )
        )
        membership = GroupMembership(
            connection,
            group,
            parsed["config.storage.topic"],
            f"{worker_id}|{uuid.uuid4().hex[:8]}",
            parsed["session.timeout.ms"],
            parsed["heartbeat.interval.ms"],
        )
        opened.callback(membership.leave)
        parking = parsed["parking.storage.topic"] or f"{group}-parked"
        place = WorkerPlace(worker_id, url, parts.settings, parsed, state, configs, known, statuses, membership)
        operations = _operations(parts, place, offsets, parsed["offset.storage.topic"], parking)
        opened.pop_all()
        return operations


def _operations(
    parts: Parts, place: WorkerPlace, offsets: OffsetStore, offsets_topic: str | None, parking: str
) -> Operations:
    def make(listener: Listener) -> Worker:
        return Worker(
            parts.settings, parts.parsed, parts.plugins, parts.resolver, offsets, offsets_topic, parking, listener
        )

    return Operations(Herder(place, make))


def _worker_id(url: str) -> str:
    """host:port of the REST, as in Kafka Connect; a name of the process's own without one."""
    return url.partition("://")[2].rstrip("/") if url else f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
