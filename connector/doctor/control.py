"""Checks of the control topics: their settings, and what this user may do with them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from ...partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC
from ..control.control_topics import PARTITIONS
from .findings import Finding, Status

_READ, _WRITE, _DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
# docs/protocol.md, "Control topics"
_ROLES = {
    "consumer": {CONTROL_TOPIC: {_READ, _DESCRIBE}},
    "producer": {CONTROL_TOPIC: {_READ, _DESCRIBE}, WRITERS_TOPIC: {_READ, _WRITE, _DESCRIBE}},
    "controller": {CONTROL_TOPIC: {_READ, _WRITE, _DESCRIBE}, WRITERS_TOPIC: {_READ, _WRITE, _DESCRIBE}},
}


def check_control(admin: AdminClient, brokers: int, timeout: float) -> Iterator[Finding]:
    """Settings and rights. A cluster without control topics is one on which nothing is managed yet."""
    described = admin.describe_topics(
        TopicCollection([CONTROL_TOPIC, WRITERS_TOPIC]), include_authorized_operations=True, request_timeout=timeout
    )
    allowed: dict[str, set[AclOperation]] = {}
    for name, future in described.items():
        try:
            topic = future.result(timeout + 1)
        except (KafkaException, FutureTimeout) as raised:
            yield Finding(
                "control topic", name, Status.UNKNOWN,
                f"it is not there, or this user may not see it ({raised})",
                "`keyorder topics create` or `adopt` makes it; a user needs Describe on it",
            )  # fmt: skip
            continue
        allowed[name] = set(topic.authorized_operations or ())
        replicas = min(len(p.replicas) for p in topic.partitions)
        yield from _shape(name, len(topic.partitions), replicas, brokers)
        yield from _settings(admin, name, replicas, timeout)
    if allowed:
        yield _rights(allowed)


def _shape(name: str, partitions: int, replicas: int, brokers: int) -> Iterator[Finding]:
    if partitions != PARTITIONS:
        yield Finding(
            "control topic", name, Status.FAIL, f"it has {partitions} partitions, keyorder's has {PARTITIONS}",
            "another program made it, or it was grown: it has to be made anew",
        )  # fmt: skip
    if replicas < min(3, brokers):
        yield Finding(
            "control topic", name, Status.WARN, f"replicated {replicas}-fold on {brokers} brokers: with it layouts are lost",
            "raise its replication factor to 3 with kafka-reassign-partitions",
        )  # fmt: skip


def _settings(admin: AdminClient, name: str, replicas: int, timeout: float) -> Iterator[Finding]:
    config = topic_config(admin, name, timeout)
    if config is None:
        yield Finding("control topic", name, Status.UNKNOWN, "this user may not describe its settings", "")
        return
    wanted = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
    wrong = [
        f"{key}={config.get(key)} (has to be {value})" for key, value in wanted.items() if config.get(key) != value
    ]
    if config.get("message.timestamp.type") != "LogAppendTime":
        wrong.append("message.timestamp.type is not LogAppendTime, so each change waits for what is over already")
    isr = int(config.get("min.insync.replicas", "1"))
    if replicas >= 3 and isr < 2:
        wrong.append(f"min.insync.replicas={isr} (has to be 2)")
    if wrong:
        fatal = any(text.startswith("cleanup.policy") for text in wrong)
        status = Status.FAIL if fatal else Status.WARN
        yield Finding("control topic", name, status, ", ".join(wrong), "set it with kafka-configs")
    else:
        yield Finding("control topic", name, Status.OK, f"compact, {replicas} replicas, min.insync.replicas {isr}")


def _rights(allowed: dict[str, set[AclOperation]]) -> Finding:
    """Which roles this user may fill, and what the others lack."""
    missing: dict[str, list[str]] = {}
    for role, needs in _ROLES.items():
        missing[role] = [
            f"{operation.name.capitalize()} on {topic}"
            for topic, operations in needs.items()
            for operation in sorted(operations - allowed.get(topic, set()), key=lambda o: o.name)
        ]
    may = [role for role, lacks in missing.items() if not lacks]
    lacking = "; ".join(f"for a {role} it lacks {', '.join(lacks)}" for role, lacks in missing.items() if lacks)
    if len(may) == len(_ROLES):
        return Finding("rights", "control topics", Status.OK, "this user may act as consumer, producer and controller")
    status = Status.WARN if may else Status.FAIL
    return Finding(
        "rights", "control topics", status, f"this user may act as {', '.join(may) or 'nothing'}; {lacking}",
        "grant what its role needs (docs/protocol.md lists it)",
    )  # fmt: skip


def topic_config(admin: AdminClient, topic: str, timeout: float) -> dict[str, str] | None:
    """The broker's settings of a topic, defaults included; None when this user may not see them."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        entries = admin.describe_configs([resource], request_timeout=timeout)[resource].result(timeout + 1)
    except (KafkaException, FutureTimeout):
        return None
    return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}
