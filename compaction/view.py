"""CompactedView: a topic as a table, with the latest version of each key by the topic's compaction strategy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException

from ..connector import clock
from ..connector.kafka_errors import translate
from ..partitioner.errors import BrokerUnreachableError, KeyorderError
from ..partitioner.hashing import key_bytes
from .folding import Counts
from .store import DEFAULT_MEMORY, VersionStore
from .strategy import Strategy
from .table import Progress, VersionTable
from .versions import Version

_SAVE_S = 10.0


class CompactedView:
    """A topic as a table: `load()` reads it once, `follow()` keeps it current, `get(key)` looks a value up.

    It chooses by the same comparator as the compactor, over any history of growth and shrink, on topics with and without
    a timeline. Keys are bytes or str. A key whose latest version is a tombstone is not in the table; its version stays
    known, so that an older one that comes late does not revive it.

    config: as for confluent_kafka.Consumer. `compaction.strategy` and `compaction.strategy.header` in it, or `strategy`,
    overrule those of the topic.
    path: a file in which the table survives restarts: it goes on where it was left. No other view or compactor may have
    it open.
    memory_limit: bytes of versions held before they go to an embedded database on disk.

    Raises ConfigError, StateInUseError, TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
    Source: KIP-280, "Recommendations": readers choose by the strategy of the compaction.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        strategy: Strategy | None = None,
        path: str | Path | None = None,
        memory_limit: int = DEFAULT_MEMORY,
    ) -> None:
        self.topic = topic
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._store = VersionStore(Path(path) if path is not None else None, memory_limit)
        self._persistent = path is not None
        try:
            self._table = VersionTable(config, topic, self._store, strategy)
        except BaseException:
            self._store.close()
            raise
        self._started = False
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._failure: KeyorderError | None = None
        self._advanced = threading.Condition()

    @property
    def strategy(self) -> Strategy:
        """How versions compete; known after the first `load` or `follow`."""
        return self._table.strategy

    @property
    def counts(self) -> Counts:
        """What was read so far."""
        return self._table.counts

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to read of each partition."""
        return dict(self._table.positions)

    def load(self, progress: Progress | None = None, timeout: float = 3600.0) -> CompactedView:
        """Read up to where the topic ends now; called again it reads what is new since.

        progress: called with (offsets passed, offsets in all). Raises BrokerUnreachableError after `timeout` seconds,
        TopicReplacedError, and what a running `follow` has failed with.
        """
        self._start()
        asked_ms = clock.wall_ms()
        ends = self._table.ends()
        if self._thread is None:
            self._table.read_to(ends, asked_ms, progress)
            if self._persistent:
                self._table.save()
            return self
        deadline = clock.now() + timeout
        with self._advanced:
            while not self._table.reached(ends):
                self._raise_failure()
                left = deadline - clock.now()
                if left <= 0:
                    raise BrokerUnreachableError(
                        self._bootstrap, f"{self.topic} was not read to its end in {timeout:.0f} s"
                    )
                self._advanced.wait(min(left, 1.0))
        self._table.note_read(asked_ms)
        return self

    def follow(self) -> CompactedView:
        """Keep the table current from now on, on a thread of its own. `load` then waits until it has caught up."""
        self._start()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="keyorder-compacted-view", daemon=True)
            self._thread.start()
        return self

    def version(self, key: bytes | str) -> Version | None:
        """The latest version of a key with all there is to know of it, tombstones included; None for an unknown key."""
        self._raise_failure()
        with self._table.lock:
            entry = self._store.get(key_bytes(key))
        return None if entry is None else entry.best

    def get(self, key: bytes | str, default: bytes | None = None) -> bytes | None:
        """The latest value of a key, or `default`."""
        found = self.version(key)
        return default if found is None or found.value is None else found.value

    def versions(self) -> Iterator[tuple[bytes, Version]]:
        """Each key in the table with its latest version. While it is followed, later changes may or may not show."""
        self._raise_failure()
        pages = self._store.entries()
        while True:
            with self._table.lock:
                found = next(pages, None)
            if found is None:
                return
            if found[1].best.value is not None:
                yield found[0], found[1].best

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Each key with its latest value, as `versions`."""
        return ((key, version.value) for key, version in self.versions() if version.value is not None)

    def keys(self) -> Iterator[bytes]:
        """Each key, as `versions`."""
        return (key for key, _ in self.versions())

    def __getitem__(self, key: bytes | str) -> bytes:
        """The latest value of a key. Raises KeyError."""
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: bytes | str) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[bytes]:
        return self.keys()

    def __len__(self) -> int:
        """How many keys have a value."""
        with self._table.lock:
            return self._store.count()[0]

    def tombstones(self) -> int:
        """How many keys are known to be deleted."""
        with self._table.lock:
            return self._store.count()[1]

    def snapshot(self, path: str | Path) -> int:
        """Write the table to one Parquet file, replaced whole. Returns the rows.

        Columns: key, value, version (null without one), timestamp (ms), headers, partition, offset, epoch. Raises
        ConfigError without pyarrow (`pip install keyorder[compact]`) or for a path that cannot be written.
        """
        from .snapshot import write_snapshot

        facts = {"topic": self.topic, "strategy": self.strategy.kind.value, "header": self.strategy.header}
        return write_snapshot(Path(path), self.versions(), {**facts, "positions": self.positions})

    def close(self) -> None:
        """Stop following and release everything; a file keeps what was read, and is free for the next one."""
        closed = self._stopping.is_set()
        self._stopping.set()
        with ExitStack() as each:  # in the opposite order, and all of them: one that fails must not keep the file
            each.callback(self._store.close)
            each.callback(self._table.close)
            if self._thread is not None:
                self._thread.join(30)
            if self._started and self._persistent and self._failure is None and not closed:
                self._table.save()

    def __enter__(self) -> CompactedView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self._raise_failure()
        if not self._started:
            self._table.start()
            self._started = True

    def _run(self) -> None:
        saved = clock.now()
        try:
            while not self._stopping.is_set():
                self._table.turn(0.2)
                if self._persistent:
                    self._table.keep_note()
                    if clock.now() - saved > _SAVE_S:
                        self._table.save()
                        saved = clock.now()
                with self._advanced:
                    self._advanced.notify_all()
        except KeyorderError as error:
            self._fail(error)
        except KafkaException as raised:
            self._fail(translate(raised.args[0], "read", f"topic {self.topic}", self._bootstrap))
        except Exception as raised:
            # Unseen it would end the thread alone, and old versions be taken for the latest.
            failure = KeyorderError(f"the view of {self.topic!r} stopped: {type(raised).__name__}: {raised}")
            failure.__cause__ = raised
            self._fail(failure)

    def _fail(self, error: KeyorderError) -> None:
        with self._advanced:
            self._failure = error
            self._advanced.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
