"""A converter whose registry is away for some values, and a source that polls several records at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar

from keyorder.connector.connect import RetriableError, SinkRecord, SinkTask, SourceRecord, SourceTask
from keyorder.connector.connect.api.schema import Schema
from keyorder.connector.connect.converters.base import StringConverter
from support.connect_plugins import CounterSource, CounterTask
from support.connect_rig import MemorySink, MemoryTask


class AwayConverter(StringConverter):
    """Values that begin with `away` cannot be converted until they are among `known`; `tried` has them from the first time."""

    known: ClassVar[set[str]] = set()
    tried: ClassVar[set[str]] = set()

    def _look(self, value: str) -> None:
        if value.startswith("away"):
            self.tried.add(value)
            if value not in self.known:
                raise RetriableError("the registry is away")

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        self._look(str(value))
        return super().from_connect(topic, schema, value)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        self._look((data or b"").decode())
        return super().to_connect(topic, data)


class BatchSource(CounterSource):
    """Its task polls all that is left of what a test lists, in one batch."""

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return BatchTask


class BatchTask(CounterTask):
    """Goes on behind its stored offset."""

    values: ClassVar[list[str]] = []

    def poll(self) -> list[SourceRecord]:
        numbers = range(self._next, len(self.values))
        if not numbers:
            self.context.wait(0.02)
            return []
        self._next = len(self.values)
        return [replace(self._record(n), key="k", value=self.values[n]) for n in numbers]


class StubbornSink(MemorySink):
    """Its task takes whatever happens in `put` for something that passes."""

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        return StubbornTask


class StubbornTask(MemoryTask):
    """As many tasks do, it does not look at what its reporter raises."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        try:
            super().put(records)
        except Exception as error:
            raise RetriableError("not now") from error


class LateSink(MemorySink):
    """Its task stores when it flushes, as one does that writes in the background, and reports the bad ones there."""

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        return LateTask


class LateTask(MemoryTask):
    """What it reports is a copy that it has changed."""

    def start(self, config: dict[str, str]) -> None:
        super().start(config)
        self._kept: list[SinkRecord] = []

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._kept += [deepcopy(record).new(topic="other") for record in records]

    def flush(self, offsets: Mapping[tuple[str, int], int]) -> None:
        kept, self._kept = self._kept, []
        super().put(kept)
        super().flush(offsets)
