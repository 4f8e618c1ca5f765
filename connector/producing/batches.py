"""produce_batch: records given as dicts, each sent as a single one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ...partitioner.errors import KeyBlockedError
from .held_record import DeliveryCallback


def produce_each(
    produce: Callable[..., None],
    topic: str,
    messages: list[dict[str, Any]],
    partition: int,
    callback: DeliveryCallback | None,
) -> int:
    """See OrderedProducer.produce_batch. produce: sends one of them."""
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise TypeError("messages must be a list of dicts")
    queued, stopped = 0, dict[Any, KafkaError]()
    for message in messages:
        key = message.get("key")
        if key in stopped:
            message["_error"] = stopped[key]
            continue
        try:
            produce(
                topic,
                message.get("value"),
                key,
                message.get("partition", partition),
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
