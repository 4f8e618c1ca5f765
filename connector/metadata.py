"""What the cluster says of a topic: its ids, its partitions, and whether each has a leader."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ResourceType,
)
from tenacity import (
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_fixed,
)

from ..partitioner.errors import BrokerUnreachableError, NotAuthorizedError, PeerError, TopicNotFoundError
from .kafka_errors import translate, translated

T = TypeVar("T")
_PATIENCE = 5.0
# How long a topic that was just made may stay unknown to the broker that is asked; beyond it, it is not there.
JUST_MADE = 10.0


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """Which topic of which cluster this is, and how many partitions it physically has."""

    topic_id: str
    cluster_id: str
    partitions: int


def cluster_metadata(admin: AdminClient, bootstrap_servers: str, timeout: float = 10.0) -> ClusterMetadata:
    """Brokers and topics. Raises BrokerUnreachableError, NotAuthorizedError."""
    with translated("list", "topics", bootstrap_servers):
        return admin.list_topics(timeout=timeout)


def has_topic(admin: AdminClient, topic: str, bootstrap_servers: str, timeout: float = 10.0) -> bool:
    """Whether the topic is there. Raises NotAuthorizedError for one that this user may not see, BrokerUnreachableError.

    Not asked by `list_topics(topic)`: a broker that creates topics by itself would make it on that occasion, a control topic
    with one partition and no compaction among them.
    """
    try:
        found = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)[topic].result(timeout + 1)
    except KafkaException as raised:
        failure = translate(raised.args[0], "describe", f"topic {topic}", bootstrap_servers)
        if isinstance(failure, TopicNotFoundError):
            return False
        raise failure from raised
    except FutureTimeout as raised:
        raise BrokerUnreachableError(bootstrap_servers, f"describe topic {topic}") from raised
    return bool(found.partitions)


def acquaint(client: Consumer | Producer, topic: str, timeout: float = 2.0) -> None:
    """Let a new client find the topic's leaders before it is used; returns when it has, or after `timeout` seconds.

    A client connects when it is first used. What it cannot send at once, for want of a connection or a leader, the library
    tries again on a timer: a producer's id after half a second, an assigned partition after a whole one. What is wrong
    with the cluster is left for that use to say.
    """
    with suppress(KafkaException):
        client.list_topics(topic, timeout=timeout)


def identify(
    admin: AdminClient,
    topic: str,
    bootstrap_servers: str,
    timeout: float = 10.0,
    patience: float = 4 * _PATIENCE,
    just_made: float = 0.0,
) -> TopicIdentity:
    """The topic's identity. Raises TopicNotFoundError, BrokerUnreachableError, NotAuthorizedError.

    patience: seconds over which it asks again while a broker is away; at least `timeout`.
    just_made: seconds over which it asks again for a topic that is not there: a broker hears of a new one late.
    """
    # One that has just died takes its answer with it: a second try goes to another one.
    cluster = patiently(lambda: cluster_metadata(admin, bootstrap_servers, min(timeout, _PATIENCE)), timeout)

    def describe() -> Any:
        cluster_metadata(admin, bootstrap_servers, _PATIENCE)
        try:
            return admin.describe_topics(TopicCollection([topic]), request_timeout=_PATIENCE)[topic].result(
                _PATIENCE + 1
            )
        except KafkaException as raised:
            raise translate(raised.args[0], "describe", f"topic {topic}", bootstrap_servers) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(bootstrap_servers, f"describe topic {topic}") from raised

    # Brokers answer, so what fails now is one that has just died or moved. A fresh look at the cluster comes before
    # each try, since the client would go on asking the one that it knows.
    described = Retrying(
        stop=stop_after_delay(just_made), wait=wait_fixed(0.1), retry=retry_if_exception_type(TopicNotFoundError),
        reraise=True,
    )(lambda: patiently(describe, max(timeout, patience)))  # fmt: skip
    return TopicIdentity(str(described.topic_id), str(cluster.cluster_id), len(described.partitions))


def topic_config(admin: AdminClient, topic: str, bootstrap_servers: str) -> dict[str, str]:
    """The topic's configuration with the broker's defaults. Raises NotAuthorizedError and Kafka's own."""

    def ask() -> dict[str, str]:
        try:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            entries = admin.describe_configs([resource], request_timeout=_PATIENCE)[resource].result(_PATIENCE + 1)
        except KafkaException as raised:
            raise translate(raised.args[0], "describe", f"topic {topic}", bootstrap_servers) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(bootstrap_servers, f"describe topic {topic}") from raised
        return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}

    return patiently(ask, 4 * _PATIENCE)


def is_compacted(admin: AdminClient, topic: str, bootstrap_servers: str) -> bool:
    """Whether the topic's cleaner keeps the last value of each key (cleanup.policy has `compact` in it).

    A user that may not describe the topic's configuration gets False: its topic is then treated as an ordinary one.
    """
    try:
        return "compact" in topic_config(admin, topic, bootstrap_servers)["cleanup.policy"]
    except NotAuthorizedError:
        return False


def patiently(call: Callable[[], T], timeout: float) -> T:
    """Call again while it raises a retriable PeerError, for up to `timeout` seconds; then its last error leaves."""
    return Retrying(
        stop=stop_after_delay(timeout), wait=wait_fixed(0.1), retry=retry_if_exception(_passing), reraise=True
    )(call)


def _passing(error: BaseException) -> bool:
    return isinstance(error, PeerError) and error.retriable


class _NotYet(Exception):
    """Some partition has no leader yet."""


def wait_for_partitions(
    admin: AdminClient, topic: str, count: int, bootstrap_servers: str, timeout: float = 20.0
) -> None:
    """Return once `count` partitions of the topic have leaders.

    Raises BrokerUnreachableError after `timeout` seconds, NotAuthorizedError.
    """

    def look() -> None:
        with translated("describe", f"topic {topic}", bootstrap_servers):
            found = admin.list_topics(topic, timeout=5).topics[topic]
        if found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # It is there, and will not show however long one waits.
            raise translate(found.error, "describe", f"topic {topic}", bootstrap_servers)
        partitions = found.partitions
        if len(partitions) < count or any(p.leader < 0 or p.error is not None for p in partitions.values()):
            raise _NotYet

    attempts = Retrying(
        stop=stop_after_delay(timeout),
        wait=wait_fixed(0.05),
        retry=retry_if_exception_type((_NotYet, BrokerUnreachableError)),
        reraise=True,
    )
    try:
        attempts(look)
    except _NotYet as error:
        raise BrokerUnreachableError(
            bootstrap_servers, f"{topic} has no leader for all of {count} partitions"
        ) from error


def wait_until_gone(admin: AdminClient, topic: str, bootstrap_servers: str, timeout: float = 20.0) -> None:
    """Return once the cluster shows no such topic any more, or after `timeout` seconds: the deletion itself was accepted."""
    attempts = Retrying(
        stop=stop_after_delay(timeout),
        wait=wait_fixed(0.05),
        retry=retry_if_result(bool),
        retry_error_callback=lambda state: None,
    )
    attempts(lambda: topic in cluster_metadata(admin, bootstrap_servers).topics)
