"""Topics that a source connector writes and that are not there yet: made under management, if the settings say so (KIP-158)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

from .....partitioner.errors import ConfigError, KafkaOperationError
from ....admin import TopicAdmin
from ....config import connection_of
from ....kafka_errors import translated


class TopicCreation:
    """Makes each missing topic once, by the first group whose `include` matches it, else by the default."""

    def __init__(self, config: Mapping[str, Any], connector: Mapping[str, str], parsed: Mapping[str, Any]) -> None:
        self._config, self._connector, self._parsed = connection_of(config), connector, parsed
        self._known: set[str] = set()

    def ensure(self, topic: str) -> None:
        """See that the topic is there. A missing one without a setting is left to the producer's error."""
        if topic in self._known:
            return
        settings = self._settings(topic)
        if settings is not None and not self._exists(topic):
            partitions, replication = settings
            try:
                TopicAdmin(self._config).create(topic, partitions, None if replication < 1 else replication)
            except KafkaOperationError:
                if not self._exists(topic):  # another task was faster, or it is a real error
                    raise
        self._known.add(topic)

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
