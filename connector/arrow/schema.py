"""The columns of a batch of records: those of Spark's own Kafka source, in its types.

key, value: binary, null where the record has none. timestamp: microseconds, UTC. timestampType: as Java's
`TimestampType.id`: -1 none, 0 the producer's time, 1 the broker's. headers: null where the record has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import Message

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", tz="UTC")
# What stands for a time beyond what microseconds in 64 bits hold; no millisecond is either of them.
TOO_EARLY, TOO_LATE = -(2**63), 2**63 - 1
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS),
    ]
)


def empty_batch() -> pa.RecordBatch:
    """No records."""
    return pa.RecordBatch.from_pylist([], schema=SCHEMA)


def batch_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages (not events) as columns, one by one: the way that needs no C call."""
    times = [message.timestamp() for message in messages]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([_bytes(m.key()) for m in messages], pa.binary()),
            pa.array([_bytes(m.value()) for m in messages], pa.binary()),
            pa.array([m.topic() for m in messages], pa.string()),
            pa.array([m.partition() for m in messages], pa.int32()),
            pa.array([m.offset() for m in messages], pa.int64()),
            pa.array(
                [min(max((time if kind else -1) * 1000, TOO_EARLY), TOO_LATE) for kind, time in times], pa.int64()
            ).cast(TIMESTAMP),
            pa.array([kind - 1 for kind, _ in times], pa.int32()),
            pa.array([_headers(m) for m in messages], HEADERS),
        ],
        schema=SCHEMA,
    )


def messages_of(batch: pa.RecordBatch) -> list[Message]:
    """The rows of a batch as messages."""
    columns = [batch.column(name) for name in ("key", "value", "topic", "partition", "offset")]
    key, value, topic, partition, offset = (column.to_pylist() for column in columns)
    time = batch.column("timestamp").cast(pa.int64()).to_pylist()
    kind = batch.column("timestampType").to_pylist()
    headers = batch.column("headers")
    lists = headers.to_pylist() if headers.null_count < len(headers) else [None] * len(headers)
    return [
        Message(
            topic=topic[i],
            partition=partition[i],
            offset=offset[i],
            key=key[i],
            value=value[i],
            headers=None if lists[i] is None else [(h["key"], h["value"]) for h in lists[i] or ()],
            timestamp=(kind[i] + 1, time[i] // 1000),
        )
        for i in range(len(batch))
    ]


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers = message.headers()
    if not headers:
        return None
    return [{"key": name, "value": _bytes(value)} for name, value in cast("list[tuple[str, Any]]", headers)]
