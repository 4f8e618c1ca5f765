"""From a message in Kafka to what a sink task is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from ....messages import offset_of, place_of
from ...api.records import Original, SinkRecord
from ..pipeline import Chain, Converters
from .dead_letters import PREFIX
from .parking import facts_of
from .tolerance import FailedOperation, Stage, Tolerance

KeyEpoch = Callable[[str, bytes, int, int], int]


@dataclass
class Entry:
    """One message on its way. record: None when it was dropped by a transform, failed, or was dead-lettered.

    owned: the message's offset is to be committed (not so for one that comes back from the dead letter queue).
    settled: it failed or followed a parked key, and was dealt with.
    """

    message: Message
    record: SinkRecord | None
    failure: FailedOperation | None
    owned: bool = True
    settled: bool = False

    @property
    def key(self) -> tuple[str, bytes] | None:
        """(topic, key bytes), what order is about; None for unkeyed records."""
        key = self.message.key()
        if key is None:
            return None
        return place_of(self.message)[0], key.encode() if isinstance(key, str) else key


class SinkReader:
    """Converts and transforms; a failure is put into the entry, and judged in the record's turn."""

    def __init__(self, converters: Converters, chain: Chain, tolerance: Tolerance, key_epoch: KeyEpoch) -> None:
        self._converters, self._chain, self._tolerance, self._key_epoch = converters, chain, tolerance, key_epoch

    def entry(self, message: Message) -> Entry:
        """Of a message from its own topic."""
        topic, partition = place_of(message)
        return self._entry(message, topic, partition, offset_of(message), message.headers())

    def parked(self, message: Message) -> Entry:
        """Of a message from the dead letter queue, under its place of origin."""
        facts = facts_of(message)
        headers = [pair for pair in message.headers() or [] if not pair[0].startswith(PREFIX)]
        made = self._entry(message, facts["topic"], int(facts["partition"]), int(facts["offset"]), headers)
        made.owned = False
        return made

    def _entry(self, message: Message, topic: str, partition: int, offset: int, headers: Any) -> Entry:
        run, where = self._tolerance.run, f"{topic}[{partition}]@{offset}"
        key, value = _bytes(message.key()), _bytes(message.value())
        c = self._converters
        try:
            key_schema, key_data = run(Stage.KEY_CONVERTER, _name(c.key), where, lambda: c.key.to_connect(topic, key))
            value_schema, value_data = run(
                Stage.VALUE_CONVERTER, _name(c.value), where, lambda: c.value.to_connect(topic, value)
            )
            made_headers = run(Stage.HEADER_CONVERTER, _name(c.header), where, lambda: c.header.to_connect(headers))
            kind, timestamp = message.timestamp()
            record = SinkRecord(
                topic=topic,
                partition=partition,
                offset=offset,
                epoch=0 if key is None else self._key_epoch(topic, key, partition, offset),
                key=key_data,
                value=value_data,
                key_schema=key_schema,
                value_schema=value_schema,
                headers=made_headers,
                timestamp=timestamp if kind in (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME) else None,
                timestamp_type="LogAppendTime" if kind == TIMESTAMP_LOG_APPEND_TIME else "CreateTime",
                original_topic=topic,
                raw_key=key,
                original=Original(message),
            )
            changed = run(Stage.TRANSFORMATION, self._chain.executing, where, lambda: self._chain.apply(record))
        except FailedOperation as failure:
            return Entry(message, None, failure)
        return Entry(message, changed, None)


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
