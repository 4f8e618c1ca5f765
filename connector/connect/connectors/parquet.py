"""Writes records into Parquet files, one per topic, partition and flush, named by their first offset."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..api.connector import Config, SinkConnector
from ..api.errors import ConnectError
from ..api.records import SinkRecord
from ..api.task import Place, SinkTask
from ..api.text import json_text
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonEmptyString, Range, ValidString

_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("epoch", pa.int32()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("key", pa.string()),
        ("value", pa.string()),
    ]
)


class ParquetSinkConnector(SinkConnector):
    """Keys and values as text (structs as JSON). (epoch, offset) orders the rows of one key across files."""

    version = "1"

    @classmethod
    def config(cls) -> ConfigDef:
        codecs = ValidString("zstd", "snappy", "gzip", "none")
        return (
            ConfigDef()
            .define("folder", Type.STRING, importance=Importance.HIGH, documentation="Where files go.", validator=NonEmptyString())
            .define("flush.size", Type.INT, 100_000, Importance.MEDIUM, "Records after which a commit is asked for.", validator=Range(1))
            .define("compression", Type.STRING, "zstd", Importance.LOW, "Of the columns.", validator=codecs)
        )  # fmt: skip

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        return ParquetSinkTask

    def start(self, config: Config) -> None:
        folder = Path(type(self).config().parse(config)["folder"])
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConnectError(f"folder {folder} cannot be made: {error.strerror}") from error
        self._config = config

    def task_configs(self, max_tasks: int) -> list[Config]:
        return [dict(self._config) for _ in range(max_tasks)]


Version = tuple[int, int, int]


@dataclass
class _File:
    """One that is to be written. found: what was there under its name when its first record came; None for nothing."""

    target: Path
    found: Version | None
    rows: list[SinkRecord] = field(default_factory=list)


class ParquetSinkTask(SinkTask):
    """Collects at put, writes whole files at flush.

    A file becomes visible under its name when it is complete. One that is written again after a crash begins at the
    same offset, so it replaces the first instead of repeating its records.

    A file that another task has written since the first of its records was put here is not lost: one of the two has lost
    the partition, and does not know it yet if it stood still or was cut off from the brokers. Either's offsets may be
    committed. So the file gets the records of both.
    """

    def start(self, config: Config) -> None:
        self._options = ParquetSinkConnector.config().parse(config)
        self._folder = Path(self._options["folder"])
        self._files: dict[Place, _File] = {}
        self._mine = uuid.uuid4().hex  # in names of unfinished files: two tasks must not write into one

    def open(self, places: Sequence[Place]) -> None:
        # What a task has left that ended, or lost the partition, in the middle of its flush.
        for topic, partition in places:
            for left in self._folder.glob(f"{topic}+{partition:06d}+*.tmp"):
                with suppress(OSError):  # where it stays, it does no harm
                    left.unlink()

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            place = topic, partition = record.original_topic, record.partition
            if place not in self._files:
                target = self._folder / f"{topic}+{partition:06d}+{record.offset:020d}.parquet"
                self._files[place] = _File(target, _version(target))
            self._files[place].rows.append(record)
        if sum(len(file.rows) for file in self._files.values()) >= self._options["flush.size"]:
            self.context.request_commit()

    def flush(self, offsets: Mapping[Place, int]) -> None:
        # All of it: a record that came back from parking belongs to a partition that need not be ours.
        for place in list(self._files):
            self._write(self._files[place])
            del self._files[place]

    def close(self, places: Sequence[Place]) -> None:
        for place in places:
            self._files.pop(place, None)  # they were flushed, or belong to the next owner

    def _write(self, file: _File) -> None:
        rows, target = file.rows, file.target
        table = pa.Table.from_pydict(
            {
                "topic": [r.topic for r in rows],
                "partition": [r.partition for r in rows],
                "offset": [r.offset for r in rows],
                "epoch": [r.epoch for r in rows],
                "timestamp": [r.timestamp for r in rows],
                "key": [_text(r.key) for r in rows],
                "value": [_text(r.value) for r in rows],
            },
            schema=_SCHEMA,
        )
        temporary = target.with_suffix(f".{self._mine}.tmp")
        try:
            while True:
                found = _version(target)
                self._store(table if found == file.found else _with_rows_of(target, table), temporary)
                if _version(target) == found:
                    with suppress(FileNotFoundError):  # a task that has opened the partition has removed it: once more
                        temporary.replace(target)
                        return
        except OSError as error:
            raise ConnectError(f"{target.name} cannot be written: {error.strerror}") from error

    def _store(self, table: pa.Table, temporary: Path) -> None:
        codec = self._options["compression"]
        with temporary.open("wb") as file:
            pq.write_table(table, file, compression=None if codec == "none" else codec)
            file.flush()
            os.fsync(file.fileno())


def _version(path: Path) -> Version | None:
    """Of a file: another one for each time that it is written. None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _with_rows_of(path: Path, table: pa.Table) -> pa.Table:
    """The rows of both, by offset; a row that both have as in the table. A file that cannot be read as one has none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return table
    try:
        others = pq.read_table(pa.BufferReader(content)).select(_SCHEMA.names).cast(_SCHEMA)
    except (pa.ArrowException, OSError, LookupError, ValueError):
        return table
    ours = set(table["offset"].to_pylist())
    others = others.filter(pa.array([offset not in ours for offset in others["offset"].to_pylist()], pa.bool_()))
    return pa.concat_tables([table, others]).sort_by("offset")


def _text(data: Any) -> str | None:
    if data is None or isinstance(data, str):
        return data
    return bytes(data).decode(errors="replace") if isinstance(data, (bytes, bytearray)) else json_text(data)
