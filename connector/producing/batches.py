"""produce_batch: records given as dicts, each sent as a single one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ...partitioner.errors import KeyBlockedError
from ...partitioner.hashing import key_bytes
from .held_record import DeliveryCallback

_TAKEN = (bytes, str, type(None))


def produce_each(
    produce: Callable[..., None],
    topic: str,
    messages: list[dict[str, Any]],
    partition: int,
    callback: DeliveryCallback | None,
) -> int:
    """See OrderedProducer.produce_batch. produce: sends one of them."""
    _check(messages)
    queued, stopped = 0, dict[bytes | None, KafkaError]()
    for message in messages:
        given, place, timestamp = message.get("key"), message.get("partition"), message.get("timestamp")
        key = None if given is None else key_bytes(given)
        hearers = (message.get("callback"), message.get("on_delivery"), callback)
        if key in stopped:
            message["_error"] = stopped[key]
            continue
        try:
            produce(
                topic,
                message.get("value"),
                key,
                partition if place is None else place,
                on_delivery=next((hearer for hearer in hearers if hearer is not None), None),
                timestamp=0 if timestamp is None else timestamp,
                headers=message.get("headers"),
            )
            queued += 1
        except BufferError as error:
            message["_error"] = stopped[key] = KafkaError(KafkaError._QUEUE_FULL, str(error))
        except (KafkaException, KeyBlockedError) as error:
            cause = error.args[0]
            failed = cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
            message["_error"] = stopped[key] = failed
    return queued


def _check(messages: list[dict[str, Any]]) -> None:
    """TypeError or ValueError that names the first message which cannot be sent: none of them is, then.

    All that produce() refuses of a record's parts, held or not: whoever is told so sends the whole batch again.
    """
    if not isinstance(messages, list):
        raise TypeError("messages must be a list of dicts")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"Message at index {index} must be a dict")
        for part in ("value", "key"):
            data = message.get(part)
            if not isinstance(data, _TAKEN):
                raise TypeError(f"Message {part} at index {index} must be bytes or str")
            _check_text(data)
        if not isinstance(message.get("partition"), (int, type(None))):
            raise TypeError(f"Message partition at index {index} must be int")
        if message.get("timestamp") is not None:
            _check_timestamp(message["timestamp"], index)
        if message.get("headers") is not None:
            _check_headers(message["headers"], index)


def _check_text(data: str | bytes | None) -> None:
    if isinstance(data, str) and not data.isascii():
        data.encode()  # raises UnicodeEncodeError for half a surrogate pair


def _check_timestamp(timestamp: Any, index: int) -> None:
    try:
        number = operator.index(timestamp)
    except TypeError:
        raise TypeError(f"Message timestamp at index {index} must be int") from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"Message timestamp at index {index} is out of range")


def _check_headers(headers: Any, index: int) -> None:
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"Invalid headers at index {index}")
    for name, value in pairs:
        if not isinstance(name, (bytes, str)) or not isinstance(value, _TAKEN):
            raise ValueError(f"Invalid headers at index {index}")
        _check_text(name)
        _check_text(value)
