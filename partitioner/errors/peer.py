"""The call was right, Kafka or another process was not."""

from __future__ import annotations

from confluent_kafka import KafkaError

from .roots import PeerError, StockError


class BrokerUnreachableError(PeerError, StockError):
    """No broker answered in time."""

    kafka_code = KafkaError._TRANSPORT

    retriable = True

    def __init__(self, bootstrap_servers: str, detail: str) -> None:
        super().__init__(bootstrap_servers, detail)
        self.bootstrap_servers, self.detail = bootstrap_servers, detail

    def __str__(self) -> str:
        return (
            f"no Kafka broker answered at bootstrap.servers={self.bootstrap_servers!r} ({self.detail}): "
            "check the address, that the broker runs, and its security settings"
        )


class TlsError(BrokerUnreachableError):
    """A broker is there, and TLS stands between it and this client: the text names the setting and what to do.

    Retriable as is a broker that is away: a certificate may be renewed while a client tries again.
    """

    def __init__(self, bootstrap_servers: str, setting: str, problem: str, fix: str) -> None:
        super().__init__(bootstrap_servers, f"{setting}: {problem}")
        self.setting, self.problem, self.fix = setting, problem, fix

    def __str__(self) -> str:
        return f"no connection to Kafka at bootstrap.servers={self.bootstrap_servers!r}: {self.detail}; {self.fix}"


class HostUnknownError(BrokerUnreachableError):
    """No host of bootstrap.servers has an address on this machine.

    Retriable as is a broker that is away: in some networks a name comes to be known only when its server has started.
    """

    def __str__(self) -> str:
        return (
            f"no host of bootstrap.servers={self.bootstrap_servers!r} has an address on this machine ({self.detail}): "
            "correct the name, or have it resolved here"
        )


class NotAuthorizedError(PeerError, StockError):
    """The broker refused an operation: the text names the right that is missing."""

    kafka_code = KafkaError.TOPIC_AUTHORIZATION_FAILED

    def __init__(self, operation: str, resource: str, detail: str) -> None:
        super().__init__(operation, resource, detail)
        self.operation, self.resource, self.detail = operation, resource, detail

    def __str__(self) -> str:
        return f"this user may not {self.operation} {self.resource} ({self.detail}): grant it, or use another user"


class KafkaOperationError(PeerError, StockError):
    """Kafka answered an operation with an error that is none of the typed ones."""

    kafka_code = KafkaError._FAIL

    def __init__(self, operation: str, detail: str, retriable: bool = False) -> None:
        super().__init__(operation, detail)
        self.operation, self.detail = operation, detail
        self.retriable = retriable

    def __str__(self) -> str:
        return f"{self.operation}: {self.detail}"


class WriterLateError(PeerError):
    """A change was given up because writers did not answer in time. The layout is as it was; try again.

    writers: their ids. seconds: how long the change has taken.
    """

    retriable = True

    def __init__(self, topic: str, writers: tuple[str, ...], seconds: float) -> None:
        super().__init__(topic, writers, seconds)
        self.topic, self.writers, self.seconds = topic, writers, seconds

    def __str__(self) -> str:
        return (
            f"the change of {self.topic!r} was given up after {self.seconds:.0f} s, the layout is unchanged: "
            f"no READY from {', '.join(self.writers)}; look at these processes, or raise --timeout"
        )


class ChangeLateError(WriterLateError):
    """A change was given up because something else than a writer was late. The same call again resumes it.

    It was told as a WriterLateError before, so that whoever catches that one meets it; `writers` is empty.
    awaited: what did not come, as half a sentence.
    """

    def __init__(self, topic: str, awaited: str, seconds: float) -> None:
        super().__init__(topic, (), seconds)
        self.args, self.awaited = (topic, awaited, seconds), awaited

    def __str__(self) -> str:
        return (
            f"the change of {self.topic!r} was given up after {self.seconds:.0f} s: {self.awaited}; the same command again "
            f"resumes it, `keyorder change status --topic {self.topic}` shows where it stands"
        )


class ControllerFencedError(PeerError):
    """Another controller has taken over this topic."""

    retriable = True

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"another controller took over topic {self.topic!r} and may finish the change: "
            f"see `keyorder change status --topic {self.topic}` before you try again"
        )


class IneligibleWriterError(PeerError, StockError):
    """A newer process joined under the same writer id (KIP-903: a stale incarnation is not eligible)."""

    kafka_code = KafkaError._FENCED

    def __init__(self, writer_id: str, reason: str) -> None:
        super().__init__(writer_id, reason)
        self.writer_id, self.reason = writer_id, reason

    def __str__(self) -> str:
        return f"INELIGIBLE_WRITER {self.writer_id!r}: {self.reason}; give each process its own keyorder.writer.id"


class KeyBlockedError(PeerError):
    """An earlier record of this key failed: later ones would overtake it. Send the failed one again first."""

    retriable = True

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(topic, detail)
        self.topic, self.detail = topic, detail

    def __str__(self) -> str:
        return (
            f"an earlier record of this key was not delivered to {self.topic!r} ({self.detail}): this one was not sent, "
            "so that it cannot overtake; send the earlier one again, then this one"
        )


class StaleViewError(PeerError):
    """The control topic could not be read for so long that nothing may be delivered or sent."""

    retriable = True

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(topic, seconds)
        self.topic, self.seconds = topic, seconds

    def __str__(self) -> str:
        return (
            f"the control topic could not be read to its end for {self.seconds:.0f} s, so the layout of {self.topic!r} may have "
            "changed unseen: records wait until it can be (check the leader of the _keyorder partitions)"
        )
