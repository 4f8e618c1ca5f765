"""Where a consumer's records come out as columns: the C queue of its partitions, or consume() where that cannot be had.

The native source sends the partitions' records to a queue of its own (`rd_kafka_queue_forward`). What else a client hears
of (rebalances, errors, logs, statistics) stays on the consumer's queue and is served by poll(): a callback of the
binding must not run inside a bare C call, it would end the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Message

from .. import clock
from .columns import ColumnBuilder, Event, Run, Taken
from .library import ErrorSink, Library, say_once
from .schema import batch_of, empty_batch

Place = tuple[str, int]
_AT_ONCE = 50_000
_UNPROVEN_WAIT = 0.005


class FetchSource(Protocol):
    """A source of batches behind one raw consumer."""

    def route(self, places: Iterable[Place]) -> None:
        """Let the records of these partitions come here. To be called before they are assigned."""

    def take(self, most: int, wait: float) -> list[Taken]:
        """Up to `most` records that are there, or come within `wait` seconds; in the order in which they were fetched."""

    def close(self) -> None:
        """Release what was opened; the consumer is the caller's."""


def fetch_source(raw: Consumer, library: Library | None) -> FetchSource:
    """The best source for this consumer."""
    if library is not None:
        handle = library.handle(raw)
        sink = None if handle is None else ErrorSink(library, handle)
        if handle is not None and sink is not None and sink.usable:
            return NativeSource(raw, library, handle, sink)
        say_once("the C handle behind the Consumer object cannot be recognised")
    return MessageSource(raw)


class NativeSource:
    """C batches into Arrow buffers. Used by one thread."""

    def __init__(self, raw: Consumer, library: Library, handle: int, sink: ErrorSink) -> None:
        self._raw, self._library, self._handle, self._sink = raw, library, handle, sink
        self._process = os.getpid()
        self._queue: int | None = library.queue_new(handle)
        self._partitions: dict[Place, int] = {}
        self._unproven: set[Place] = set()
        # Not 0 is a message that has to be given back, or the client can never be closed.
        self._pointers = np.zeros(_AT_ONCE, np.int64)
        self._building = False
        self._at = self._pointers.ctypes.data
        self._builder = ColumnBuilder(library)

    def route(self, places: Iterable[Place]) -> None:
        """See FetchSource."""
        for topic, partition in places:
            if (topic, partition) not in self._partitions:
                queue = self._library.queue_get_partition(self._handle, topic.encode(), partition)
                self._partitions[topic, partition] = queue
            self._library.queue_forward(self._partitions[topic, partition], self._queue)
            self._unproven.add((topic, partition))

    @property
    def in_hand(self) -> bool:
        """Whether the last call of `take` has had records, be it that an exception has kept them from its caller.

        They are gone then, and the C library's own position says nothing of them.
        """
        return self._building or bool(self._pointers[0])

    def take(self, most: int, wait: float) -> list[Taken]:
        """See FetchSource."""
        self._give_back()
        found = []
        event = self._raw.poll(0)
        while event is not None:
            found.append(taken_of([event]))
            event = self._raw.poll(0)
        if self._queue is None:
            raise RuntimeError("the source is closed")
        most = min(most, _AT_ONCE)
        deadline = clock.now() + wait
        count = self._consume(0, 0, most)
        while not count and (left := deadline - clock.now()) > 0:
            self._forward_again()
            # The call waits until the array is full, so it is asked for one, and then for what is there.
            count = self._consume(min(left, _UNPROVEN_WAIT) if self._unproven else left, 0, 1)
            count += self._consume(0, count, most - count) if count else 0
        if self._unproven:
            self._forward_again()
        errors = [Event(0, code, text, None, -1, -1) for code, text in self._sink.taken()]
        if errors:
            found.append(Taken(empty_batch(), [], errors))
        if count:
            self._building = True
            taken = self._builder.build(self._pointers, count)
            for one in taken if self._unproven else []:
                self._unproven -= {(run.topic, run.partition) for run in one.runs}
                self._unproven -= {(event.topic, event.partition) for event in one.events if event.topic is not None}
            found += taken
        return found

    def _consume(self, wait: float, first: int, most: int) -> int:
        """Fill the array of pointers from index `first` on. Returns how many came."""
        milliseconds = max(1, round(wait * 1000)) if wait > 0 else 0
        with self._sink:
            count: int = self._library.consume_batch_queue(self._queue, milliseconds, self._at + 8 * first, most)
        return max(0, count)

    def _give_back(self) -> None:
        """What an exception has left in hand."""
        if self._pointers[0]:
            self._builder.give_back(self._pointers, int(np.count_nonzero(self._pointers)))
        self._building = False

    def _forward_again(self) -> None:
        """A partition that stops being fetched loses its forwarding, at a moment that nobody tells.

        So one that is assigned again is forwarded again and again until something of it has come out here. What came
        too early waits in the partition's own queue, and moves along in its order.
        """
        for place in self._unproven:
            self._library.queue_forward(self._partitions[place], self._queue)

    def __del__(self) -> None:
        # Dropped without close(): as long as anything of the client is held here, its own end, which comes next, would wait.
        # No weakref.finalize: those are not called any more when the interpreter ends. A child has none of the client.
        if getattr(self, "_queue", None) is not None and self._process == os.getpid():
            self.close()

    def close(self) -> None:
        """See FetchSource."""
        self._give_back()
        for queue in self._partitions.values():
            self._library.queue_forward(queue, None)
            self._library.queue_destroy(queue)
        self._partitions.clear()
        if self._queue is not None:
            self._library.queue_destroy(self._queue)
            self._queue = None


class MessageSource:
    """Messages of the Python client, turned into columns one by one."""

    def __init__(self, raw: Consumer) -> None:
        self._raw = raw

    def route(self, places: Iterable[Place]) -> None:
        """Nothing to do: everything comes out of the consumer's own queue."""

    def take(self, most: int, wait: float) -> list[Taken]:
        """See FetchSource."""
        first = self._raw.poll(clock.blocking(wait))
        if first is None:
            return []
        return [taken_of([first, *self._raw.consume(min(most - 1, 10_000), 0)] if most > 1 else [first])]

    def close(self) -> None:
        """Nothing was opened."""


def taken_of(messages: Sequence[Message]) -> Taken:
    """Messages and events of the Python client as a batch."""
    records: list[Message] = []
    events: list[Event] = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        else:
            place = message.partition(), message.offset()
            p, offset = (-1 if number is None else number for number in place)
            events.append(Event(len(records), error.code(), error.str(), message.topic(), p, offset))
    return Taken(batch_of(records), _runs(records, {event.row for event in events}), events)


def _runs(records: list[Message], cuts: set[int]) -> list[Run]:
    runs: list[Run] = []
    last = -1
    row = 0
    for (topic, partition), group in groupby(records, lambda m: (cast(str, m.topic()), cast(int, m.partition()))):
        last = -1
        for message in group:
            offset = cast(int, message.offset())
            if last < 0 or offset <= last or row in cuts:
                runs.append(Run(row, row + 1, topic, partition))
            else:
                runs[-1] = Run(runs[-1].start, row + 1, topic, partition)
            last = offset
            row += 1
    return runs


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one; a single one is passed on without a copy."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)
