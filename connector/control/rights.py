"""What a user may do, asked before anything is begun: a right that turns out to be missing half-way leaves work undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AclOperation,
    AdminClient,
    TopicDescription,
)

from ...partitioner.errors import KafkaOperationError, NotAuthorizedError, TopicNotFoundError
from ...partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC
from ..metadata import described, once_known

Needs = Mapping[str, Sequence[AclOperation]]
_CONTROL: Needs = {
    CONTROL_TOPIC: (AclOperation.READ, AclOperation.WRITE),
    WRITERS_TOPIC: (AclOperation.READ,),
}


def require_controller(
    admin: AdminClient, bootstrap_servers: str, topic: str | None = None, count: int = 0, timeout: float = 10.0
) -> None:
    """Stop unless this user may write timelines and, for a `topic` with fewer partitions than `count`, add some.

    A transaction that may not write shows it only as a purge, half a minute later. And a broker hides a topic from whoever
    may not describe it: a control topic would pass for missing, a topic that was just made for one without leaders.

    Raises NotAuthorizedError, BrokerUnreachableError, TopicNotFoundError.
    """
    names = [*_CONTROL, *([topic] if topic else [])]
    for name in names:
        found = _described(admin, name, bootstrap_servers, 2 * timeout)
        needed = _CONTROL.get(name, ())
        if name == topic and len(found.partitions) < count:
            needed = (AclOperation.ALTER,)
        _require(found, needed, f"topic {name}" if name == topic else f"control topic {name}")


def require_write(
    admin: AdminClient, bootstrap_servers: str, topic: str, timeout: float = 20.0, read: bool = False
) -> None:
    """Stop unless this user may write the topic, and `read` it: a transaction that may not write shows it only as a purge.

    Raises NotAuthorizedError, BrokerUnreachableError, TopicNotFoundError.
    """
    found = _described(admin, topic, bootstrap_servers, timeout)
    _require(found, (AclOperation.READ, AclOperation.WRITE) if read else (AclOperation.WRITE,), f"topic {topic}")


def _described(admin: AdminClient, topic: str, bootstrap_servers: str, timeout: float) -> TopicDescription:
    # Whoever asks has seen the topic, but maybe at another broker.
    return once_known(lambda: described(admin, topic, bootstrap_servers, timeout, operations=True))


def _require(found: TopicDescription, needed: Sequence[AclOperation], what: str) -> None:
    # None of them: a broker that does not say.
    allowed = set(found.authorized_operations or needed)
    missing = [operation.name.lower() for operation in needed if operation not in allowed]
    if missing:
        raise NotAuthorizedError(" and ".join(missing), what, "no ACL allows it")


def require_new(admin: AdminClient, bootstrap_servers: str, topic: str, timeout: float = 10.0) -> None:
    """Stop unless this user may describe a topic that does not show or is about to be created. Raises NotAuthorizedError.

    Not asked by `list_topics(topic)`: a broker that creates topics by itself would make it on that occasion.
    """
    with suppress(TopicNotFoundError, KafkaOperationError):
        described(admin, topic, bootstrap_servers, timeout)
