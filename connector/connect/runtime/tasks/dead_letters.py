"""The dead letter queue of a sink: the record as it was read, with what happened to it in headers (KIP-298)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from .....partitioner.errors import BrokerUnreachableError
from .....partitioner.routing import HINT_HEADER
from ....config import connection_of
from ....kafka_errors import translate
from ....library_calls import shielded
from ....messages import offset_of, place_of
from ....refusals import ClusterAdmin
from ...api.errors import ConnectError
from ...config.providers import shown_trace
from ..kafka_log import make_topic
from ..metrics import TaskMetrics
from .tolerance import FailedOperation

PREFIX = "__connect.errors."


class DeadLetters:
    """Writes failed records. What was handed over is durable when `flush` has returned.

    config: how to reach the cluster, to make the topic. producer: the client library's settings of what writes it.
    made_with: the settings of the topic, if it has to be made. context: whether headers say what has happened.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        producer: Mapping[str, Any],
        topic: str,
        replication: int,
        made_with: Mapping[str, str],
        context: bool,
        names: tuple[str, int],
        metrics: TaskMetrics,
        redact: Callable[[str], str],
    ) -> None:
        self.topic, self._context, self._metrics, self._redact = topic, context, metrics, redact
        self._connector, self._task = names
        self._servers = str(config.get("bootstrap.servers"))
        make_topic(ClusterAdmin(connection_of(config)), self._servers, topic, 1, replication, made_with)
        self._producer = Producer(dict(producer))
        self._failure: KafkaError | None = None

    def send(self, message: Message, failure: FailedOperation | None) -> None:
        """Queue one record; failure None: it follows a parked key. Raises as `flush` if an earlier one failed."""
        self._raise()
        # The hint speaks of the epochs of the topic that was read: in another one it would be taken for a lost timeline's.
        headers: list[Any] = [
            pair for pair in message.headers() or [] if not pair[0].startswith(PREFIX) and pair[0] != HINT_HEADER
        ]
        if self._context:
            headers += [(PREFIX + name, value) for name, value in self._facts(message, failure)]
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    message.value(),
                    message.key(),
                    headers=headers,
                    timestamp=max(message.timestamp()[1], 0),
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as raised:
                self._failure = raised.args[0]
                self._raise()
        self._metrics.add("deadletterqueue_produce_requests")

    def send_and_locate(self, message: Message, failure: FailedOperation) -> tuple[int, int]:
        """Write one record, wait, and say where it lies."""
        self._place: tuple[int, int] | None = None
        self.flush()
        self.send(message, failure)
        self.flush()
        assert self._place is not None
        return self._place

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until all is written. Raises the translated error of a record that was not taken."""
        left = self._producer.flush(timeout)
        self._raise()
        if left:
            raise BrokerUnreachableError(self._servers, f"write to the dead letter queue {self.topic}")

    def close(self) -> None:
        """Release the client. What was not flushed is dropped: its record comes again."""
        self._producer.purge()
        self._producer.close()

    @shielded
    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or error
            self._metrics.add("deadletterqueue_produce_failures")
        else:
            self._place = (place_of(message)[1], offset_of(message))

    def _raise(self) -> None:
        if self._failure is not None:
            if self._failure.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise ConnectError(
                    f"the dead letter queue {self.topic} does not take a record of that size: raise the topic's "
                    "max.message.bytes, and producer.override.max.request.size if you have set it"
                )
            raise translate(self._failure, "write to the dead letter queue", f"topic {self.topic}", self._servers)

    def _facts(self, message: Message, failure: FailedOperation | None) -> list[tuple[str, bytes | None]]:
        topic, partition = place_of(message)
        facts: list[tuple[str, str | None]] = [
            ("topic", topic),
            ("partition", str(partition)),
            ("offset", str(offset_of(message))),
            ("connector.name", self._connector),
            ("task.id", str(self._task)),
        ]
        if failure is None:
            facts.append(("stage", "PARKED"))
        else:
            error = failure.error
            facts += [
                ("stage", failure.stage.value),
                ("class.name", failure.executing),
                ("exception.class.name", f"{type(error).__module__}.{type(error).__qualname__}"),
                ("exception.message", self._redact(str(error))),
                ("exception.stacktrace", shown_trace(error, self._redact)),
            ]
        return [(name, None if value is None else value.encode()) for name, value in facts]
