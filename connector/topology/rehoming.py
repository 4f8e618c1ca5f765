"""Re-homing: the surviving values of a compacted topic's retired partition go to their keys' present homes.

Which survive is for the newest record to say, or, where the topic has a version strategy, for the highest version.

The log is scanned without anybody waiting; what then happens to each slice of keys is done while all writers hold them:
the later homes are read on to their ends, and one transaction writes the copies, the tombstones in the retired partition,
and the release. So no writer's record comes in between, and a controller that has been taken over writes nothing more.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from ...partitioner.changes.rehoming import REHOMED_HEADER, Fate, Survivors
from ...partitioner.changes.rehoming_by_version import RankedSurvivors
from ...partitioner.changes.terms import ChangeTerms
from ...partitioner.epochs import Drain, Slice
from ...partitioner.hashing import key_bytes
from ...partitioner.routing import HINT_HEADER, parse_hint
from ...partitioner.timeline import Timeline
from ...partitioner.version_order import StrategyKind, VersionOrder, copied_place
from ..compaction_settings import chosen_strategy
from ..control.timeline_writer import DataRecord
from ..crash import crash_point
from ..log_offsets import LogOffsets
from .controller import TopologyController
from .log_scan import LogScan

_OURS = (HINT_HEADER, REHOMED_HEADER)


@dataclass(frozen=True, slots=True)
class RehomingTerms:
    """How re-homing is to go.

    allow_delete_policy: consent to re-home on a topic whose cleanup.policy has `delete` in it too.
    slice_keys, slice_bytes: how much is held, and copied, at a time. timeout: seconds for each slice.
    progress: called with (keys done, keys in all).
    """

    allow_delete_policy: bool = False
    slice_keys: int = 2_000
    slice_bytes: int = 4_000_000
    timeout: float = 120.0
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class RehomingPlan:
    """What a retired partition still holds. keys, size: its values; superseded: those that are only to be tombstoned.

    foreign: records of keys that never lived there; they stay.
    """

    partition: int
    keys: int
    size: int
    superseded: int
    foreign: int


@dataclass(frozen=True, slots=True)
class Rehomed:
    """What was done. left: keys that wait for an open transaction; called_off: the partition is in use again."""

    copied: int
    cleared: int
    left: int
    foreign: int
    called_off: bool = False


class Rehomer:
    """Re-homes the values of one generation of one retired partition. `close` it.

    timeline: as it is now; a change of the layout in between ends the work with ScanOutdatedError.
    """

    def __init__(self, config: Mapping[str, Any], timeline: Timeline, drain: Drain) -> None:
        self.timeline, self._drain = timeline, drain
        self._config, self._topic = config, timeline.topic
        kind, header = chosen_strategy(timeline.settings)
        self._order = VersionOrder(StrategyKind(kind), header)
        by_version = self._order.kind is not StrategyKind.OFFSET
        self._survivors = (RankedSurvivors if by_version else Survivors)(timeline, drain.partition)
        self._later = self._survivors.later()
        self._places = [(self._topic, p) for p in {drain.partition, *self._later}]
        self._offsets = LogOffsets(config)
        self._scan = LogScan(config, self._topic)
        # Values wait on disk: a partition may hold more than memory. The file has no name, and ends with the process.
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._spooled: dict[bytes, int] = {}
        self._keys: tuple[bytes, ...] = ()
        self._written: tuple[int, tuple[bytes, ...]] = 0, ()

    def close(self) -> None:
        """Release the clients and the file."""
        self._scan.close()
        self._offsets.close()
        self._spool.close()

    def plan(self) -> RehomingPlan:
        """Read all that has to be read; changes nothing. Raises Kafka's errors."""
        ends = self._ends()
        retired = self._drain.partition
        # The partition first: what its keys have become later is only noted for keys that are known.
        self._scan.start({retired: 0})
        self._scan.read({retired: ends[retired]}, self._note)
        self._scan.start({**self._later, retired: ends[retired]})
        self._scan.read(ends, self._note)
        survivors = self._survivors
        return RehomingPlan(retired, len(survivors), survivors.size, survivors.superseded(), survivors.foreign)

    def run(self, terms: RehomingTerms) -> Rehomed:
        """Everything that may be re-homed now. Killed in between, the next run goes on: what was done is seen in the logs.

        Raises ScanOutdatedError, ControllerFencedError (a growth took over), WriterLateError and Kafka's errors.
        """
        self.plan()
        crash_point("rehome-scanned")
        total, done = len(self._survivors), 0
        copied = cleared = 0
        slices = list(self._survivors.slices(terms.slice_keys, terms.slice_bytes))
        controller = TopologyController(self._config, self._topic)
        with closing(controller.rehome(self._pieces(slices), self, ChangeTerms(timeout=terms.timeout))) as looks:
            for looked_at, (_, keys) in zip(looks, slices, strict=False):
                if not looked_at:
                    return Rehomed(copied, cleared, 0, self._survivors.foreign, called_off=True)
                copied, cleared = copied + self._written[0], cleared + len(self._written[1])
                self._survivors.forget(self._written[1])
                done += len(keys)
                if terms.progress is not None:
                    terms.progress(done, total)
        ends = self._ends()
        self._scan.read(ends, self._note)
        crash_point("rehome-done")
        undecided = ends[self._drain.partition] < self._drain.upto
        return Rehomed(copied, cleared, len(self._survivors) + undecided, self._survivors.foreign)

    def _pieces(self, slices: Iterable[tuple[Slice, tuple[bytes, ...]]]) -> Iterator[Slice]:
        """The slices, each noted as the one at hand."""
        for piece, self._keys in slices:
            yield piece

    def records(self, deadline: float) -> list[DataRecord] | None:
        """For the controller, while all writers hold the slice's keys: see `controller.Copier`."""
        marks = self._offsets.high_watermarks(self._places, 3.0)
        ends = self._ends(3.0)
        if not self._scan.read(ends, self._note, deadline):
            return None
        undecided = self._undecided({p: (ends[p], marks[self._topic, p]) for p in ends}, deadline)
        if undecided is None:
            return None
        found: list[DataRecord] = []
        copied, cleared = 0, []
        for key, (fate, offset) in self._survivors.fates(self._keys, undecided).items():
            if fate is Fate.LEAVE:
                continue
            home, hint = self._survivors.home(key)
            if fate is Fate.COPY:
                found.append(self._copy(key, home, hint, offset))
                copied += 1
            found.append(DataRecord(self._topic, self._drain.partition, key, None, [(HINT_HEADER, hint)]))
            cleared.append(key)
        self._written = copied, tuple(cleared)
        return found

    def _copy(self, key: bytes, home: int, hint: bytes, offset: int) -> DataRecord:
        self._spool.seek(self._spooled[key])
        value, headers, timestamp = pickle.load(self._spool)
        origin = f"{self._drain.partition}:{offset}".encode()
        headers = [*headers, (HINT_HEADER, hint), (REHOMED_HEADER, origin)]
        return DataRecord(self._topic, home, key, value, headers, timestamp)

    def _ends(self, timeout: float = 10.0) -> dict[int, int]:
        """How far everything is decided."""
        return {p: end for (_, p), end in self._offsets.stable_ends(self._places, timeout).items()}

    def _undecided(self, ranges: Mapping[int, tuple[int, int]], deadline: float) -> set[bytes] | None:
        """The keys with records behind the start of an open transaction; None when reading lasts too long."""
        ranges = {p: (begin, end) for p, (begin, end) in ranges.items() if begin < end}
        found: set[bytes] = set()
        if not ranges:
            return found
        scan = LogScan(self._config, self._topic, "read_uncommitted")
        try:
            scan.start({p: begin for p, (begin, _) in ranges.items()})
            ends = {p: end for p, (_, end) in ranges.items()}
            return found if scan.read(ends, lambda message: found.add(_key(message) or b""), deadline) else None
        finally:
            scan.close()

    def _note(self, message: Message) -> None:
        key = _key(message)
        if key is None:
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        headers: Any = message.headers() or []
        hint = next((parse_hint(header[1]) for header in headers if header[0] == HINT_HEADER), None)
        size = None if value is None else len(key) + len(value)
        kind, at_ms = message.timestamp()
        version, original = 0, None
        if self._order.kind is not StrategyKind.OFFSET:
            version = self._order.version(offset, at_ms, headers)
            original = copied_place(headers, self.timeline.topic_id, value)
        if self._survivors.note(partition, offset, key, size, hint, version, original):
            others = [header for header in headers if header[0] not in _OURS]
            self._spool.seek(0, 2)
            self._spooled[key] = self._spool.tell()
            pickle.dump((value, others, 0 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms), self._spool)


def _key(message: Message) -> bytes | None:
    key = message.key()
    return None if key is None else key_bytes(key)
