"""The connectors of lines of files: what is a line, and what a value is in one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.connector.connect import Field, Schema, SinkRecord
from keyorder.connector.connect.api.errors import OffsetsRefusedError
from keyorder.connector.connect.api.schema import BYTES, FLOAT64, INT64, STRING, TIMESTAMP
from keyorder.connector.connect.connectors.file import (
    FileStreamSinkTask,
    FileStreamSourceConnector,
    FileStreamSourceTask,
)

MOMENT = datetime(2026, 11, 22, 1, 2, 3, tzinfo=timezone.utc)
STRUCT = Schema("struct", fields=(Field("id", INT64), Field("ok", Schema("boolean")), Field("none", STRING)))
OF_BYTES = Schema("array", values=BYTES)


@pytest.mark.parametrize(
    ("schema", "value", "line"),
    [
        (STRING, "text", "text"),
        (None, {"id": 1, "ok": True, "n": None}, "{id=1, ok=true, n=null}"),
        (STRUCT, {"id": 1, "ok": True}, "Struct{id=1,ok=true}"),
        (None, [1, ["a"], None], "[1, [a], null]"),
        (None, True, "true"),
        (None, None, "null"),
        (FLOAT64, 1e10, "1.0E10"),
        (FLOAT64, 3, "3.0"),
        (Schema("float32"), 0.10000000149011612, "0.1"),
        (None, Decimal("1.50"), "1.50"),
        (TIMESTAMP, MOMENT, "Sun Nov 22 01:02:03 UTC 2026"),
        (BYTES, b"text", "text"),
        (None, {"b": b"text"}, '{"b":"dGV4dA=="}'),
        (OF_BYTES, [b"text"], '["dGV4dA=="]'),
        (None, "lone \ud800", "lone ?"),
    ],
)
def test_a_sink_writes_a_value_as_java_prints_it(tmp_path: Path, schema: Schema | None, value: Any, line: str) -> None:
    """Bytes apart, for which Java prints the address of an object: they are text, and base64 inside of a value."""
    task = FileStreamSinkTask()
    task.start({"file": str(tmp_path / "out")})
    task.put([SinkRecord(topic="t", value=value, value_schema=schema)])
    task.flush({})
    task.stop()
    assert (tmp_path / "out").read_text() == f"{line}\n"


def test_a_sink_writes_keys_as_it_writes_values(tmp_path: Path) -> None:
    """A record without a key has nothing before its delimiter, as a source reads it."""
    task = FileStreamSinkTask()
    task.start({"file": str(tmp_path / "out"), "key.delimiter": ":"})
    task.put(
        [
            SinkRecord(topic="t", key={"id": 1}, key_schema=STRUCT, value="a"),
            SinkRecord(topic="t", key=None, value=None),
        ]
    )
    task.flush({})
    task.stop()
    assert (tmp_path / "out").read_text() == "Struct{id=1}:a\n:null\n"


class Reading:
    """A source of one file, begun anew at the offset of the last record that it has returned, as after a crash."""

    def __init__(self, file: Path, batch: int = 2000) -> None:
        self._config = {"file": str(file), "topic": "t", "batch.size": str(batch)}
        self.position: int | None = None

    def poll(self) -> list[str]:
        """The values of one poll."""
        task, position = FileStreamSourceTask(), self.position
        reader = SimpleNamespace(offset=lambda partition: None if position is None else {"position": position})
        task.context = SimpleNamespace(offset_storage_reader=reader, wait=lambda seconds: None)  # type: ignore[assignment]
        task.start(self._config)
        records = task.poll() or []
        for record in records:
            self.position = record.source_offset["position"]
        return [record.value for record in records]

    def all(self) -> Iterator[str]:
        """All values of as many polls as it takes."""
        while values := self.poll():
            yield from values


def test_lines_end_as_in_kafka_connect(tmp_path: Path) -> None:
    r"""By \n, by \r\n and by \r; a \r at the end of what is there may be half of a \r\n."""
    file = tmp_path / "in"
    reading = Reading(file)
    steps = (
        (b"one\r\ntwo\n", ["one", "two"], 9),
        (b"three\r", [], 9),
        (b"\n", ["three"], 16),
        (b"four\rfive", ["four"], 21),
        (b"\r", [], 21),
        (b"\rsix", ["five", ""], 27),
        (b"\n\n\r\n", ["six", "", ""], 34),
    )
    for written, values, position in steps:
        with file.open("ab") as opened:
            opened.write(written)
        assert (written, reading.poll()) == (written, values)
        assert (written, reading.position) == (written, position)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_file_has_the_lines_of_its_text_however_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """In pieces, in batches, and begun anew at any record's offset."""
    lines = data.draw(st.lists(st.sampled_from([b"", b"a", b"bb", "\u20ac".encode(), b"c" * 70_000]), max_size=8))
    content = b"".join(line + data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"])) for line in lines) + b"rest"
    file = tmp_path_factory.mktemp("lines") / "in"
    reading, found = Reading(file, data.draw(st.integers(1, 3))), []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=3)))
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with file.open("ab") as opened:
            opened.write(content[start:end])
        found += list(reading.all())
    # What Python takes for one line's end: "\r" before a "\n" that is the end of an empty line is "\r\n".
    assert [*found, "rest"] == content.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")


def test_offsets_are_compared_file_by_file() -> None:
    """That of another file than the configured one is no way back in this one."""
    source, config = FileStreamSourceConnector(), {"file": "/a", "topic": "t"}

    def alter(file: str, position: int) -> None:
        source.alter_offsets(
            config,
            [({"filename": "/a"}, {"position": 100}), ({"filename": "/b"}, {"position": 7})],
            [({"filename": file}, {"position": position})],
        )

    alter("/a", 100)
    alter("/b", 7)
    alter("/c", 5)
    for file, position in (("/a", 99), ("/b", 6)):
        with pytest.raises(OffsetsRefusedError):
            alter(file, position)
