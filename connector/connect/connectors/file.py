"""Lines of a file to a topic and back (Kafka Connect's FileStream connectors): the smallest complete example."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..api.connector import Config, SinkConnector, SourceConnector
from ..api.errors import BadRequestError, ConnectError, DataError, OffsetsRefusedError
from ..api.records import SinkRecord, SourceRecord
from ..api.schema import STRING, Schema
from ..api.task import Place, SinkTask, SourceTask
from ..api.text import java_string, to_text
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonEmptyString, Range

_END = re.compile(rb"\r?\n|\r(?!\Z)")  # a \r behind which nothing is yet may be half of a \r\n


class FileStreamSourceConnector(SourceConnector):
    """Each line of a file, as it grows, becomes a record. With a delimiter, what stands before it is the key."""

    version = "1"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "file", Type.STRING, importance=Importance.HIGH, documentation="The file.", validator=NonEmptyString()
            )
            .define(
                "topic", Type.STRING, importance=Importance.HIGH, documentation="The topic.", validator=NonEmptyString()
            )
            .define("key.delimiter", Type.STRING, None, Importance.LOW, "Between key and value in a line.")
            .define("batch.size", Type.INT, 2000, Importance.LOW, "Lines per poll.", validator=Range(1))
        )

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return FileStreamSourceTask

    def start(self, config: Config) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> list[Config]:
        return [self._config]

    def exactly_once_support(self, config: Config) -> bool:
        return True

    def alter_offsets(
        self,
        config: Config,
        before: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
        after: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> None:
        for partition, offset in after:
            if offset is None:
                continue  # whatever is stored may be forgotten
            position = offset.get("position")
            if (
                set(partition) != {"filename"}
                or isinstance(partition["filename"], (dict, list))
                or type(position) is not int
                or not 0 <= position < 2**63
            ):
                raise BadRequestError(
                    'an offset has the form {"partition": {"filename": F}, "offset": {"position": N}}, N a number of bytes'
                )
            now = next((stored.get("position", 0) for place, stored in before if dict(place) == dict(partition)), 0)
            if position < now:
                raise OffsetsRefusedError(
                    f"going back from {now} to {position} would write old lines after newer ones of their keys: "
                    "DELETE the offsets to write the whole file again"
                )


class FileStreamSourceTask(SourceTask):
    """Reads whole lines only: one without its end is still being written."""

    def start(self, config: Config) -> None:
        parsed = FileStreamSourceConnector.config().parse(config)
        self._path, self._topic = Path(parsed["file"]), parsed["topic"]
        self._delimiter, self._batch = parsed["key.delimiter"], parsed["batch.size"]
        self._partition = {"filename": parsed["file"]}
        stored = self.context.offset_storage_reader.offset(self._partition)
        self._position = 0 if stored is None else int(stored["position"])

    def poll(self) -> list[SourceRecord] | None:
        records: list[SourceRecord] = []
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._position:
                    raise ConnectError(f"{self._path} is shorter than it was: it must only grow")
                file.seek(self._position)
                for line, self._position in _lines(file):
                    records.append(self._record(line.decode(errors="replace")))
                    if len(records) == self._batch:
                        break
        except FileNotFoundError:
            pass  # it may come
        if not records:
            self.context.wait(0.2)
        return records

    def _record(self, line: str) -> SourceRecord:
        key, value = None, line
        if self._delimiter and self._delimiter in line:
            key, _, value = line.partition(self._delimiter)
        return SourceRecord(
            topic=self._topic,
            key=key,
            key_schema=None if key is None else STRING,
            value=value,
            value_schema=STRING,
            source_partition=self._partition,
            source_offset={"position": self._position},
        )


class FileStreamSinkConnector(SinkConnector):
    """Each record becomes a line of a file. One task: a file has one end."""

    version = "1"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "file", Type.STRING, importance=Importance.HIGH, documentation="The file.", validator=NonEmptyString()
            )
            .define(
                "key.delimiter", Type.STRING, None, Importance.LOW, "Write the key before the value, and this between."
            )
        )

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        return FileStreamSinkTask

    def start(self, config: Config) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> list[Config]:
        return [self._config]


class FileStreamSinkTask(SinkTask):
    """Appends at put, makes durable at flush. At least once: after a crash lines since the last flush come again."""

    def start(self, config: Config) -> None:
        parsed = FileStreamSinkConnector.config().parse(config)
        self._delimiter = parsed["key.delimiter"]
        try:
            self._file = Path(parsed["file"]).open("a", encoding="utf-8", errors="replace")  # noqa: SIM115
        except OSError as error:
            raise ConnectError(f"{parsed['file']} cannot be written: {error.strerror}") from error

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            key = "" if record.key is None else _text(record.key_schema, record.key)
            start = f"{key}{self._delimiter}" if self._delimiter else ""
            self._file.write(f"{start}{_text(record.value_schema, record.value)}\n")

    def flush(self, offsets: Mapping[Place, int]) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def stop(self) -> None:
        self._file.close()


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each whole line from where the file stands, and the position behind it. Its end is \\n, \\r\\n or \\r, as in Kafka Connect."""
    position, rest, seen = file.tell(), b"", 0
    while chunk := file.read(max(65_536, len(rest))):
        rest += chunk
        start = 0
        for end in _END.finditer(rest, seen):
            yield rest[start : end.start()], position + end.end()
            start = end.end()
        rest, position = rest[start:], position + start
        seen = len(rest.removesuffix(b"\r"))


def _text(schema: Schema | None, data: Any) -> str:
    """What Java prints of a value. Of bytes it prints the address: here they are text, and base64 inside of a value."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data).decode(errors="replace")
    try:
        return java_string(schema, data)
    except DataError:
        return to_text(schema, data)
