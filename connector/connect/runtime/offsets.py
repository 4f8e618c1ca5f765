"""Source offsets: where each source partition of a connector goes on. In a file, or in a compacted topic."""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....partitioner.errors import ConfigError
from .kafka_log import KafkaLog


def canonical(document: Any) -> str:
    """JSON that is the same text for the same data."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def offset_key(connector: str, partition: Mapping[str, Any]) -> str:
    """The key of an offset record: [connector, source partition]."""
    return canonical([connector, dict(partition)])


def entry_of(key: str, offset: Any) -> tuple[str, dict[str, Any]]:
    """One stored offset, by its key. Raises ValueError for what no store of ours has written."""
    names = json.loads(key)
    if not (
        isinstance(names, list) and len(names) == 2 and isinstance(names[0], str) and isinstance(names[1], dict)
    ) or not isinstance(offset, dict):
        raise ValueError("an entry is no offset of a source partition")
    return key, offset


class OffsetStore(ABC):
    """Offsets by (connector, source partition). Thread-safe."""

    @abstractmethod
    def refresh(self) -> None:
        """Know all that is stored now."""

    @abstractmethod
    def write(self, connector: str, offsets: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Store, by canonical source partition; None forgets one. Durable when this returns."""

    @abstractmethod
    def table(self) -> Mapping[str, Any]:
        """All offsets by `offset_key`."""

    def offset(self, connector: str, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        """The stored offset of one source partition."""
        found = self.table().get(offset_key(connector, partition))
        return None if found is None else dict(found)

    def of(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Every (source partition, offset) of a connector."""
        found = []
        for key, value in list(self.table().items()):
            name, partition = json.loads(key)
            if name == connector:
                found.append((partition, dict(value)))
        return sorted(found, key=lambda pair: canonical(pair[0]))

    def close(self) -> None:  # noqa: B027  # a file needs none
        """Release what is open."""


class FileOffsetStore(OffsetStore):
    """One JSON file, replaced as a whole, so that a crash leaves the old one or the new one."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        try:
            stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            if not isinstance(stored, dict):
                raise ValueError("it holds no object")
            self._table: dict[str, Any] = dict(entry_of(key, offset) for key, offset in stored.items())
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                "offset.storage.file.filename", f"{path} cannot be read: {error}", "name a file of offsets"
            ) from error
        if not path.parent.is_dir():
            raise ConfigError("offset.storage.file.filename", f"{path.parent} is no folder", "make it first")

    def refresh(self) -> None:
        pass

    def table(self) -> Mapping[str, Any]:
        with self._lock:
            return dict(self._table)

    def write(self, connector: str, offsets: Mapping[str, Mapping[str, Any] | None]) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                key = canonical([connector, json.loads(partition)])
                if offset is None:
                    self._table.pop(key, None)
                else:
                    self._table[key] = dict(offset)
            temporary = self._path.with_name(f"{self._path.name}.new")
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(self._table, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)


class KafkaOffsetStore(OffsetStore):
    """A compacted topic. Read committed only, so that a transaction under way is not seen."""

    def __init__(self, config: Mapping[str, Any], topic: str, partitions: int, replication: int) -> None:
        self.topic = topic
        self._table: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._log = KafkaLog(config, topic, partitions, replication, self._apply)
        self._log.open()

    def refresh(self) -> None:
        with self._lock:
            self._log.read_to_end()

    def table(self) -> Mapping[str, Any]:
        with self._lock:
            return dict(self._table)

    def write(self, connector: str, offsets: Mapping[str, Mapping[str, Any] | None]) -> None:
        self._log.write(
            {
                canonical([connector, json.loads(partition)]): None
                if offset is None
                else canonical(dict(offset)).encode()
                for partition, offset in offsets.items()
            }
        )

    def close(self) -> None:
        self._log.close()

    def _apply(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._table.pop(key, None)
        else:
            self._table.update([entry_of(key, json.loads(value))])


class OffsetReader:
    """What a source task sees of the store (OffsetStorageReader)."""

    def __init__(self, store: OffsetStore, connector: str) -> None:
        self._store, self._connector = store, connector

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        self._store.refresh()  # another worker's task may have stored them a moment ago
        return [self._store.offset(self._connector, partition) for partition in partitions]


class _Submitted:
    __slots__ = ("done", "offset")

    def __init__(self, offset: Mapping[str, Any]) -> None:
        self.offset, self.done = offset, False


class SubmittedRecords:
    """Records on their way to Kafka. Only an unbroken run of acknowledged ones moves a source partition's offset.

    Thread-safe: acknowledgements come from whichever thread polls the producer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, deque[_Submitted]] = {}
        self._due: dict[str, Mapping[str, Any]] = {}

    def submit(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> _Submitted:
        """A record is about to be sent."""
        made = _Submitted(offset)
        with self._lock:
            self._queues.setdefault(canonical(dict(partition)), deque()).append(made)
        return made

    def take_due(self) -> dict[str, Mapping[str, Any]]:
        """The offsets that have moved since the last call."""
        with self._lock:
            for partition, queue in self._queues.items():
                while queue and queue[0].done:
                    self._due[partition] = queue.popleft().offset
            due, self._due = self._due, {}
            return due
