"""Handing rows to the client library, partition by partition: by its C calls, or by produce() where they cannot be had.

Runs of one partition, not rows in their own order: neighbours then lie next to each other in memory, where the library walks
them to batch, send and acknowledge. With four partitions that halves the CPU time of a row.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from llvmlite.binding import add_symbol

from ...partitioner.errors import UsageError
from ...partitioner.routing import HINT_HEADER
from ..library_calls import shielded
from . import sending_kernels as kernels
from .delivery_counters import DeliveryCounters
from .hashing import hash_column, key_buffers
from .library import Callback, Library, say_once
from .schema import HEADERS

_AT_ONCE = 10_000
_QUEUE_FULL = int(KafkaError._QUEUE_FULL)
_NOTHING = np.zeros(8, np.uint8)
_NO_WORDS = np.zeros(0, np.int64)
# The binding's own callback: one function for all producers of the process.
_BINDINGS: dict[str, int] = {}
_HINT_NAME = np.frombuffer(HINT_HEADER.encode() + b"\0", np.uint8)


class HeaderTypeError(UsageError, TypeError):
    """A header that is null or has no name, where produce() raises TypeError."""


class Rows:
    """Rows that are ready to be sent. Built once per batch; holds the columns alive.

    sendable: how many come before the first with a header that is null or has no name. The C calls would take it.
    Raises UsageError for a column of another type.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        if "value" not in names and "key" not in names:
            raise UsageError(f"the batch has neither a column 'value' nor 'key', but {', '.join(names)}")
        count = self.count = len(batch)
        self.value = _binary(batch, "value", count)
        self.key = _binary(batch, "key", count)
        self.headers, self.sendable = _headers(batch, count)
        self.times = _times(batch)
        self.plain = self.headers is None and self.times is None
        self.buffers = (*key_buffers(self.key), *key_buffers(self.value))

    def row(self, row: int) -> tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]:
        """(key, value, timestamp in milliseconds or 0, headers) of one row."""
        key, value = _bytes(self.key[row].as_py()), _bytes(self.value[row].as_py())
        headers = None if self.headers is None else self.headers[row].as_py()
        pairs = None if headers is None else [(header["key"], header["value"]) for header in headers]
        return key, value, 0 if self.times is None else int(self.times[row]), pairs

    def sizes(self) -> np.ndarray[Any, Any]:
        """Bytes of key and value of each row, an upper bound where one is null."""
        total = np.zeros(self.count, np.int64)
        for column in (self.key, self.value):
            _, ends, _, first = key_buffers(column)
            total += np.diff(ends[first : first + self.count + 1])
        return total


class Sender(Protocol):
    """Sends rows without callbacks; the blocks of `counters` count what becomes of them."""

    counters: DeliveryCounters

    def send(self, topic: str, rows: Rows, partition: int, opaque: int, hints: Any, index: Any) -> int:
        """Queue rows `index`, an int64 array, in that order. Returns how many were queued: fewer when the queue is full.

        opaque: of the block that counts them. hints: int64 epochs, one for each of `index`, or None.
        Raises KafkaException with what stops the first row, if it is not a full queue.
        """

    def close(self) -> None:
        """Release what was opened; the producer is the caller's."""


def sender(raw: Producer, library: Library | None) -> Sender:
    """The best sender for this producer. To be made before its first record is sent."""
    if library is not None:
        handle = library.handle(raw)
        if handle is not None and _count_deliveries(library, handle):
            return NativeSender(raw, library, handle)
        say_once("the delivery callback behind the Producer object cannot be replaced")
    return MessageSender(raw)


@functools.lru_cache(maxsize=1)
def _delivery_callback(binding: int) -> int:
    """The compiled delivery callback, which passes on to the binding's own."""
    add_symbol("keyorder_binding_delivery_callback", binding)
    from .delivery_kernel import on_delivery

    return int(on_delivery.address)


def _count_deliveries(library: Library, handle: int) -> bool:
    """Put the compiled delivery callback before the binding's. False when that cannot be done."""
    callback = Callback(library, handle, "dr_msg_cb")
    binding = callback.address
    if binding is None or _BINDINGS.setdefault("dr_msg_cb", binding) != binding:
        return False
    ours = _delivery_callback(binding)
    callback.replace(ours)
    return callback.address == ours


class _Partitions:
    """How many partitions the library knows of: its batch call loses count of a record for any other."""

    def __init__(self, raw: Producer) -> None:
        self._raw = raw
        self._counts: dict[str, int] = {}

    def check(self, topic: str, partition: int) -> None:
        """Raises KafkaException for a topic or a partition that is not there."""
        if partition < self._counts.get(topic, 0):
            return
        found = self._raw.list_topics(topic, timeout=10).topics.get(topic)
        if found is None or found.error is not None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC) if found is None else found.error)
        self._counts[topic] = len(found.partitions)
        if partition >= self._counts[topic]:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, f"{topic} has no partition {partition}"))


class NativeSender:
    """C calls. Not thread-safe."""

    def __init__(self, raw: Producer, library: Library, handle: int) -> None:
        self.counters = DeliveryCounters()
        self._raw, self._library, self._handle = raw, library, handle
        self._topics: dict[str, int] = {}
        self._known = _Partitions(raw)
        self._messages = np.empty((_AT_ONCE, 9), np.int64)
        self._vus = np.zeros((8, 9), np.int64)
        self._codes = np.zeros(1, np.int32)
        names = ("headers_new", "header_add", "produceva", "error_code", "error_destroy", "headers_destroy")
        self._calls = np.array([library.address(name) for name in names], np.int64)

    def send(self, topic: str, rows: Rows, partition: int, opaque: int, hints: Any, index: Any) -> int:
        """See Sender."""
        if topic not in self._topics:
            self._topics[topic] = self._library.topic_new(self._handle, topic.encode(), None)
        self._known.check(topic, partition)
        way = self._plain if rows.plain and hints is None else self._rich
        sent = 0
        while sent < len(index):
            n = min(len(index) - sent, _AT_ONCE)
            done = way(topic, rows, partition, opaque, hints, index, sent, n)
            sent += done
            if done < n:
                code = int(self._codes[0])
                if code != _QUEUE_FULL and not sent:
                    raise KafkaException(KafkaError(code))
                break
        return sent

    def close(self) -> None:
        """See Sender."""
        for handle in self._topics.values():
            self._library.topic_destroy(handle)
        self._topics.clear()

    def _plain(
        self, topic: str, rows: Rows, partition: int, opaque: int, hints: Any, index: Any, first: int, n: int
    ) -> int:
        rkt, messages = self._topics[topic], self._messages
        kernels.fill(messages, rkt, opaque, index, first, n, *rows.buffers, _NOTHING.ctypes.data)
        self._library.produce_batch(rkt, partition, kernels.COPY, messages.ctypes.data, n)
        return int(kernels.taken(messages, n, self._codes))

    def _rich(
        self, topic: str, rows: Rows, partition: int, opaque: int, hints: Any, index: Any, first: int, n: int
    ) -> int:
        lists: tuple[Any, ...] = (_NO_WORDS.astype(np.int32), _NOTHING[:0], 0)
        names = data = (0, np.zeros(1, np.int32), _NOTHING[:0], 0)
        if rows.headers is not None:
            validity, ends = rows.headers.buffers()[:2]
            bits = (
                np.frombuffer(validity, np.uint8) if validity is not None and rows.headers.null_count else _NOTHING[:0]
            )
            lists = (np.frombuffer(ends, np.int32), bits, rows.headers.offset)
            names, data = key_buffers(rows.headers.values.field(0)), key_buffers(rows.headers.values.field(1))
        own = _NO_WORDS if hints is None else hints[first : first + n]
        epochs, inverse = np.unique(own, return_inverse=True)
        texts = [np.frombuffer(str(epoch).encode(), np.uint8) for epoch in epochs.tolist()]
        marks = np.where(own > 0, inverse + 1, 0).astype(np.int64)
        columns = (*rows.buffers, _NO_WORDS if rows.times is None else rows.times)
        hint = (
            marks,
            _HINT_NAME.ctypes.data,
            len(_HINT_NAME) - 1,
            np.array([text.ctypes.data for text in texts], np.int64),
            np.array([len(text) for text in texts], np.int64),
        )
        where = (self._calls, self._handle, self._topics[topic], partition, opaque, index, first, n)
        out = (_NOTHING.ctypes.data, self._vus, self._vus.ctypes.data, self._codes)
        return int(kernels.send_one_by_one(*where, *columns, *lists, *names, *data, *hint, *out))


class MessageSender:
    """produce(), row by row. Not thread-safe."""

    def __init__(self, raw: Producer) -> None:
        self.counters = DeliveryCounters()
        self._raw, self._known = raw, _Partitions(raw)

    def send(self, topic: str, rows: Rows, partition: int, opaque: int, hints: Any, index: Any) -> int:
        """See Sender."""
        self._known.check(topic, partition)
        wanted = pa.array(index)
        keys, values = rows.key.take(wanted), rows.value.take(wanted).to_pylist()
        hashes, keys = hash_column(keys), keys.to_pylist()
        headers = [None] * len(index) if rows.headers is None else rows.headers.take(wanted).to_pylist()
        for i, row in enumerate(index.tolist()):
            own = None if headers[i] is None else [(h["key"], h["value"]) for h in headers[i] or ()]
            hint = 0 if hints is None else int(hints[i])
            if hint:
                own = [pair for pair in own or () if pair[0] != HINT_HEADER]
                own.append((HINT_HEADER, str(hint).encode()))
            try:
                self._raw.produce(
                    topic,
                    values[i],
                    keys[i],
                    partition,
                    on_delivery=partial(self._delivered, opaque - 1, int(hashes[i])),
                    timestamp=0 if rows.times is None else int(rows.times[row]),
                    headers=own,
                )
            except BufferError:
                return i
            except KafkaException:
                if i:
                    return i
                raise
        return len(index)

    def close(self) -> None:
        """Nothing was opened."""

    @shielded
    def _delivered(self, block: int, key_hash: int, error: KafkaError | None, message: Message) -> None:
        self.counters.count(block, 0 if error is None else error.code(), message.offset(), key_hash)


def most_bytes(config: Mapping[str, Any]) -> int:
    """The largest record that the client library takes."""
    return int(config.get("message.max.bytes", config.get("message.copy.max.bytes", 1_000_000)))


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _binary(batch: pa.RecordBatch, name: str, count: int) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(count, pa.binary())
    column = batch.column(name)
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return column
    if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type):
        return column
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.binary())
    raise UsageError(f"column {name!r} is {column.type}: it has to be binary or string")


def _headers(batch: pa.RecordBatch, count: int) -> tuple[pa.Array | None, int]:
    """The column, without hints, and `Rows.sendable`."""
    if "headers" not in batch.schema.names:
        return None, count
    column = batch.column("headers")
    if column.null_count == count:
        return None, count
    try:
        headers = column if column.type == HEADERS else column.cast(HEADERS)
    except pa.ArrowException as error:
        raise UsageError(f"column 'headers' is {column.type}: it has to be {HEADERS}") from error
    sendable = _sendable(headers)
    if not pc.any(pc.equal(headers.values.field(0), HINT_HEADER)).as_py():
        return headers, sendable
    # A hint from elsewhere says nothing about this topic, and readers would look for its epoch.
    own = [
        None if row is None else [header for header in row if header is None or header["key"] != HINT_HEADER]
        for row in headers.to_pylist()
    ]
    return pa.array(own, HEADERS), sendable


def _sendable(headers: pa.Array) -> int:
    every = headers.values  # those of rows outside of the batch as well
    if not (every.null_count or every.field(0).null_count):
        return len(headers)
    for row, own in enumerate(headers.to_pylist()):
        if any(header is None or header["key"] is None for header in own or ()):
            return row
    return len(headers)


def _times(batch: pa.RecordBatch) -> np.ndarray[Any, Any] | None:
    """Milliseconds since 1970, 0 for null: the library sets the present time there."""
    if "timestamp" not in batch.schema.names:
        return None
    column = batch.column("timestamp")
    if not pa.types.is_timestamp(column.type) or column.null_count == len(column):
        if pa.types.is_timestamp(column.type) or pa.types.is_null(column.type):
            return None
        raise UsageError(f"column 'timestamp' is {column.type}: it has to be a timestamp")
    milliseconds = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).fill_null(0)
    return np.asarray(milliseconds.to_numpy(zero_copy_only=False), np.int64)
