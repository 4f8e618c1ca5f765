"""The table without objects: the same answers as a dumb dict of lists gives, however it was filled."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.compaction import columns
from keyorder.compaction.columns import VersionColumns
from keyorder.compaction.folding import Folder
from keyorder.compaction.store import VersionStore
from keyorder.compaction.strategy import Strategy, StrategyKind, encode_version
from keyorder.compaction.versions import Entry, Last, Version
from keyorder.connector.arrow import schema
from keyorder.connector.arrow.schema import SCHEMA
from keyorder.connector.consuming.view import View, unmanaged

pytestmark = pytest.mark.slow  # the first call compiles, for ten seconds

BY_HEADER = Strategy(StrategyKind.HEADER, "v")


def batch_of(records: list[tuple[int, bytes, int, bytes | None]]) -> pa.RecordBatch:
    """(offset, key, version, value), all of partition 0."""
    rows = [
        {"key": key, "value": value, "topic": "t", "partition": 0, "offset": offset, "timestamp": offset * 1000,
         "timestampType": 0, "headers": [{"key": "v", "value": encode_version(version)}]}
        for offset, key, version, value in records
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def folder_of(store: Any) -> Folder:
    """Folds into `store` by the header v."""
    return Folder(store, "id", BY_HEADER, lambda: View(unmanaged("t", 1), False))


def expected(records: list[tuple[int, bytes, int, bytes | None]]) -> dict[bytes, Entry]:
    """By sorting all there is."""
    found = {}
    for key in {key for _, key, _, _ in records}:
        mine = [(version, offset, value) for offset, other, version, value in records if other == key]
        number, offset, value = max(mine, key=lambda row: row[:2])
        last = max(offset for _, offset, _ in mine)
        headers: list[tuple[str, bytes | None]] = [("v", encode_version(number))]
        found[key] = Entry(Version(number, 0, offset, 0, offset, headers, value), Last(0, last, 0, last))
    return found


@pytest.mark.kip("K280-08", "K280-19", "C-19")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_batches_and_records_in_any_order_give_the_same_table(data: st.DataObject) -> None:
    """Whether folded as batches, put one by one, packed, rewritten or spilled in between."""
    chance = random.Random(data.draw(st.integers(0, 10**6)))
    keys = [b"", b"\0", *(b"key-%d" % n for n in range(chance.choice([3, 40, 3000])))]
    records = [
        (offset, chance.choice(keys), chance.randrange(-3, 4), chance.choice([None, b"", b"v%d" % offset]))
        for offset in range(chance.choice([10, 400, 4000]))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_MOST_DEAD", chance.choice([0, 10, 10**9]))
        patch.setattr(columns, "_SEGMENT_BYTES", chance.choice([1, 10_000, 10**9]))
        patch.setattr(columns, "_PAGE", 7)
        patch.setattr("keyorder.compaction.store._MOST_OBJECTS", chance.choice([0, 20, 10**9]))
        store = VersionStore(memory_limit=chance.choice([50_000, 10**9, 10**9]))
        folder, rest = folder_of(store), list(records)
        chance.shuffle(rest)
        while rest:
            part, rest = rest[: (size := chance.choice([1, 5, 500]))], rest[size:]
            if size > 1:
                folder.fold_columns(batch_of(sorted(part)), View(unmanaged("t", 1), False))
                continue
            for offset, key, number, value in part:
                headers: list[tuple[str, bytes | None]] = [("v", encode_version(number))]
                store.put(key, Version(number, 0, offset, 0, offset, headers, value))
    wanted = expected(records)
    displaced = {key: entry for key, entry in wanted.items() if entry.displaced}
    assert {key: store.get(key) for key in wanted} == wanted
    assert store.get(b"no such key") is None
    assert dict(store.entries()) == wanted
    assert store.displaced(None, 10_000) == sorted(displaced.items())
    middle = sorted(displaced)[len(displaced) // 2] if displaced else b""
    assert store.displaced(middle, 3) == [(key, displaced[key]) for key in sorted(displaced) if key > middle][:3]
    assert store.count_displaced() == len(displaced)
    live = sum(entry.best.value is not None for entry in wanted.values())
    assert store.count() == (live, len(wanted) - live)
    store.clear({}, keep_floors=True)
    assert dict(store.entries()) == {key: entry for key, entry in wanted.items() if entry.best.value is None}
    store.close()


@pytest.mark.parametrize("time", [1_795_855_199_000_000_000, 2**63 - 1, -(2**63)])
def test_a_time_beyond_microseconds(time: int) -> None:
    """As of a producer that sends nanoseconds: packed, it is what a batch of the library's records has for it."""
    message = Message(topic="t", partition=0, offset=0, key=b"k", value=b"v", timestamp=(1, time))
    batched, packed = VersionColumns(), VersionColumns()
    store = VersionStore()
    store._columns = batched
    folder_of(store).fold_columns(schema.batch_of([message]), View(unmanaged("t", 1), False))
    packed.put([(b"k", Entry(Version(7, 0, 0, 0, time, [], b"v"), Last(0, 0, 0, 0)))])

    entry, expected_entry = packed.get(b"k"), batched.get(b"k")
    assert entry is not None
    assert expected_entry is not None
    assert (entry.best.version, entry.best.timestamp) == (7, expected_entry.best.timestamp)


def test_a_reader_goes_on_while_the_table_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that were begun go on over growth and rewriting; each key comes once, with a version that it had."""
    monkeypatch.setattr(columns, "_PAGE", 10)
    monkeypatch.setattr(columns, "_MOST_DEAD", 0)
    table = VersionColumns()
    store = VersionStore()
    store._columns = table
    folder, view = folder_of(store), View(unmanaged("t", 1), False)
    folder.fold_columns(batch_of([(n, b"%d" % n, 0, b"old") for n in range(1000)]), view)
    pages = table.entries()
    seen = [next(pages) for _ in range(15)]
    for again in range(1, 8):
        folder.fold_columns(batch_of([(again * 10**4 + n, b"%d" % n, again, b"new") for n in range(3000)]), view)
    seen += pages

    assert sorted(key for key, _ in seen) == sorted(b"%d" % n for n in range(1000))
    assert all(entry.best.value == (b"new" if entry.best.version else b"old") for _, entry in seen)
    assert all(entry.best.offset == entry.best.version * 10**4 + int(key) for key, entry in seen)


@pytest.mark.kip("K280-17")
def test_what_is_counted_is_what_a_key_takes() -> None:
    """The count that memory is limited by is what NumPy and Arrow hold, but for room to grow; superseded versions go."""
    before = pa.total_allocated_bytes()
    table, store = VersionColumns(), VersionStore()
    store._columns = table
    folder, view, keys = folder_of(store), View(unmanaged("t", 1), False), 20_000
    for again in range(10):
        records = [(again * keys + n, b"key-%012d" % n, again, b"v%099d" % n) for n in range(keys)]
        folder.fold_columns(batch_of(records), view)
    held = pa.total_allocated_bytes() - before + table._rows.nbytes + table._arena.nbytes + table._slots.nbytes
    assert table.size <= held < 3 * table.size
    assert table.size / keys < 900  # each key holds at most some superseded versions beside its own
    assert np.array_equal(np.sort([entry.best.version for _, entry in table.entries()]), np.full(keys, 9))
