"""The root of keyorder's errors and its three branches: whose fault it is."""

from __future__ import annotations

from typing import Any, ClassVar

from confluent_kafka import KafkaError, KafkaException


class KeyorderError(Exception):
    """The root of every error that keyorder raises by itself."""

    retriable: bool = False


class UsageError(KeyorderError):
    """The caller asked for something that cannot be: fix the call or the setting that the text names."""


class PeerError(KeyorderError):
    """Kafka, the network or another process failed; the call itself was right."""


def is_passing(error: BaseException) -> bool:
    """Whether it came from the cluster and the same call may succeed a moment later."""
    return isinstance(error, PeerError) and error.retriable


class OrderError(KeyorderError):
    """Order or durability cannot be proven: keyorder stops here and never guesses."""


class Cause(KafkaError):
    """An error as the client library would have reported it. typed: the error that it stands for."""

    def __init__(self, typed: Any) -> None:
        super().__init__(typed.kafka_code, str(typed), retriable=typed.retriable)
        self.typed: KeyorderError = typed


class StockError(KafkaException):
    """Mixed into errors that stand where the client library raises a KafkaException: `except KafkaException` meets them.

    `args[0]` is a KafkaError, as in every KafkaException; kafka_code: its code.
    """

    kafka_code: ClassVar[int] = KafkaError._FAIL

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]  # an attribute there
        """(the KafkaError,). What the error was made of stands in its attributes."""
        return (Cause(self),)
