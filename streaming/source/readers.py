"""The readers that Spark's Python Data Source API asks for, batch and streaming. They travel to the executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ..process import answer_at_once, spare_loaded_objects
from .offsets import GATES_KEY, Place, Range, from_dict, start_of, to_dict, with_start
from .options import SourceOptions
from .starts import first_start, known_start

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from .batch import Portion
    from .compacting import Share
    from .driver import QueryDriver


@dataclass
class RangesTask(InputPartition):
    """What one task reads, and the ids of its topics: a topic that was made again is not the one fetched before."""

    ranges: tuple[Range, ...]
    topic_ids: Mapping[str, str]

    def __init__(self, ranges: tuple[Range, ...], topic_ids: Mapping[str, str]) -> None:
        self.ranges = ranges
        self.topic_ids = {r.topic: topic_ids.get(r.topic, "") for r in ranges}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source. One copy plans, in a process beside the driver; others read, in executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._driver: QueryDriver | None = None
        self._initial: dict[Place, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Clients do not travel.
        return {**self.__dict__, "_driver": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        answer_at_once()

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks twice: "latest" must not mean two places."""
        if self._initial is None:
            self._initial = self._planning().initial()
        return to_dict(self._initial)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. Raises OrderError types rather than plan on what it cannot know."""
        begins = from_dict(start)
        first = begins == self._initial and not start_of(start)
        found = self._planning().latest(begins, not isinstance(limit, ReadAllAvailable), first)
        if begins != self._initial:
            # Spark asks for an end when all batches before it are done. It says so itself only when it has planned the next one.
            self._planning().commit(begins)
        if not found and begins:
            # All topics are gone: an empty end would make the query forget where it was.
            return start
        if first:
            return with_start(to_dict(found), first_start(self._options.start, begins))
        # The same text for the same place, or Spark would run a batch for nothing.
        return start if found == begins else to_dict(found)

    def getDefaultReadLimit(self) -> ReadLimit:
        """By maxOffsetsPerTrigger and minOffsetsPerTrigger; where both are given, latestOffset obeys the second one too."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there when the first end is asked for is what is read."""
        self._planning().target()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the progress: where the logs end, and which gates keep records back."""
        driver = self._planning()
        found: dict[str, Any] = to_dict(driver.ends)
        if driver.closed:
            gates: dict[str, dict[str, str]] = {}
            for gate in driver.closed:
                gates.setdefault(gate.topic, {})[str(gate.partition)] = str(gate)
            found[GATES_KEY] = gates
        return found or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch: the same for the same offsets, after a restart too."""
        begins = from_dict(start)
        if begins == self._initial and not start_of(start):
            begins = known_start(self._options.start, begins, start_of(end))
        tasks, topic_ids = self._planning().tasks(begins, from_dict(end))
        return [RangesTask(ranges, topic_ids) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Runs in an executor."""
        from .reading import read_ranges

        assert isinstance(partition, RangesTask)
        return read_ranges(self._options, partition.ranges, partition.topic_ids)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished all batches up to `end`."""
        self._planning().commit(from_dict(end))

    def stop(self) -> None:
        """The query ends."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _planning(self) -> QueryDriver:
        if self._driver is None:
            spare_loaded_objects()  # half of the time that the next line takes went into looking at them
            from .driver import QueryDriver

            self._driver = QueryDriver(self._options)
        return self._driver


@dataclass
class PortionTask(InputPartition):
    """What one task of a batch query reads."""

    portion: Portion

    def __init__(self, portion: Portion) -> None:
        self.portion = portion


@dataclass
class ShareTask(InputPartition):
    """The keys of one task of a compacted batch."""

    share: Share

    def __init__(self, share: Share) -> None:
        self.share = share


class BatchReader(DataSourceReader):
    """A batch query's source: everything between two sets of offsets, as they are at each action. Gates play no part."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        answer_at_once()

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks. Raises as `batch.plan_batch`."""
        if self._options.compaction is not None:
            from .reducing import plan_reduction

            return [ShareTask(share) for share in plan_reduction(self._options)]
        from .batch import plan_batch

        return [PortionTask(portion) for portion in plan_batch(self._options)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Runs in an executor."""
        if isinstance(partition, ShareTask):
            from .reducing import reduced

            return reduced(self._options, partition.share)
        from .batch import bind
        from .reading import read_ranges

        assert isinstance(partition, PortionTask)
        ranges, topic_ids = bind(self._options, partition.portion)
        ranges = tuple(r for r in ranges if r.size)
        return read_ranges(self._options, ranges, topic_ids) if ranges else iter(())
