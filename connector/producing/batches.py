"""produce_batch: records given as dicts, each sent as a single one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ...partitioner.errors import KeyBlockedError
from .held_record import DeliveryCallback

_TAKEN = (bytes, bytearray, memoryview, str, type(None))


def produce_each(
    produce: Callable[..., None],
    topic: str,
    messages: list[dict[str, Any]],
    partition: int,
    callback: DeliveryCallback | None,
) -> int:
    """See OrderedProducer.produce_batch. produce: sends one of them."""
    _check(messages)
    queued, stopped = 0, dict[Any, KafkaError]()
    for message in messages:
        key, place = message.get("key"), message.get("partition")
        if key in stopped:
            message["_error"] = stopped[key]
            continue
        try:
            produce(
                topic,
                message.get("value"),
                key,
                partition if place is None else place,
                on_delivery=message.get("callback") or message.get("on_delivery") or callback,
                timestamp=message.get("timestamp", 0),
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
    """TypeError or ValueError that names the first message which cannot be sent: none of them is, then."""
    if not isinstance(messages, list):
        raise TypeError("messages must be a list of dicts")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"Message at index {index} must be a dict")
        for part in ("value", "key"):
            if not isinstance(message.get(part), _TAKEN):
                raise TypeError(f"Message {part} at index {index} must be bytes or str")
        if not isinstance(message.get("partition"), (int, type(None))):
            raise TypeError(f"Message partition at index {index} must be int")
