"""The highest version of each key: in memory up to a limit, and in an embedded database beyond it or across restarts.

In memory single records go to Python objects, and whole batches, or many objects, to columns where numba is installed.
What is put in is only ever merged, and merging is the same in any order. So no part need know what another one holds of a
key: they are merged when one is moved to the next, or when the key is asked for.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..partitioner.errors import ConfigError
from .state_lock import StateLock
from .strategy import ABSENT
from .versions import Entry, Last, Version

if TYPE_CHECKING:
    import pyarrow as pa

    from .columns import VersionColumns
    from .placing import Places

DEFAULT_MEMORY = 256 * 1024 * 1024
_OVERHEAD = 660  # bytes of a key's objects beside its contents, measured
_CACHE_KIB = 32 * 1024
_PAGE = 1000
_MOST_OBJECTS = 20_000  # then they go to columns
_SCHEMA = """
CREATE TABLE IF NOT EXISTS versions (
    key BLOB PRIMARY KEY, known INT, version INT, epoch INT, place INT, partition INT, timestamp INT, headers TEXT,
    value BLOB, last_epoch INT, last_place INT, of_epoch INT, of_place INT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS displaced ON versions (key) WHERE (epoch <> of_epoch OR place <> of_place);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, text TEXT);
"""
_UPSERT = """
INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    known = excluded.known, version = excluded.version, epoch = excluded.epoch, place = excluded.place,
    partition = excluded.partition, timestamp = excluded.timestamp, headers = excluded.headers, value = excluded.value
WHERE (excluded.known, excluded.version, excluded.epoch, excluded.place) > (known, version, epoch, place)
"""
_LAST = """
UPDATE versions SET last_epoch = ?, last_place = ?, of_epoch = ?, of_place = ?
WHERE key = ? AND (?, ?) > (last_epoch, last_place)
"""
_DISPLACED = "(epoch <> of_epoch OR place <> of_place)"
_COLUMNS = (
    "known, version, epoch, place, partition, timestamp, headers, value, last_epoch, last_place, of_epoch, of_place"
)


class VersionStore:
    """Merges versions by key. Not thread-safe: its user holds a lock.

    path: a file that keeps everything across restarts, which no other store may have open; None for a temporary one, made
    only when memory is full. memory_limit: bytes held before they go to the database.

    Raises StateInUseError before it has read or written anything, and ConfigError.
    """

    def __init__(self, path: Path | None = None, memory_limit: int = DEFAULT_MEMORY) -> None:
        # Resolved: the lock and the database are of one file by whatever name it was called.
        self._path, self._limit = None if path is None else Path(os.path.realpath(path)), memory_limit
        self._rows: dict[bytes, Entry] = {}
        self._bytes = 0
        self._displaced: set[bytes] = set()
        self._columns: VersionColumns | None = None
        self._database: sqlite3.Connection | None = None
        self._lock: StateLock | None = None
        if self._path is not None:
            self._lock = StateLock(self._path)
            try:
                self._open()
            except BaseException:
                self._lock.release()
                raise

    @property
    def spilled(self) -> bool:
        """Whether there is a database."""
        return self._database is not None

    def put(self, key: bytes, version: Version, copy_at: tuple[int, int] | None = None) -> None:
        """Take one record in. copy_at: for a copy (epoch, offset) of where it lies, `version` being of its original."""
        epoch, offset = (version.epoch, version.offset) if copy_at is None else copy_at
        entry = self._rows.get(key)
        if entry is None:
            self._rows[key] = Entry(version, Last(epoch, offset, version.epoch, version.offset))
            self._bytes += _OVERHEAD + len(key) + version.size()
            self._stay_within()
            return
        best, last = entry
        if (epoch, offset) > last[:2]:
            last = Last(epoch, offset, version.epoch, version.offset)
        if version[:3] > best[:3]:
            self._bytes += version.size() - best.size()
            best = version
        self._rows[key] = merged = Entry(best, last)
        if merged.displaced:
            self._displaced.add(key)
        else:
            self._displaced.discard(key)

    def fold(self, batch: pa.RecordBatch, places: Places) -> None:
        """Take a batch in. Needs numba."""
        from .columns import VersionColumns

        if self._columns is None:
            self._columns = VersionColumns()
        self._columns.fold(batch, places)
        self._stay_within()

    def get(self, key: bytes) -> Entry | None:
        """What is known of a key, None for nothing."""
        entry = self._rows.get(key)
        if self._columns is not None:
            folded = self._columns.get(key)
            if folded is not None:
                entry = folded if entry is None else folded.merged(entry)
        if self._database is not None:
            row = self._database.execute(f"SELECT {_COLUMNS} FROM versions WHERE key = ?", (key,)).fetchone()
            if row is not None:
                found = _entry(row)
                entry = found if entry is None else found.merged(entry)
        return entry

    def displaced(self, after: bytes | None, limit: int) -> list[tuple[bytes, Entry]]:
        """Up to `limit` keys behind `after`, in their order, whose newest record is not their highest version."""
        columns = self._in_columns()
        if columns is not None:
            return columns.displaced(after, limit)
        if self._database is None:
            keys = sorted(key for key in self._displaced if after is None or key > after)
            return [(key, self._rows[key]) for key in keys[:limit]]
        self.write_down({})
        sql = f"SELECT key, {_COLUMNS} FROM versions WHERE {_DISPLACED} AND key > ? ORDER BY key LIMIT ?"
        if after is None:
            sql = sql.replace("key > ?", "? IS NULL")  # the empty key is a key
        return [(row[0], _entry(row[1:])) for row in self._database.execute(sql, (after, limit)).fetchall()]

    def count_displaced(self) -> int:
        """How many such keys there are."""
        columns = self._in_columns()
        if columns is not None:
            return columns.count_displaced()
        if self._database is None:
            return len(self._displaced)
        self.write_down({})
        (count,) = self._database.execute(f"SELECT count(*) FROM versions WHERE {_DISPLACED}").fetchone()
        return int(count)

    def entries(self) -> Iterator[tuple[bytes, Entry]]:
        """All keys, tombstones included, page by page: what is put in meanwhile may or may not appear."""
        columns = self._in_columns()
        if columns is not None:
            yield from columns.entries()
            return
        if self._database is None:
            yield from list(self._rows.items())
            return
        self.write_down({})
        after = None
        while True:
            where = "" if after is None else "WHERE key > ?"
            rows = self._database.execute(
                f"SELECT key, {_COLUMNS} FROM versions {where} ORDER BY key LIMIT {_PAGE}",
                () if after is None else (after,),
            ).fetchall()
            if not rows:
                return
            yield from ((row[0], _entry(row[1:])) for row in rows)
            after = rows[-1][0]

    def count(self) -> tuple[int, int]:
        """(keys with a value, keys whose highest version is a tombstone)."""
        columns = self._in_columns()
        if columns is not None:
            return columns.count()
        if self._database is None:
            live = sum(entry.best.value is not None for entry in self._rows.values())
            return live, len(self._rows) - live
        self.write_down({})
        live, every = self._database.execute("SELECT count(value), count(*) FROM versions").fetchone()
        return live, every - live

    def write_down(self, facts: Mapping[str, str]) -> None:
        """Move what is in memory to the database, together with `facts` in one transaction. Raises ConfigError."""
        database = self._database or self._open()
        try:
            with database:
                entries = chain(self._rows.items(), self._columns.entries() if self._columns is not None else ())
                while page := list(islice(entries, _PAGE)):
                    database.executemany(_UPSERT, (_row(key, entry) for key, entry in page))
                    database.executemany(_LAST, ((*entry.last, key, *entry.last[:2]) for key, entry in page))
                database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
        except sqlite3.Error as raised:
            raise self._unusable(raised) from raised
        self._forget_objects()
        self._columns = None

    def facts(self) -> dict[str, str]:
        """What `clear` was given last, and `write_down` since, by name."""
        return {} if self._database is None else dict(self._database.execute("SELECT name, text FROM facts"))

    def clear(self, facts: Mapping[str, str], keep_floors: bool = False) -> None:
        """Forget everything; with `keep_floors` all but the keys whose highest version is a tombstone. Raises ConfigError.

        facts: hold for what is put in from now on. A file has them in the same transaction: rows move there at any time,
        and whoever dies before it saves must not leave rows of which nobody knows whose they are.
        """
        floors: list[tuple[bytes, Entry]] = []
        columns = self._in_columns()
        if self._database is not None:
            if keep_floors:
                self.write_down({})
            try:
                with self._database:
                    self._database.execute("DELETE FROM versions" + (" WHERE value IS NOT NULL" if keep_floors else ""))
                    self._database.execute("DELETE FROM facts")
                    self._database.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            except sqlite3.Error as raised:
                raise self._unusable(raised) from raised
        elif keep_floors and columns is not None:
            floors = columns.tombstones()
        elif keep_floors:
            floors = [(key, entry) for key, entry in self._rows.items() if entry.best.value is None]
        self._forget_objects()
        self._columns = None
        self._rows = dict(floors)
        self._displaced = {key for key, entry in floors if entry.displaced}
        self._bytes = sum(_OVERHEAD + len(key) + entry.best.size() for key, entry in floors)

    def close(self) -> None:
        """Release the database; a temporary one is gone, and a file may be opened by another one."""
        try:
            if self._database is not None:
                self._database.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def _stay_within(self) -> None:
        """Move what is in memory to where it takes less."""
        if len(self._rows) > _MOST_OBJECTS:
            kind = _columns_type()
            if self._columns is None and kind is not None:
                self._columns = kind()
            self._pack()
        if self._bytes + (0 if self._columns is None else self._columns.size) > self._limit:
            self.write_down({})

    def _pack(self) -> None:
        if self._columns is not None and self._rows:
            self._columns.put(list(self._rows.items()))
            self._forget_objects()

    def _in_columns(self) -> VersionColumns | None:
        """The columns, with all there is in them; None where there are none, or a database too."""
        if self._columns is None or self._database is not None:
            return None
        self._pack()
        return self._columns

    def _forget_objects(self) -> None:
        self._rows.clear()
        self._displaced.clear()
        self._bytes = 0

    def _open(self) -> sqlite3.Connection:
        # An empty name is sqlite's own temporary database: in memory up to its cache, in an unnamed file beyond it.
        try:
            database = sqlite3.connect(self._path or "", check_same_thread=False)
            database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            if self._path is None:
                database.execute("PRAGMA journal_mode = OFF")
                database.execute("PRAGMA synchronous = OFF")
            else:
                database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_SCHEMA)
        except sqlite3.DatabaseError as raised:
            raise self._unusable(raised) from raised
        self._database = database
        return database

    def _unusable(self, raised: sqlite3.Error) -> ConfigError:
        if self._path is None:
            why = f"the temporary database for what memory does not hold cannot be used ({raised})"
            return ConfigError("state", why, "set SQLITE_TMPDIR to a folder with room, or allow more memory")
        return ConfigError("state", f"{self._path} cannot be used ({raised})", "name another file")


@cache
def _columns_type() -> type[VersionColumns] | None:
    try:
        from .columns import VersionColumns
    except ImportError:
        return None
    return VersionColumns


def _row(key: bytes, entry: Entry) -> tuple[object, ...]:
    best = entry.best
    known = best.version != ABSENT  # ABSENT is below every 64-bit integer, so it does not fit into the column
    headers = (
        None if best.headers is None else json.dumps([[n, None if d is None else d.hex()] for n, d in best.headers])
    )
    return (
        key, known, best.version if known else 0, best.epoch, best.offset, best.partition, best.timestamp, headers,
        best.value, *entry.last,
    )  # fmt: skip


def _entry(row: tuple[object, ...]) -> Entry:
    known, version, epoch, offset, partition, timestamp, headers, value, *last = row
    decoded = (
        None if headers is None else [(n, None if d is None else bytes.fromhex(d)) for n, d in json.loads(str(headers))]
    )
    best = Version(version if known else ABSENT, epoch, offset, partition, timestamp, decoded, value)  # type: ignore[arg-type]
    return Entry(best, Last(*last))  # type: ignore[arg-type]
