"""Topics that a source connector writes and that are not there yet: made under management, if the settings say so (KIP-158)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AdminClient,
    ConfigResource,
    ResourceType,
)

from .....partitioner.errors import ConfigError, KafkaOperationError, NotAuthorizedError
from ....admin import TopicAdmin
from ....config import connection_of
from ....kafka_errors import translated


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
            settings = self._settings(topic) or self._as_brokers()
            if settings is None:
                return False
            partitions, replication = settings
            try:
                TopicAdmin(self._config).create(topic, partitions, None if replication < 1 else replication)
            except KafkaOperationError:
                if not self._exists(topic):  # another task was faster, or it is a real error
                    raise
        self._known.add(topic)
        return True

    def _as_brokers(self) -> tuple[int, int] | None:
        """What auto.create.topics.enable would make of a missing topic; None where it is off, or not ours to ask for.

        A topic that the broker makes on a producer's request would have to be adopted; one that is made here is managed.
        """
        admin = AdminClient(self._config)
        try:
            with translated("describe", "the brokers"):
                broker = next(iter(admin.list_topics(timeout=10).brokers))
                resource = ConfigResource(ResourceType.BROKER, str(broker))
                found = admin.describe_configs([resource], request_timeout=10)[resource].result(15)
        except NotAuthorizedError:
            return None
        if found["auto.create.topics.enable"].value != "true":
            return None
        return int(found["num.partitions"].value), -1

    def _settings(self, topic: str) -> tuple[int, int] | None:
        for group in self._parsed["topic.creation.groups"]:
            prefix = f"topic.creation.{group}."
            patterns = [p.strip() for p in self._connector.get(f"{prefix}include", "").split(",") if p.strip()]
            if any(re.fullmatch(pattern, topic) for pattern in patterns):
                try:
                    return int(self._connector[f"{prefix}partitions"]), int(
                        self._connector.get(f"{prefix}replication.factor", "-1")
                    )
                except (KeyError, ValueError):
                    raise ConfigError(f"{prefix}partitions", "it is missing or no number", "give a number") from None
        partitions = self._parsed["topic.creation.default.partitions"]
        return None if partitions is None else (partitions, self._parsed["topic.creation.default.replication.factor"])

    def _exists(self, topic: str) -> bool:
        with translated("describe", f"topic {topic}"):
            found = AdminClient(self._config).list_topics(topic, timeout=10).topics.get(topic)
        return found is not None and found.error is None
