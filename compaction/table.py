"""A topic's records folded into the highest version of each key: what the view and the compactor share.

No gate is needed. Gates keep the order in which records are *delivered*; here each record carries its place in a total
order, (version, epoch, offset), and the fold takes the highest, so the order of arrival does not matter. It only has to
know the epoch of each place: the timeline is read to its end after the ends of the data were taken, and again before a
record that says, or shows, that it is of a newer layout is judged.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message

from ..connector import clock
from ..connector.compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG
from ..connector.config import split
from ..connector.consuming.view import View, ViewKeeper
from ..connector.log_offsets import LogOffsets
from ..connector.messages import Headers, offset_of
from ..partitioner.errors import ConfigError, StaleViewError
from ..partitioner.routing import HINT_HEADER, parse_hint
from .store import VersionStore
from .strategy import ABSENT, Strategy, StrategyKind, malformed
from .topic_log import TopicLog
from .versions import Version, copied_place, place_epoch, positions_text

if TYPE_CHECKING:
    from .reduction import Reduced

_OPTIONS = {STRATEGY_CONFIG: "the topic's own by default", HEADER_CONFIG: "the header of the header strategy"}
_LOOK_S = 30.0
_BULK_RECORDS = 20_000  # from here on reading by columns is worth its start
_BULK_ROWS = 400_000  # the more rows are reduced at once, the fewer are left for Python

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Counts:
    """What was read. malformed: version headers of another length than 8, which count as none.

    unversioned: records without a version under the header strategy. strays: records that lie where their key had no home.
    move_tombstones: null values that clear a moved key's earlier home; they are no versions. copies: a compactor's.
    """

    records: int = 0
    bytes: int = 0
    tombstones: int = 0
    malformed: int = 0
    unversioned: int = 0
    unkeyed: int = 0
    strays: int = 0
    move_tombstones: int = 0
    copies: int = 0
    per_partition: dict[int, int] = field(default_factory=dict)


class VersionTable:
    """Reads a topic, managed or not, and keeps the highest version of each key.

    One thread calls `turn`; others may look into the store while they hold `lock`.

    config: as for confluent_kafka.Consumer; `compaction.strategy` and `compaction.strategy.header` overrule the topic's.
    store: where versions are kept; one with a file goes on where it was left, if it fits.

    Raises ConfigError, TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, store: VersionStore, strategy: Strategy | None = None
    ) -> None:
        ours, theirs = split(config, _OPTIONS, "a compacted view")
        if strategy is None and STRATEGY_CONFIG in ours:
            strategy = Strategy.of({name: str(value) for name, value in ours.items()})
        self.topic, self.store, self.counts = topic, store, Counts()
        self._explicit = strategy
        self._log = TopicLog(theirs, topic)
        self._starts = LogOffsets(theirs)
        self._keeper = ViewKeeper(theirs, "", lambda _: None)
        self._keeper.start()
        self._keeper.follow(topic)
        self._view: View | None = None
        self.strategy = strategy or Strategy()
        self.rebuilds = 0
        self.lock = threading.RLock()

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset to read of each partition."""
        return self._log.positions

    @property
    def topic_id(self) -> str:
        """The topic's id, which tells it from others of its name."""
        return self._log.identity.topic_id

    @property
    def view(self) -> View:
        """The timeline that records are judged by."""
        assert self._view is not None
        return self._view

    def start(self) -> None:
        """Find the strategy and the positions. Raises ConfigError for a store that belongs to another topic."""
        self._refresh(clock.now())
        self.strategy = self._chosen()
        self._log.assign(self._resumed())

    def turn(self, timeout: float) -> int:
        """Fold in what has arrived, waiting up to `timeout` seconds for the first record. Returns how many records."""
        managed = self.view.timeline.newest.count if self.view.managed else 0
        grown = self._log.discover(managed)
        if self._keeper.failure is not None:
            raise self._keeper.failure
        self._take_view()
        if self._chosen() != self.strategy or (grown and not self.view.managed):
            # Losers by the old strategy may win by the new one; without a timeline a growth re-ranks every place.
            self._rebuild()
        batch = self._log.poll(timeout)
        with self.lock:
            self._fold(batch)
        return len(batch)

    def ends(self) -> dict[int, int]:
        """Where the topic ends now, with the timeline read to its own end afterwards."""
        ends = self._log.ends()
        self._refresh(clock.now())
        return ends

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether everything below `ends` is folded in."""
        return self._log.reached(ends)

    def read_to(self, ends: Mapping[int, int], progress: Progress | None = None) -> None:
        """Fold everything below `ends`. progress: called with (offsets passed, offsets in all)."""
        begun = dict(self._log.positions)
        total = sum(max(0, end - begun.get(p, 0)) for p, end in ends.items())

        def passed() -> None:
            if progress is not None:
                left = sum(max(0, end - self._log.positions.get(p, 0)) for p, end in ends.items())
                progress(total - min(left, total), total)

        if total >= _BULK_RECORDS:
            for batch in self._log.columns(ends, _BULK_ROWS):
                with self.lock, _no_garbage_collection():
                    self._fold_columns(batch)
                passed()
        while not self.reached(ends):
            self.turn(0.2)
            passed()

    def save(self) -> None:
        """Write everything down, so that the next start goes on from here."""
        with self.lock:
            positions = json.dumps(positions_text(self._log.positions))
            self.store.write_down({**self._identity(), "positions": positions, "saved_at_ms": str(clock.wall_ms())})

    def close(self) -> None:
        """Release everything but the store."""
        self._keeper.stop()
        self._log.close()
        self._starts.close()

    def _fold(self, batch: list[Message]) -> None:
        fetched = clock.now()
        for message in batch:
            partition = message.partition()
            assert partition is not None
            key, value = _bytes(message.key()), _bytes(message.value())
            self._count(partition, 1, len(key or b"") + len(value or b""))
            headers: Headers | None = message.headers()  # type: ignore[assignment]  # values come as bytes
            self._take(fetched, key, value, partition, offset_of(message), message.timestamp()[1], headers)

    def _take(
        self,
        fetched: float,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        offset: int,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        """Fold one record in."""
        counts, strategy, view = self.counts, self.strategy, self.view
        if key is None:
            counts.unkeyed += 1
            return
        hint = _hint(headers) if headers else None
        route = view.routing.of(key)
        epoch = view.timeline.epochs[0].number
        if hint is not None or route.moves or route.home != partition:
            if self._must_look(key, partition, offset, hint, view.timeline.newest.number):
                self._refresh(fetched)
            routing = self.view.routing
            if value is None and routing.is_move_tombstone(key, partition, hint):
                counts.move_tombstones += 1
                return
            epoch = place_epoch(routing, key, partition, offset)
            counts.strays += epoch < 0
        counts.tombstones += value is None
        if strategy.kind is StrategyKind.HEADER:
            counts.malformed += malformed(headers, strategy.header)
        number = strategy.version(offset, timestamp, headers)
        counts.unversioned += number == ABSENT
        # By offset the last record wins whatever it is, as it does for the broker.
        by_place = strategy.kind is StrategyKind.OFFSET or not headers
        original = None if by_place or headers is None else copied_place(headers, self.topic_id, value)
        if original is None:
            self.store.put(key, Version(number, epoch, offset, partition, timestamp, headers, value))
        else:
            counts.copies += 1
            self.store.put(key, Version(number, *original, partition, timestamp, headers, value), (epoch, offset))

    def _count(self, partition: int, records: int, size: int) -> None:
        self.counts.records += records
        self.counts.bytes += size
        self.counts.per_partition[partition] = self.counts.per_partition.get(partition, 0) + records

    def _fold_columns(self, batch: Any) -> None:
        """Fold a batch of Arrow columns in: by columns where keys are at home and never moved, row by row elsewhere."""
        from .reduction import python_bytes, python_headers, reduce_batch

        fetched = clock.now()
        reduced = reduce_batch(batch, self.strategy)
        routing, first = self.view.routing, self.view.timeline.epochs[0].number
        plain = []
        for key, partition in zip(reduced.keys, reduced.partitions, strict=True):
            route = routing.of(key)
            plain.append(route.home == partition and not route.moves)
        alone = self._count_columns(batch, reduced, plain)
        times = batch.column("timestamp").cast("int64").to_numpy() // 1000
        offsets = batch.column("offset").to_numpy()
        best, last = reduced.best, reduced.last
        values = python_bytes(batch.column("value").take(best))
        headers = python_headers(batch.column("headers").take(best))
        rows = zip(
            reduced.keys, plain, reduced.partitions, best.tolist(), offsets[best].tolist(), times[best].tolist(),
            reduced.known[best].tolist(), reduced.version[best].tolist(), values, headers, last.tolist(), strict=True,
        )  # fmt: skip
        put = self.store.put
        for key, fits, partition, row, offset, time, known, number, value, own, newest in rows:
            if not fits:
                continue
            put(key, Version(number if known else ABSENT, first, offset, partition, time, own, value))
            if newest != row:
                # It lost to the best one of its group: all that counts is that it is the newest.
                lost = int(reduced.version[newest]) if reduced.known[newest] else ABSENT
                put(key, Version(lost, first, int(offsets[newest]), partition, 0, None, None))
        if len(alone):
            taken = batch.take(alone)
            columns = (python_bytes(taken.column("key")), python_bytes(taken.column("value")))
            partitions = taken.column("partition").to_numpy().tolist()
            places = (
                partitions,
                offsets[alone].tolist(),
                times[alone].tolist(),
                python_headers(taken.column("headers")),
            )
            for key, value, partition, offset, time, own in zip(*columns, *places, strict=True):
                self._take(fetched, key, value, partition, offset, time, own)

    def _count_columns(self, batch: Any, reduced: Reduced, plain: list[bool]) -> Any:
        """Count a batch; returns its rows that have to be taken one by one."""
        import numpy as np
        import pyarrow.compute as pc

        sizes = sum(
            pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy(zero_copy_only=False)
            for name in ("key", "value")
        )
        partitions = batch.column("partition").to_numpy(zero_copy_only=False)
        for partition in np.unique(partitions).tolist():
            here = partitions == partition
            self._count(partition, int(here.sum()), int(sizes[here].sum()))
        by_columns = (np.array([*plain, False])[reduced.group]) & ~reduced.special
        null = batch.column("value").is_null().to_numpy(zero_copy_only=False)
        self.counts.tombstones += int((null & by_columns).sum())
        self.counts.unversioned += int((~reduced.known & by_columns).sum())
        self.counts.malformed += int((reduced.malformed & by_columns).sum())
        return np.flatnonzero(~by_columns)

    def _must_look(self, key: bytes, partition: int, offset: int, hint: int | None, newest: int) -> bool:
        if hint is not None and (hint > newest or not self.view.managed):
            return True
        return self.view.managed and self.view.routing.is_stray(key, partition, offset)

    def _refresh(self, since: float) -> None:
        """See that the timeline is as new as `since`. Raises StaleViewError."""
        if self._keeper.as_of(self.topic) < since and not self._keeper.await_look(self.topic, since, _LOOK_S):
            raise StaleViewError(self.topic, _LOOK_S)
        self._take_view()

    def _take_view(self) -> None:
        partitions = self._log.partitions or self._log.identity.partitions
        view = self._keeper.view(self.topic, partitions)
        if view is not self._view and view.managed:
            view.timeline.check_identity(self._log.identity.topic_id, self._log.identity.cluster_id)
        self._view = view

    def _chosen(self) -> Strategy:
        if self._explicit is not None:
            return self._explicit
        settings = self.view.timeline.settings
        key = (settings.get(STRATEGY_CONFIG, ""), settings.get(HEADER_CONFIG, ""))
        if key != getattr(self, "_chosen_key", None):
            self._chosen_key, self._chosen_strategy = key, Strategy.of(settings)
        return self._chosen_strategy

    def _identity(self) -> dict[str, str]:
        identity, timeline = self._log.identity, self.view.timeline
        strategy = f"{self.strategy.kind.value}:{self.strategy.header}:{self.strategy.positive_only}"
        base = f"{timeline.initial}:{timeline.epochs[0].count}"
        return {"topic": f"{identity.cluster_id}/{identity.topic_id}", "strategy": strategy, "base": base}

    def _resumed(self) -> dict[int, int]:
        """The store's positions if what it holds was made under the same rules, else none, and an empty store."""
        facts, wanted = self.store.facts(), self._identity()
        if not facts:
            return {}
        if facts.get("topic") != wanted["topic"]:
            raise ConfigError(
                "state", f"it was made for another topic than {self.topic!r} as it is now", "name another file"
            )
        positions = {int(p): int(offset) for p, offset in json.loads(facts.get("positions", "{}")).items()}
        if any(facts.get(name) != wanted[name] for name in wanted):
            self.store.clear()
            return {}
        # A log that ends below what was read has lost records: what they said must not outlive them.
        places = [(self.topic, p) for p in positions]
        ends = self._starts.high_watermarks(places)
        if any(ends[place] < positions[place[1]] for place in places):
            self.store.clear()
            return {}
        # A tombstone that came and was purged meanwhile would be missed, and its key live on: read all again. What was
        # a tombstone already stays known, so that an older version does not revive its key.
        away = clock.wall_ms() - int(facts.get("saved_at_ms", 0))
        if not 0 <= away < self._log.tombstones_last_ms() / 2:
            self.store.clear(keep_floors=True)
            return {}
        return positions

    def _rebuild(self) -> None:
        with self.lock:
            self.strategy = self._chosen()
            self.rebuilds += 1
            self.counts = Counts()
            self.store.clear()
            self._log.assign(dict.fromkeys(self._log.positions, 0))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The collector would walk all versions again for every few thousand new ones, which are no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _hint(headers: Headers) -> int | None:
    found = None
    for name, value in headers:
        if name == HINT_HEADER:
            found = parse_hint(value)
    return found


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
