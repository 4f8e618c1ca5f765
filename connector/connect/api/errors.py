"""Errors of connectors, converters and transforms, as branches of the one error tree."""

from __future__ import annotations

from ....partitioner.errors import OrderError, PeerError, UsageError


class ConnectError(PeerError):
    """A connector, or the system behind it, failed. The task that raises it fails (Connect's ConnectException)."""


class RetriableError(ConnectError):
    """The same call may succeed later: the runtime calls again with the same records (RetriableException)."""

    retriable = True


class DataError(ConnectError):
    """A record cannot be converted, transformed or stored as it is (DataException)."""


class NotFoundError(UsageError, LookupError):
    """There is no such connector, task, plugin or logger."""


class ConnectorExistsError(UsageError):
    """A connector of that name exists already."""


class BadRequestError(UsageError, ValueError):
    """A request that cannot be obeyed as it stands; the text says why."""


class RebalanceInProgressError(PeerError):
    """No leader is there to obey this now: ask again in a moment."""

    retriable = True


class OffsetsRefusedError(OrderError):
    """An alteration of offsets that would deliver an older record of a key after a newer one."""


class LateReportError(OrderError):
    """A record was reported as failed after a later record of its key had gone on: its place in the order is lost."""


class ParkedRecordsGoneError(OrderError):
    """Parked records of a key are no longer in the dead letter queue: what is left of them would pass for all of them.

    partition, offset: where the first of them lay. log_start: where that partition begins now.
    """

    def __init__(self, topic: str, partition: int, offset: int, log_start: int) -> None:
        super().__init__(topic, partition, offset, log_start)
        self.topic, self.partition, self.offset, self.log_start = topic, partition, offset, log_start

    def __str__(self) -> str:
        return (
            f"the dead letter queue {self.topic}[{self.partition}] begins at offset {self.log_start}, and the first parked "
            f"record of the key, at {self.offset}, is not there any more (retention?): nothing was delivered. Read what is "
            "left from that topic if you need it, then release the key with mode discard"
        )


class TransactionError(PeerError):
    """A source task's transaction failed or its task was fenced by a newer one (KIP-618)."""
