"""The configuration of a local broker and of its clients. Pure: values in, values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...partitioner.errors import UsageError

HOST = "127.0.0.1"

_USER = re.compile(r"[A-Za-z0-9._-]+")
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class Node:
    """One broker's place in a cluster: its id (from 1) and its two ports on the loopback interface."""

    id: int
    port: int
    controller_port: int


@dataclass(frozen=True)
class ClusterPlan:
    """All that the brokers of one cluster agree on. node_properties: called with the plan and a node, its own properties."""

    version: str
    nodes: Sequence[Node]
    users: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    node_properties: Callable[[ClusterPlan, Node], Mapping[str, str]] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port of each broker, joined by commas."""
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    @property
    def super_user(self) -> str | None:
        """The first of the users: every right is theirs, and the brokers talk to each other as them."""
        return next(iter(self.users), None)


def server_properties(plan: ClusterPlan, node: Node, log_dir: Path) -> dict[str, str]:
    """The whole server.properties of one broker. The caller's own properties win over all others."""
    count = len(plan.nodes)
    copies, in_sync = str(min(3, count)), str(2 if count >= 3 else 1)
    settings = {
        "node.id": str(node.id),
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in plan.nodes),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENT",
        "listeners": f"CLIENT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"CLIENT://{HOST}:{node.port}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(log_dir),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "5",
        # A test's group should not wait for members that never come, nor a minute for a dead one.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # A killed broker is given up after this, which is 9 s by default.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "6000",
        # Sized for a laptop: the defaults reserve 128 MB for the cleaner and a dozen threads.
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
    }
    if plan.version.startswith("3."):
        # Early access in 3.x, the default from 4.0 on.
        settings["group.coordinator.rebalance.protocols"] = "classic,consumer"
    settings.update(_security(plan.users))
    settings.update(plan.properties)
    if plan.node_properties is not None:
        settings.update(plan.node_properties(plan, node))
    return settings


def _security(users: Mapping[str, str]) -> dict[str, str]:
    if not users:
        return {}
    first = next(iter(users))
    login = f"{_JAAS} username={_quoted(first)} password={_quoted(users[first])}"
    accounts = " ".join(f"user_{name}={_quoted(password)}" for name, password in users.items())
    return {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{login} {accounts};",
        "listener.name.controller.plain.sasl.jaas.config": f"{login} {accounts};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{first}",
        "allow.everyone.if.no.acl.found": "false",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_users(users: Mapping[str, str]) -> None:
    """UsageError for a user name that JAAS cannot spell or an empty password. Passwords are not repeated."""
    for name, password in users.items():
        if not _USER.fullmatch(name):
            raise UsageError(f"user {name!r}: a name consists of letters, digits, '.', '_' and '-'")
        if not password or not password.isprintable():
            raise UsageError(f"user {name!r} needs a password of printable characters")


def client_config(plan: ClusterPlan, user: str | None = None) -> dict[str, str]:
    """What a confluent-kafka client needs to reach the cluster as `user`, by default the first one."""
    config = {"bootstrap.servers": plan.bootstrap_servers}
    if not plan.users:
        if user is not None:
            raise UsageError(f"this cluster has no users, so none can be {user!r}")
        return config
    name = user if user is not None else next(iter(plan.users))
    if name not in plan.users:
        raise UsageError(f"{name!r} is not among the users of this cluster: {', '.join(plan.users)}")
    return config | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": plan.users[name],
    }


def to_properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file, ASCII only."""
    return "".join(f"{_escaped(key, True)}={_escaped(value, False)}\n" for key, value in settings.items())


def _escaped(text: str, is_key: bool) -> str:
    out: list[str] = []
    for position, char in enumerate(text):
        if char in "\\" or (is_key and char in ":=#! ") or (not is_key and char == " " and position == 0):
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        else:
            # Java reads UTF-16 units here, so a character beyond the first plane takes two.
            units = char.encode("utf-16-be")
            out += [f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
    return "".join(out)
