"""Plugins for worker processes of tests: a source that counts, and a sink that writes down what it is given."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from keyorder.connector.connect import (
    ConfigDef,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
)


class CounterSource(SourceConnector):
    """Each task counts upwards, its number being its source partition."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define("topic", "STRING").define("pause.s", "DOUBLE", 0.02)

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return CounterTask

    def start(self, config: dict[str, str]) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{**self._config, "number": str(i)} for i in range(max_tasks)]

    def exactly_once_support(self, config: dict[str, str]) -> bool:
        return True


class CounterTask(SourceTask):
    """Goes on behind its stored offset."""

    def start(self, config: dict[str, str]) -> None:
        self._topic, self._partition = config["topic"], {"task": config["number"]}
        self._pause = float(config.get("pause.s", "0.02"))
        stored = self.context.offset_storage_reader.offset(self._partition)
        self._next = 0 if stored is None else stored["next"]

    def poll(self) -> list[SourceRecord]:
        self.context.wait(self._pause)
        made = [self._record(n) for n in range(self._next, self._next + 5)]
        self._next += 5
        return made

    def _record(self, n: int) -> SourceRecord:
        task = self._partition["task"]
        return SourceRecord(
            topic=self._topic,
            key=f"{task}-{n % 7}",
            value=f"{task} {n}",
            source_partition=self._partition,
            source_offset={"next": n + 1},
        )


class HandingOverSource(CounterSource):
    """Its tasks ask the runtime to flush before each poll, as one does whose share goes to another task."""

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return HandingOverTask


class HandingOverTask(CounterTask):
    """Keeps in `stored` what a task that took over would have found then."""

    stored: ClassVar[list[object]] = []

    def poll(self) -> list[SourceRecord]:
        self.context.flush()
        self.stored.append(self.context.offset_storage_reader.offset(self._partition))
        return super().poll()


class EndingSource(CounterSource):
    """Its task says where transactions end."""

    def can_define_transaction_boundaries(self, config: dict[str, str]) -> bool:
        return True


class AbortingSource(EndingSource):
    """Drops every second transaction: four polls of one record, then none."""

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return AbortingTask


class AbortingTask(CounterTask):
    """The record of an odd number is dropped."""

    def poll(self) -> list[SourceRecord]:
        transaction = self.context.transaction
        assert transaction is not None
        if self._next == 4:
            self.context.wait(0.1)
            return []
        n, self._next = self._next, self._next + 1
        (transaction.abort_transaction if n % 2 else transaction.commit_transaction)()
        return [replace(self._record(n), key="k")]


class ThreesSource(EndingSource):
    """Its task ends a transaction behind every third record."""

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return ThreesTask


class ThreesTask(CounterTask):
    """Polls up to the number that a test allows. told: the values that the runtime calls committed."""

    allowed: ClassVar[int] = 0
    told: ClassVar[list[str]] = []

    def poll(self) -> list[SourceRecord]:
        transaction = self.context.transaction
        assert transaction is not None
        if self._next >= self.allowed:
            self.context.wait(0.02)
            return []
        n, self._next = self._next, self._next + 1
        if n % 3 == 2:
            transaction.commit_transaction()
        return [replace(self._record(n), key="k")]

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        self.told.append(record.value)


class ListedSource(CounterSource):
    """Its task polls the values that a test lists, all of one key."""

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return ListedTask


class ListedTask(CounterTask):
    """committed: the values that the runtime has told of, and whether they have a place. A value waits for those before it."""

    values: ClassVar[list[str]] = []
    committed: ClassVar[list[tuple[str, bool]]] = []

    def poll(self) -> list[SourceRecord]:
        n = len(self.committed)
        if n < self._next or n == len(self.values):
            self.context.wait(0.02)
            return []
        self._next += 1
        return [replace(self._record(n), key="k", value=self.values[n])]

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        self.committed.append((record.value, partition is not None))


class JournalSink(SinkConnector):
    """Appends `key value` lines to a file that all tasks share, one write per put."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define("file", "STRING")

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        return JournalTask

    def start(self, config: dict[str, str]) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._config) for _ in range(max_tasks)]


class JournalTask(SinkTask):
    """Each line ends with process.task.put, so that one put can be told from the next.

    What was written before a kill stays written: the page cache outlives the process.
    """

    _made = itertools.count()

    def start(self, config: Mapping[str, str]) -> None:
        self._file = os.open(config["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._task, self._puts = next(self._made), itertools.count()

    def put(self, records: Sequence[SinkRecord]) -> None:
        here = f"{os.getpid()}.{self._task}.{next(self._puts)}"
        os.write(self._file, b"".join(f"{r.key} {r.value} {here}\n".encode() for r in records))

    def flush(self, offsets: Mapping[tuple[str, int], int]) -> None:
        pass

    def stop(self) -> None:
        os.close(self._file)
