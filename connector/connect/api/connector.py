"""Connectors: what a configuration means, and how its work is split into tasks (Kafka Connect, "Connector Developer Guide")."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..config.configdef import ConfigDef
from ..config.keys import ConfigValue
from .task import SinkTask, SourceTask, Task

Config = dict[str, str]


@dataclass(frozen=True)
class ConnectorContext:
    """What the runtime offers a running connector.

    request_task_reconfiguration: call it, from any thread, when `task_configs` would answer otherwise than before.
    raise_error: call it when the connector cannot go on: it becomes FAILED.
    offsets: the stored source offsets of this connector by (canonical JSON of the) source partition; empty for sinks.
    """

    name: str
    request_task_reconfiguration: Callable[[], None]
    raise_error: Callable[[Exception], None]


class Connector(ABC):
    """The base of both kinds. An instance lives from `start` to `stop`; it runs on the leader."""

    kind: ClassVar[str] = ""
    version: ClassVar[str] = "unknown"
    context: ConnectorContext

    @classmethod
    @abstractmethod
    def config(cls) -> ConfigDef:
        """The connector's own settings, without those that every connector has."""

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> list[ConfigValue]:
        """Check settings together. Override to add errors to the values that `ConfigDef.validate` gives."""
        return cls.config().validate(config)

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[Task]:
        """The class of the tasks."""

    def initialize(self, context: ConnectorContext) -> None:
        """Called first."""
        self.context = context

    def start(self, config: Config) -> None:  # noqa: B027  # a connector may have nothing to prepare
        """Begin. Raise ConnectError when it cannot."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> list[Config]:
        """At most `max_tasks` configurations, one per task."""

    def stop(self) -> None:  # noqa: B027
        """Release what `start` took."""


class SourceConnector(Connector):
    """Brings records into Kafka."""

    kind = "source"

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[SourceTask]:
        """The class of the tasks."""

    def exactly_once_support(self, config: Config) -> bool:
        """Whether source offsets alone say where to go on, so that one transaction makes it exact (KIP-618)."""
        return False

    def can_define_transaction_boundaries(self, config: Config) -> bool:
        """Whether the tasks end transactions themselves, by `context.transaction`, with transaction.boundary=connector."""
        return False

    def alter_offsets(
        self,
        config: Config,
        before: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
        after: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> None:
        """Called before stored offsets are changed while STOPPED (KIP-875): (source partition, offset or None) pairs.

        Raise BadRequestError for malformed ones, OffsetsRefusedError where going there would break a key's order.
        """


class SinkConnector(Connector):
    """Takes records out of Kafka."""

    kind = "sink"

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[SinkTask]:
        """The class of the tasks."""
