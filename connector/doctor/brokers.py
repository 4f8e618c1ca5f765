"""Checks of the brokers: each answers, is new enough, and knows KIP-903."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ...partitioner.errors import PeerError
from ..config import connection_of
from ..metadata import cluster_metadata
from ..refusals import HOSTS_WITHIN, ClusterAdmin, unknown_hosts
from .findings import Finding, Status

# The highest Fetch version that a release of Kafka speaks tells the release: a broker does not say its version.
_FETCH_OF_RELEASE = {13: "3.1", 14: "3.5", 15: "3.5", 16: "3.7", 17: "3.9", 18: "4.1"}
_MINIMUM_FETCH, _KIP_903_FETCH = 17, 15
_VERSIONS = re.compile(r"ApiKey Fetch \(1\) Versions (\d+)\.\.(\d+)")


def check_brokers(config: Mapping[str, Any], timeout: float) -> Iterator[Finding]:
    """Connects to each broker by itself, so that one that is away or old does not hide behind another.

    Raises BrokerUnreachableError or NotAuthorizedError when no broker answers at all.
    """
    servers = str(config.get("bootstrap.servers"))
    found = cluster_metadata(ClusterAdmin(config), servers, timeout, HOSTS_WITHIN)
    for broker in sorted(found.brokers.values(), key=lambda b: b.id):
        address = f"{broker.host}:{broker.port}"
        about = f"broker {broker.id} ({address})"
        fetch = fetch_version({**config, "bootstrap.servers": address}, timeout)
        if fetch is None:
            yield _silent(about, address)
            continue
        release = _FETCH_OF_RELEASE.get(fetch, "newer than 4.1" if fetch > max(_FETCH_OF_RELEASE) else "older than 3.1")
        if fetch >= _MINIMUM_FETCH:
            yield Finding("broker", about, Status.OK, f"it answers; Kafka {release} or later by its protocol")
        else:
            yield Finding(
                "broker", about, Status.FAIL, f"Kafka {release} by its protocol: too old", "upgrade it to 3.9 or later"
            )
        if fetch >= _KIP_903_FETCH:
            yield Finding(
                "KIP-903", about, Status.OK,
                "Fetch v15: a restarted replica that lost its disk cannot enter the in-sync set unseen (AlterPartition v3 "
                "came with the same release, between brokers and controllers alone)",
            )  # fmt: skip
        else:
            yield Finding(
                "KIP-903", about, Status.WARN,
                f"Fetch v{fetch}: a replica that lost its disk may become leader, and acknowledged records with it vanish",
                "upgrade it to 3.5 or later",
            )  # fmt: skip


def _silent(about: str, address: str) -> Finding:
    unknown = unknown_hosts(address)
    if unknown is None:
        return Finding("broker", about, Status.FAIL, "it does not answer here", "see that it runs and is reachable")
    text = f"the name that it gives out has no address on this machine ({unknown.detail})"
    fix = "have it resolved here, or set advertised.listeners, on the broker, to a name that is"
    return Finding("broker", about, Status.FAIL, text, fix)


def fetch_version(config: Mapping[str, Any], timeout: float) -> int | None:
    """The highest Fetch version of the broker at `bootstrap.servers`; None when it does not answer.

    The client library asks every broker and writes the answer into its debug log; there is no other way to it.
    """
    seen: list[int] = []

    class Reads(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            match = _VERSIONS.search(record.getMessage())
            if match is not None:
                seen.append(int(match[2]))

    logger = logging.Logger("keyorder.doctor")  # of no hierarchy: a debug log is nobody else's
    logger.addHandler(Reads())
    settings: dict[str, Any] = {**connection_of(config), "debug": "feature", "logger": logger}
    client = AdminClient(settings)
    try:
        cluster_metadata(client, str(config["bootstrap.servers"]), timeout, HOSTS_WITHIN)
    except (PeerError, KafkaException):
        return None
    client.poll(0)
    return seen[0] if seen else None
