"""Topics that a source connector writes and that are not there yet: made under management, if the settings say so (KIP-158)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    ConfigResource,
    ResourceType,
)

from .....partitioner.errors import ConfigError, KafkaOperationError, NotAuthorizedError
from ....admin import TopicAdmin
from ....config import connection_of
from ....kafka_errors import translated
from ....refusals import ClusterAdmin
from ...api.java_regex import compiled
from ..settings import below

_OWN = ("include", "exclude", "partitions", "replication.factor")


@dataclass(frozen=True)
class NewTopicSettings:
    """How a topic is to be made. replication: None for the cluster's default. config: the topic's own settings."""

    partitions: int
    replication: int | None
    config: dict[str, str]


class TopicCreation:
    """Makes each missing topic once, by the first group whose `include` matches it, else by the default."""

    def __init__(self, config: Mapping[str, Any], connector: Mapping[str, str], parsed: Mapping[str, Any]) -> None:
        self._config, self._connector, self._parsed = connection_of(config), connector, parsed
        self._known: set[str] = set()

    def ensure(self, topic: str) -> bool:
        """See that the topic is there: made by the connector's settings, else as the brokers make topics by themselves.

        False: it is not, and neither allows to make it. It may come.
        """
        if topic in self._known:
            return True
        if not self._exists(topic):
            wanted = self._wanted(topic) or self._as_brokers()
            if wanted is None:
                return False
            try:
                TopicAdmin(self._config).create(topic, wanted.partitions, wanted.replication, wanted.config)
            except KafkaOperationError:
                if not self._exists(topic):  # another task was faster, or it is a real error
                    raise
        self._known.add(topic)
        return True

    def _as_brokers(self) -> NewTopicSettings | None:
        """What auto.create.topics.enable would make of a missing topic; None where it is off, or not ours to ask for.

        A topic that the broker makes on a producer's request would have to be adopted; one that is made here is managed.
        """
        try:
            found = self._broker()
        except NotAuthorizedError:
            return None
        if found["auto.create.topics.enable"].value != "true":
            return None
        return NewTopicSettings(int(found["num.partitions"].value), None, {})

    def _broker(self) -> Mapping[str, Any]:
        """A broker's settings. Raises NotAuthorizedError."""
        admin = ClusterAdmin(self._config)
        with translated("describe", "the brokers"):
            broker = next(iter(admin.list_topics(timeout=10).brokers))
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            found: Mapping[str, Any] = admin.describe_configs([resource], request_timeout=10)[resource].result(15)
        return found

    def _wanted(self, topic: str) -> NewTopicSettings | None:
        """By the first group that takes the topic in and does not leave it out, else by the default; None without one."""
        for group in self._parsed["topic.creation.groups"]:
            if self._matches(group, "include", topic) and not self._matches(group, "exclude", topic):
                return self._of_group(group, topic)
        return None if self._parsed["topic.creation.default.partitions"] is None else self._of_group("default", topic)

    def _matches(self, group: str, setting: str, topic: str) -> bool:
        patterns = self._connector.get(f"topic.creation.{group}.{setting}", "").split(",")
        return any(compiled(pattern.strip()).fullmatch(topic) for pattern in patterns if pattern.strip())

    def _of_group(self, group: str, topic: str) -> NewTopicSettings:
        given = below(self._connector, f"topic.creation.{group}.")
        numbers = []
        for name in ("partitions", "replication.factor"):
            text = given.get(name) or self._connector.get(f"topic.creation.default.{name}", "-1")
            try:
                numbers.append(int(text))
            except ValueError:
                raise ConfigError(f"topic.creation.{group}.{name}", "it is no number", "give a number") from None
        partitions = numbers[0] if numbers[0] > 0 else int(self._broker()["num.partitions"].value)
        config = {name: value for name, value in given.items() if name not in _OWN}
        return NewTopicSettings(partitions, numbers[1] if numbers[1] > 0 else None, config)

    def _exists(self, topic: str) -> bool:
        with translated("describe", f"topic {topic}"):
            found = ClusterAdmin(self._config).list_topics(topic, timeout=10).topics.get(topic)
        return found is not None and found.error is None
