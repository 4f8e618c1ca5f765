"""What a user may do, asked before anything is begun: a right that turns out to be missing half-way leaves work undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]  # not re-exported

from ...partitioner.errors import BrokerUnreachableError, NotAuthorizedError
from ...partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC
from ..kafka_errors import translate
from ..metadata import patiently

Needs = Mapping[str, Sequence[AclOperation]]
_CONTROL: Needs = {
    CONTROL_TOPIC: (AclOperation.READ, AclOperation.WRITE),
    WRITERS_TOPIC: (AclOperation.READ,),
}


def require_controller(
    admin: AdminClient, bootstrap_servers: str, topic: str | None = None, count: int = 0, timeout: float = 10.0
) -> None:
    """Stop unless this user may write timelines and, for a `topic` with fewer partitions than `count`, add some.

    Raises NotAuthorizedError, BrokerUnreachableError, TopicNotFoundError.
    """
    patiently(lambda: _require(admin, bootstrap_servers, topic, count, timeout), 2 * timeout)


def require_new(admin: AdminClient, bootstrap_servers: str, topic: str, timeout: float = 10.0) -> None:
    """Stop unless this user may describe a topic that does not show or is about to be created. Raises NotAuthorizedError.

    Not asked by `list_topics(topic)`: a broker that creates topics by itself would make it on that occasion.
    """
    try:
        admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)[topic].result(timeout + 1)
    except KafkaException as raised:
        if raised.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise translate(raised.args[0], "describe", f"topic {topic}", bootstrap_servers) from raised
    except FutureTimeout as raised:
        raise BrokerUnreachableError(bootstrap_servers, f"describe topic {topic}") from raised


def require_visible(admin: AdminClient, bootstrap_servers: str, timeout: float = 10.0) -> None:
    """Stop if a control topic does not show because this user may not describe it. Raises NotAuthorizedError."""
    for name in _CONTROL:
        require_new(admin, bootstrap_servers, name, timeout)


def _require(admin: AdminClient, bootstrap_servers: str, topic: str | None, count: int, timeout: float) -> None:
    names = [*_CONTROL, *([topic] if topic else [])]
    futures = admin.describe_topics(TopicCollection(names), include_authorized_operations=True, request_timeout=timeout)
    for name in names:
        what = f"topic {name}" if name == topic else f"control topic {name}"
        try:
            described = futures[name].result(timeout + 1)
        except KafkaException as raised:
            raise translate(raised.args[0], "describe", what, bootstrap_servers) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(bootstrap_servers, f"describe {what}") from raised
        needed = _CONTROL.get(name, ())
        if name == topic and len(described.partitions) < count:
            needed = (AclOperation.ALTER,)
        # None of them: a broker that does not say.
        allowed = set(described.authorized_operations or needed)
        missing = [operation.name.lower() for operation in needed if operation not in allowed]
        if missing:
            raise NotAuthorizedError(" and ".join(missing), what, "no ACL allows it")
