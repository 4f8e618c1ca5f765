"""Asking a cluster that may be busy with itself: what passes by itself is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from keyorder.connector.kafka_errors import translate
from keyorder.partitioner.errors.roots import is_passing
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

T = TypeVar("T")
# A leader that moves, or has just begun to be that. The library says of some calls' errors alone that they are retriable.
_MOVES = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


def answered(ask: Callable[[], T], patience: float = 180.0) -> T:
    """What the cluster answers. patience: seconds for which errors that pass are asked again."""
    return Retrying(
        retry=retry_if_exception(_passes),
        stop=stop_after_delay(patience),
        wait=wait_fixed(0.2),
        reraise=True,
    )(ask)


def _passes(error: BaseException) -> bool:
    if not isinstance(error, KafkaException):
        return False
    return error.args[0].code() in _MOVES or is_passing(translate(error.args[0], "ask", "the cluster"))
