"""Rows into an OrderedProducer, and the wait until the cluster has acknowledged every one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Message

from ...connector.producing.producer import OrderedProducer
from ...partitioner.errors import KeyBlockedError
from .columns import Rows, split_by_topic
from .errors import SinkDeliveryError
from .headers import TopicHeaders
from .options import SinkOptions
from .stale import Stale
from .task import Task
from .versions import versions, with_versions


class Delivery:
    """One task's rows on their way. `rows`: how many were taken; `stale`: how many of them were left out.

    headers: what the task knows of its topics already.
    """

    def __init__(
        self, producer: OrderedProducer, options: SinkOptions, task: Task, headers: TopicHeaders | None = None
    ) -> None:
        self._producer, self._options, self._task = producer, options, task
        self._headers = TopicHeaders(options) if headers is None else headers
        self.rows = 0
        self._stale: Stale | None = None
        self._failed: dict[str, int] = {}
        self._first_error = ""

    def send(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Queue all rows in their order, waiting where the queue is full. Raises SinkDeliveryError at the first failure."""
        for batch in batches:
            if self._options.version_header is not None:
                batch = self._versioned(batch, self._options.version_header)
            self.rows += batch.num_rows
            for rows in split_by_topic(batch, self._options.topic):
                self._send_rows(rows)
            self._check()

    def settle(self) -> None:
        """Wait until everything is acknowledged. Raises SinkDeliveryError."""
        self._producer.flush()
        self._check()

    @property
    def stale(self) -> int:
        """Rows that were left out, since their version is below their key's."""
        return 0 if self._stale is None else self._stale.count

    def _send_rows(self, rows: Rows) -> None:
        self._headers.check(rows.topic)
        header = None if rows.version is None else self._headers.header(rows.topic, rows.version)
        if header is not None:
            if self._options.stale != "write":
                self._stale = self._stale or Stale(self._options)
                rows = self._stale.left(rows)
            assert rows.version is not None
            numbers = rows.version.fill_null(0).to_numpy(zero_copy_only=False)
            present = rows.version.is_valid().to_numpy(zero_copy_only=False)
            rows = replace(rows, headers=with_versions(rows.headers, header, numbers, present))
        if rows.partition is not None:
            self._send_placed(rows)
            return
        columns = {"key": rows.key, "value": rows.value}
        if rows.headers is not None:
            columns["headers"] = rows.headers
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        while len(batch):
            try:
                batch = batch.slice(self._producer.produce_arrow(rows.topic, batch))
            except (BufferError, KeyBlockedError) as raised:
                self._check()
                if isinstance(raised, KeyBlockedError):
                    raise

    def _send_placed(self, rows: Rows) -> None:
        """Rows with a partition of their own, one by one."""
        assert rows.partition is not None
        keys, values = rows.key.to_pylist(), rows.value.to_pylist()
        headers = [None] * len(rows) if rows.headers is None else rows.headers.to_pylist()
        partitions = rows.partition.fill_null(-1).to_pylist()
        for key, value, header, partition in zip(keys, values, headers, partitions, strict=True):
            pairs = None if header is None else [(h["key"], h["value"]) for h in header]
            self._send_row(rows.topic, key, value, pairs, partition)

    def _send_row(self, topic: str, key: bytes | None, value: bytes | None, headers: Any, partition: int) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=self._delivered, headers=headers)
                return
            except BufferError:
                self._producer.poll(0.1)
                self._check()

    def _versioned(self, batch: pa.RecordBatch, header: str) -> pa.RecordBatch:
        numbers = versions(self._task.batch, self._task.partition, self.rows, batch.num_rows)
        names = [name.lower() for name in batch.schema.names]
        given = batch.column(names.index("headers")) if "headers" in names else None
        columns = {name: batch.column(i) for i, name in enumerate(names) if name != "headers"}
        columns["headers"] = with_versions(given, header, numbers)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._note(message.topic() or "?", error)

    def _note(self, topic: str, error: KafkaError) -> None:
        self._failed[topic] = self._failed.get(topic, 0) + 1
        self._first_error = self._first_error or f"{error.name()}: {error.str()}"

    def _check(self) -> None:
        for failure in self._producer.arrow_failures():
            self._note(failure.topic, KafkaError(failure.code))
        for topic, failed in self._failed.items():
            raise SinkDeliveryError(topic, failed, self._first_error)
