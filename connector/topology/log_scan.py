"""Reading partitions of a data topic up to given offsets, once and then on: for jobs that look at whole logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from ...partitioner.errors import BrokerUnreachableError
from .. import clock
from ..config import REFILL, connection_of
from ..kafka_errors import ends_partition
from ..metadata import prefetch_metadata

_BATCH = 1_000


class LogScan:
    """Reads on from where it was. Not thread-safe; `close` it. isolation: Kafka's `isolation.level`."""

    def __init__(self, config: Mapping[str, Any], topic: str, isolation: str = "read_committed") -> None:
        self.topic, self._bootstrap = topic, str(config.get("bootstrap.servers"))
        self._next: dict[int, int] = {}
        self._consumer = Consumer(
            {
                **connection_of(config),
                **REFILL,
                "group.id": "keyorder-log-scan",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                # Below the log start there is nothing to miss.
                "auto.offset.reset": "earliest",
                # The markers behind a last record show only in an empty fetch, for which held records wait.
                "fetch.wait.max.ms": 20,
            }
        )

    def start(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on."""
        self._next = dict(offsets)
        prefetch_metadata(self._consumer, self.topic)
        self._consumer.assign([TopicPartition(self.topic, p, offset) for p, offset in offsets.items()])

    def read(self, ends: Mapping[int, int], each: Callable[[Message], None], deadline: float | None = None) -> bool:
        """Call `each` with every record below `ends`, and perhaps some above. False when `deadline` was over before.

        The offsets that no record shows are passed too. Raises NotAuthorizedError, BrokerUnreachableError (30 s of silence).
        """
        heard = clock.now()
        while any(self._next[p] < end for p, end in ends.items()):
            if deadline is not None and clock.now() >= deadline:
                return False
            messages = self._consumer.consume(_BATCH, 0.02)
            if messages:
                heard = clock.now()
            elif clock.now() - heard > 30:
                raise BrokerUnreachableError(self._bootstrap, f"{self.topic} could not be read to its end")
            for message in messages:
                self._take(message, each)
        return True

    def close(self) -> None:
        """Leave nothing behind."""
        self._consumer.close()

    def _take(self, message: Message, each: Callable[[Message], None]) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if error is None:
            self._next[partition] = offset + 1
            each(message)
        elif ends_partition(error, f"topic {self.topic}", self._bootstrap):
            self._next[partition] = max(self._next[partition], offset)
