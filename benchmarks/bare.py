"""The client library's own batch calls with nothing done around them: the limit of a reader on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from keyorder.connector.arrow import kernels, sending_kernels
from keyorder.connector.arrow.library import Library, native
from keyorder.connector.arrow.sender import Rows

from .columns import PARTITIONS, raw_producer
from .harness.bench import Bench

_READ_AT_ONCE, _SENT_AT_ONCE = 50_000, 10_000
_ANY_PARTITION = -1
_NOTHING = np.zeros(8, np.uint8)


def _opened(client: Consumer | Producer) -> tuple[Library, int]:
    """The library and its handle of a client. Raises RuntimeError where this installation has no bare calls."""
    library = native({})
    handle = None if library is None else library.handle(client)
    if library is None or handle is None:
        raise RuntimeError("the client library's C functions cannot be reached here, so there is no bare loop")
    return library, handle


class BareReader:
    """Takes messages of all partitions from their beginning, and gives each back unread. To be closed before `raw`."""

    def __init__(self, raw: Consumer, topic: str) -> None:
        self._library, handle = _opened(raw)
        self._destroy = self._library.address("message_destroy")
        self._pointers = np.zeros(_READ_AT_ONCE, np.int64)
        self._queue = self._library.queue_new(handle)
        self._partitions = [self._library.queue_get_partition(handle, topic.encode(), p) for p in range(PARTITIONS)]
        for partition in self._partitions:
            self._library.queue_forward(partition, self._queue)
        raw.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])

    def take(self, wait: float, most: int = _READ_AT_ONCE) -> int:
        """How many messages came within `wait` seconds, up to `most`."""
        at = self._pointers.ctypes.data
        count = max(0, int(self._library.consume_batch_queue(self._queue, round(wait * 1000), at, most)))
        kernels.destroy(self._pointers, 0, count, self._destroy)
        return count

    def close(self) -> None:
        """Give the queues back."""
        for queue in (*self._partitions, self._queue):
            self._library.queue_forward(queue, None)
            self._library.queue_destroy(queue)


def read_bare(bench: Bench, topic: str, total: int) -> dict[str, float]:
    """As ConsumeArrow's runs: messages a second and CPU microseconds a message, `total` of them, the first apart."""
    raw = Consumer(
        {**bench.config, "group.id": topic + "-bare", "enable.auto.commit": False, "fetch.queue.backoff.ms": 20}
    )
    reader = BareReader(raw, topic)
    read = 0
    while not read:
        read = reader.take(1.0, most=1)
    meter = bench.meter()
    while read < total:
        # The call waits until it has all it was asked for.
        read += reader.take(0.1, most=1)
        read += reader.take(0.0)
    cost = meter.stop()
    reader.close()
    raw.close()
    return {"rate": total / cost.wall, "cpu": cost.cpu / total * 1e6}


def send_bare(bench: Bench, topic: str, batch: pa.RecordBatch) -> dict[str, float]:
    """As Produce's and ProduceArrow's runs: all rows, each where the library's partitioner says."""
    producer = raw_producer(bench)
    producer.produce(topic, b"first", b"first")
    producer.flush()
    library, handle = _opened(producer)
    rows, rkt = Rows(batch), library.topic_new(handle, topic.encode(), None)
    meter = bench.meter()
    _queue(library, rkt, rows)
    queued = meter.stop().wall
    producer.flush()
    cost = meter.stop()
    library.topic_destroy(rkt)
    producer.close()
    return {"queued": rows.count / queued, "acknowledged": rows.count / cost.wall, "cpu": cost.cpu / rows.count * 1e6}


def _queue(library: Library, rkt: int, rows: Rows) -> None:
    messages, codes = np.empty((_SENT_AT_ONCE, 9), np.int64), np.zeros(1, np.int32)
    index: Any = np.arange(rows.count)
    for first in range(0, rows.count, _SENT_AT_ONCE):
        count = min(_SENT_AT_ONCE, rows.count - first)
        sending_kernels.fill(messages, rkt, 0, index, first, count, *rows.buffers, _NOTHING.ctypes.data)
        library.produce_batch(rkt, _ANY_PARTITION, sending_kernels.COPY, messages.ctypes.data, count)
        if sending_kernels.taken(messages, count, codes) < count:
            raise RuntimeError(f"the library has refused a row: error {codes[0]}")
