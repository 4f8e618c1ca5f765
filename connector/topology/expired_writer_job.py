"""The periodic job of a controller that erases the records of writers that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ...partitioner.errors import CorruptRecordError, RecordVersionError
from ...partitioner.records.control_records import WRITERS_TOPIC, Lease, Ready
from ...partitioner.writers.expired_writers import ExpiredWriters
from .. import clock
from ..config import connection_of
from ..control.control_reader import ControlMessage, ControlReader
from ..control.control_topics import all_writer_slots, existing
from ..kafka_errors import translate, translated
from ..library_calls import shielded
from ..refusals import ClusterAdmin
from .periodic import Periodic

_MOST_AT_ONCE = 1_000


class ExpiredWriterJob(Periodic):
    """Follows all writers, and writes tombstones for those whose records stood unchanged for `quiet_s`; `close` it.

    It begins to count when it begins to read, and anew after a read that failed: a controller that is started anew every
    minute erases nothing.
    """

    name = "forget-writers"

    def __init__(self, config: Mapping[str, Any], quiet_s: float = 3600.0, every: float = 60.0) -> None:
        super().__init__(every)
        self._config = dict(config)
        self._servers = str(config.get("bootstrap.servers"))
        self._quiet_s = quiet_s
        self._writers = ExpiredWriters(quiet_s)
        self._reader: ControlReader | None = None
        self._producer: Producer | None = None

    def run(self) -> Mapping[str, object] | None:
        """Read on, and erase what may go. Raises NotAuthorizedError, BrokerUnreachableError and kin; nothing is half-done."""
        if not self._read():
            return None
        keys = list(islice(self._writers.due(clock.now()), _MOST_AT_ONCE))
        if not keys:
            return None
        self._erase(keys)
        return {"erased": len(keys), "joins_known": len(self._writers)}

    def close(self) -> None:
        """Release the clients."""
        self._forget_reader()
        if self._producer is not None:
            self._producer.close()

    def _read(self) -> bool:
        """Whether all is read. Not where there are no control topics; after an error the next turn begins anew."""
        try:
            if self._reader is None:
                if not existing(ClusterAdmin(self._config), self._servers):
                    return False
                self._reader = ControlReader(self._config, fetch_wait_ms=50)
                self._reader.add(all_writer_slots())
            with translated("read", f"control topic {WRITERS_TOPIC}", self._servers):
                for message in self._reader.read_to_end():
                    self._take(message)
            return True
        except BaseException:
            self._forget_reader()  # it may follow nothing yet, or records that it has read are lost
            raise

    def _forget_reader(self) -> None:
        reader, self._reader, self._writers = self._reader, None, ExpiredWriters(self._quiet_s)
        if reader is not None:
            reader.close()

    def _take(self, message: ControlMessage) -> None:
        try:
            record = message.record
        except (CorruptRecordError, RecordVersionError):
            return  # whom it concerns stops because of it; it stays for them
        if isinstance(record, Lease | Ready) or message.value is None:
            self._writers.take(
                message.key,
                record if isinstance(record, Lease | Ready) else None,
                message.slot[1],
                message.offset,
                clock.now(),
            )

    def _erase(self, keys: list[tuple[int, bytes]]) -> None:
        if self._producer is None:
            self._producer = Producer(
                {**connection_of(self._config), "enable.idempotence": True, "message.timeout.ms": 10_000}
            )
        failures: list[KafkaError] = []

        @shielded
        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)

        for partition, key in keys:
            try:
                self._producer.produce(WRITERS_TOPIC, None, key, partition, on_delivery=done)
            except KafkaException as raised:
                failures.append(raised.args[0])
                break
        self._producer.flush(15)
        if failures:
            raise translate(failures[0], "write", f"control topic {WRITERS_TOPIC}", self._servers)
