"""Parquet files of a partition's old owner, which does not know yet that it has lost it, and of the new one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from keyorder.connector.connect import SinkRecord
from keyorder.connector.connect.connectors.parquet import ParquetSinkTask

NAME = f"t+{0:06d}+{0:020d}.parquet"
PLACE = ("t", 0)


def started(folder: Path, **options: str) -> ParquetSinkTask:
    task = ParquetSinkTask()
    task.context = SimpleNamespace(request_commit=lambda: None)  # type: ignore[assignment]
    task.start({"folder": str(folder), **options})
    return task


def record(offset: int, value: str) -> SinkRecord:
    return SinkRecord(topic="t", original_topic="t", key="k", value=value, offset=offset, timestamp=offset)


def put(task: ParquetSinkTask, offsets: Iterable[int], value: str = "v") -> None:
    task.put([record(offset, value) for offset in offsets])


def rows(folder: Path) -> list[tuple[int, str]]:
    """Of the only file there."""
    assert [path.name for path in folder.iterdir()] == [NAME]
    return [(row["offset"], row["value"]) for row in pq.read_table(folder / NAME).to_pylist()]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none"])
def test_a_task_that_lost_its_partition_takes_no_row_from_the_new_owner(tmp_path: Path, compression: str) -> None:
    """Its commit is refused, but its file is written before; the offsets behind the longer file are committed."""
    old, new = started(tmp_path), started(tmp_path, compression=compression)
    put(old, range(3))
    put(new, range(10))
    new.flush({PLACE: 10})
    old.flush({PLACE: 3})
    assert rows(tmp_path) == [(offset, "v") for offset in range(10)]


def test_the_new_owner_takes_no_row_from_a_task_that_still_had_the_partition(tmp_path: Path) -> None:
    """Both may have committed: neither file is taken for the longer one."""
    old, new = started(tmp_path), started(tmp_path)
    put(old, [0, 1, 2, 3])
    put(new, [0, 2, 5], "new")
    old.flush({PLACE: 4})
    new.flush({PLACE: 6})
    assert rows(tmp_path) == [(0, "new"), (1, "v"), (2, "new"), (3, "v"), (5, "new")]


def test_a_file_of_before_is_replaced_by_a_shorter_one(tmp_path: Path) -> None:
    """Its task ended before it could commit: what the file has behind it comes again, into the next one."""
    crashed, new = started(tmp_path), started(tmp_path)
    put(crashed, range(10))
    crashed.flush({PLACE: 10})
    put(new, range(3))
    new.flush({PLACE: 3})
    assert rows(tmp_path) == [(offset, "v") for offset in range(3)]


def test_a_task_that_goes_back_replaces_its_own_file(tmp_path: Path) -> None:
    task = started(tmp_path)
    for value, count in (("first", 10), ("again", 3)):
        put(task, range(count), value)
        task.flush({PLACE: count})
    assert rows(tmp_path) == [(offset, "again") for offset in range(3)]


def test_a_file_that_appears_while_one_is_written_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old owner stands still in the middle of its flush; the new one opens the partition, and flushes."""
    old, new = started(tmp_path), started(tmp_path)
    put(old, range(3))
    write = pq.write_table

    def stands_still(*args: Any, **options: Any) -> None:
        monkeypatch.setattr(pq, "write_table", write)
        new.open([PLACE])
        put(new, range(10))
        new.flush({PLACE: 10})
        write(*args, **options)

    monkeypatch.setattr(pq, "write_table", stands_still)
    old.flush({PLACE: 3})
    assert rows(tmp_path) == [(offset, "v") for offset in range(10)]


def test_a_flush_in_whose_middle_another_task_opens_the_partition_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unfinished file is gone, and its records are not."""
    old, new = started(tmp_path), started(tmp_path)
    put(old, range(3))
    write = pq.write_table

    def stands_still(*args: Any, **options: Any) -> None:
        write(*args, **options)
        monkeypatch.setattr(pq, "write_table", write)
        new.open([PLACE])

    monkeypatch.setattr(pq, "write_table", stands_still)
    old.flush({PLACE: 3})
    assert rows(tmp_path) == [(offset, "v") for offset in range(3)]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no Parquet at all"])
def test_what_is_no_whole_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    task = started(tmp_path)
    put(task, range(3))
    (tmp_path / NAME).write_bytes(content)
    task.flush({PLACE: 3})
    assert rows(tmp_path) == [(offset, "v") for offset in range(3)]


def test_a_half_of_a_file_is_replaced(tmp_path: Path) -> None:
    other, task = started(tmp_path), started(tmp_path)
    put(task, range(3))
    put(other, range(10))
    other.flush({PLACE: 10})
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:-20])
    task.flush({PLACE: 3})
    assert rows(tmp_path) == [(offset, "v") for offset in range(3)]


def test_what_a_killed_task_has_not_finished_goes_when_its_partition_is_opened(tmp_path: Path) -> None:
    """Files of other partitions, and of a topic whose name begins alike, stay."""
    kept = [f"t+{1:06d}+{0:020d}.x.tmp", f"t2+{0:06d}+{0:020d}.x.tmp"]
    for name in (f"t+{0:06d}+{0:020d}.x.tmp", f"t+{0:06d}+{7:020d}.tmp", *kept):
        (tmp_path / name).write_bytes(b"half")
    started(tmp_path).open([PLACE])
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
