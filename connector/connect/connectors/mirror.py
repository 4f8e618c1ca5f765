"""Copies topics into others of any partition count, on this cluster or from another one, each key in order.

The source may be managed (its keys may move while they are copied) or not, whatever its partitioner: what counts is that
a key's records lie in one partition of an unmanaged topic. Records keep key, value, headers and time, and carry their
place of origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..api.connector import Config, SourceConnector
from ..api.errors import ConnectError, OffsetsRefusedError
from ..api.task import SourceTask
from ..config.configdef import ConfigDef
from ..config.keys import ConfigValue
from .mirror_settings import definition, judged
from .mirror_task import MirrorTask


class MirrorConnector(SourceConnector):
    """Copies one topic, or all whose names match. Use key, value and header converters ByteArrayConverter: bytes stay as they are."""

    version = "1"

    @classmethod
    def config(cls) -> ConfigDef:
        return definition()

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> list[ConfigValue]:
        return judged(config)

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return MirrorTask

    def start(self, config: Config) -> None:
        for value in judged(config):
            if value.errors:
                raise ConnectError(f"{value.name}: {value.errors[0]}")
        self._config = config

    def task_configs(self, max_tasks: int) -> list[Config]:
        # Partitions go from task to task by the source's group. Exactly-once is by task, so there it is one task's work.
        return [dict(self._config) for _ in range(max_tasks)]

    def exactly_once_support(self, config: Config) -> bool:
        return int(config.get("tasks.max", "1")) == 1

    def alter_offsets(
        self,
        config: Config,
        before: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
        after: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> None:
        raise OffsetsRefusedError(
            "going back would copy old records after newer ones of their keys, going forward would lose records: "
            "migrate into a new topic instead"
        )
