"""All checks in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...partitioner.errors import (
    KeyorderError,
    NotAuthorizedError,
    OrderError,
    TopicNotFoundError,
    UnmanagedTopicError,
)
from ..admin import TopicAdmin
from ..config import connection_of
from ..metadata import cluster_metadata, has_topic
from ..refusals import ClusterAdmin
from .brokers import check_brokers
from .control import check_control
from .findings import Finding, Status
from .machine import check_machine
from .topics import check_topic


def examine(config: Mapping[str, Any], topics: tuple[str, ...], records: int, timeout: float) -> Iterator[Finding]:
    """Machine, brokers, control topics, then each of `topics` (all managed ones when empty). Changes nothing.

    records: how many of each partition's newest records are looked at for strays. timeout: seconds per question.
    """
    yield from check_machine()
    servers = str(config.get("bootstrap.servers"))
    admin = ClusterAdmin(config)
    try:
        yield from check_brokers(config, timeout)
        yield from check_control(admin, len(cluster_metadata(admin, servers, timeout).brokers), timeout)
        unreadable: dict[str, OrderError] = {}
        managed = TopicAdmin(connection_of(config)).topics(unreadable)
    except KeyorderError as error:
        yield Finding("cluster", servers, Status.FAIL, str(error))
        return
    for topic in topics or sorted({*managed, *unreadable}):
        if topic in unreadable:
            yield Finding("timeline", topic, Status.FAIL, str(unreadable[topic]))
        elif topic in managed:
            yield from check_topic(config, admin, managed[topic], records, timeout)
        else:
            yield _unmanaged(admin, topic, servers, timeout)


def _unmanaged(admin: ClusterAdmin, topic: str, servers: str, timeout: float) -> Finding:
    try:
        there = has_topic(admin, topic, servers, timeout)
    except NotAuthorizedError as error:
        return Finding("rights", topic, Status.UNKNOWN, str(error))
    except KeyorderError as error:
        return Finding("timeline", topic, Status.FAIL, str(error))
    why = UnmanagedTopicError(topic) if there else TopicNotFoundError(topic)
    return Finding("timeline", topic, Status.FAIL, str(why))
