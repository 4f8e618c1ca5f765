"""Records folded into a store of versions: one by one, or by columns. The timeline is known, or asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from ..connector.consuming.view import View
from ..connector.messages import Headers, offset_of
from ..partitioner.routing import HINT_HEADER, parse_hint
from .store import VersionStore
from .strategy import ABSENT, Strategy, StrategyKind, malformed
from .versions import Version, copied_place, place_epoch


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


class Folder:
    """Folds one topic's records into `store` by one strategy.

    topic_id: tells the topic from others of its name. look: gives a view of the timeline that is as new as what was
    fetched last; may raise StaleViewError.
    """

    def __init__(self, store: VersionStore, topic_id: str, strategy: Strategy, look: Callable[[], View]) -> None:
        self._store, self._topic_id, self.strategy, self._look = store, topic_id, strategy, look
        self._placer: Any = None
        self.counts = Counts()

    def fold(self, messages: list[Message], view: View) -> None:
        """Fold records in, one by one. view: any that is known; a newer one is asked for where a record shows that there is."""
        for message in messages:
            partition = message.partition()
            assert partition is not None
            key, value = _bytes(message.key()), _bytes(message.value())
            self._count(partition, 1, len(key or b"") + len(value or b""))
            headers: Headers | None = message.headers()  # type: ignore[assignment]  # values come as bytes
            view = self._take(view, key, value, partition, offset_of(message), message.timestamp()[1], headers)

    def fold_columns(self, batch: Any, view: View) -> None:
        """Fold a batch of `connector.arrow.schema.SCHEMA` in. Needs numba."""
        import numpy as np
        import pyarrow.compute as pc

        from .placing import Placer

        if self._placer is None:
            self._placer = Placer(self._topic_id, self.strategy)
        places = self._placer.place(batch, view, self._look)
        partitions = batch.column("partition").to_numpy(zero_copy_only=False)
        lengths = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value")]
        sizes = lengths[0].to_numpy(zero_copy_only=False) + lengths[1].to_numpy(zero_copy_only=False)
        records, summed = np.bincount(partitions), np.bincount(partitions, sizes)  # sums are exact below 2**53
        for partition in np.flatnonzero(records).tolist():
            self._count(partition, int(records[partition]), int(summed[partition]))
        counts, keep = self.counts, places.keep
        null = batch.column("value").is_null().to_numpy(zero_copy_only=False)
        counts.unkeyed += int((places.hashes < 0).sum())
        counts.move_tombstones += int(places.moved.sum())
        counts.strays += int((keep & (places.at_epoch < 0)).sum())
        counts.tombstones += int((keep & null).sum())
        counts.malformed += int((keep & places.malformed).sum())
        counts.unversioned += int((keep & ~places.known).sum())
        counts.copies += places.copies
        self._store.fold(batch, places)

    def _take(
        self,
        view: View,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        offset: int,
        timestamp: int,
        headers: Headers | None,
    ) -> View:
        """Fold one record in. Returns the view it was judged by."""
        counts, strategy = self.counts, self.strategy
        if key is None:
            counts.unkeyed += 1
            return view
        hint = _hint(headers) if headers else None
        route = view.routing.of(key)
        epoch = view.timeline.epochs[0].number
        if hint is not None or route.moves or route.home != partition:
            if _must_look(view, key, partition, offset, hint):
                view = self._look()
            if value is None and view.routing.is_move_tombstone(key, partition, hint):
                counts.move_tombstones += 1
                return view
            epoch = place_epoch(view.routing, key, partition, offset)
            counts.strays += epoch < 0
        counts.tombstones += value is None
        if strategy.kind is StrategyKind.HEADER:
            counts.malformed += malformed(headers, strategy.header)
        number = strategy.version(offset, timestamp, headers)
        counts.unversioned += number == ABSENT
        # By offset the last record wins whatever it is, as it does for the broker.
        by_place = strategy.kind is StrategyKind.OFFSET or not headers
        original = None if by_place or headers is None else copied_place(headers, self._topic_id, value)
        if original is None:
            self._store.put(key, Version(number, epoch, offset, partition, timestamp, headers, value))
        else:
            counts.copies += 1
            self._store.put(key, Version(number, *original, partition, timestamp, headers, value), (epoch, offset))
        return view

    def _count(self, partition: int, records: int, size: int) -> None:
        self.counts.records += records
        self.counts.bytes += size
        self.counts.per_partition[partition] = self.counts.per_partition.get(partition, 0) + records


def _must_look(view: View, key: bytes, partition: int, offset: int, hint: int | None) -> bool:
    if hint is not None and (hint > view.timeline.newest.number or not view.managed):
        return True
    return view.managed and view.routing.is_stray(key, partition, offset)


def _hint(headers: Headers) -> int | None:
    found = None
    for name, value in headers:
        if name == HINT_HEADER:
            found = parse_hint(value)
    return found


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
