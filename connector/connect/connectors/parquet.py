"""Writes records into Parquet files, one per topic, partition and flush, named by their first offset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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


class ParquetSinkTask(SinkTask):
    """Collects at put, writes whole files at flush.

    A file becomes visible under its name when it is complete. One that is written again after a crash begins at the
    same offset, so it replaces the first instead of repeating its records.
    """

    def start(self, config: Config) -> None:
        self._options = ParquetSinkConnector.config().parse(config)
        self._folder = Path(self._options["folder"])
        self._rows: dict[Place, list[SinkRecord]] = {}

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            self._rows.setdefault((record.original_topic, record.partition), []).append(record)
        if sum(len(rows) for rows in self._rows.values()) >= self._options["flush.size"]:
            self.context.request_commit()

    def flush(self, offsets: Mapping[Place, int]) -> None:
        # All of it: a record that came back from parking belongs to a partition that need not be ours.
        for place in list(self._rows):
            rows = self._rows[place]
            if rows:
                self._write(place, rows)
            del self._rows[place]

    def close(self, places: Sequence[Place]) -> None:
        for place in places:
            self._rows.pop(place, None)  # they were flushed, or belong to the next owner

    def _write(self, place: Place, rows: list[SinkRecord]) -> None:
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
        topic, partition = place
        target = self._folder / f"{topic}+{partition:06d}+{rows[0].offset:020d}.parquet"
        temporary = target.with_suffix(".tmp")
        codec = self._options["compression"]
        try:
            with temporary.open("wb") as file:
                pq.write_table(table, file, compression=None if codec == "none" else codec)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            raise ConnectError(f"{target.name} cannot be written: {error.strerror}") from error


def _text(data: Any) -> str | None:
    if data is None or isinstance(data, str):
        return data
    return bytes(data).decode(errors="replace") if isinstance(data, (bytes, bytearray)) else json_text(data)
