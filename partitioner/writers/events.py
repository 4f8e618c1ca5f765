"""What a writer is told (events) and what it asks for (actions)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..errors import KeyorderError
from ..records.control_records import ControlRecord, Lease, Ready
from ..timeline import Timeline


class Readable(Protocol):
    """A record of a control topic that is decoded when it is wanted."""

    @property
    def record(self) -> ControlRecord | None:
        """The record; None for a tombstone. Raises CorruptRecordError, RecordVersionError."""


# Events: what the driver saw.
@dataclass(frozen=True, slots=True)
class Wanted:
    """The application uses a topic. Answered once by Admitted or Refused, or by FailTopic."""

    topic: str


@dataclass(frozen=True, slots=True)
class TookId:
    """The writer holds its transactional id. log_end: where its log of leases ended before it took the id; -1: not known."""

    log_end: int


@dataclass(frozen=True, slots=True)
class TimelineRead:
    """A record of a topic's timeline has arrived."""

    topic: str
    source: Readable


@dataclass(frozen=True, slots=True)
class LeaseRead:
    """A lease record under this writer's id has arrived."""

    lease: Lease
    offset: int


@dataclass(frozen=True, slots=True)
class Looked:
    """Everything has arrived that lay in the logs when the Look of this number was carried out."""

    number: int


@dataclass(frozen=True, slots=True)
class Unreachable:
    """An action could not be carried out, since a broker is away: a look that was under way is to be begun again."""


@dataclass(frozen=True, slots=True)
class PartitionsFound:
    """The client that sends the records knows so many partitions of the topic."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class NotWritten:
    """The record of an action could not be delivered."""

    action: WriteLease | WriteReady


@dataclass(frozen=True, slots=True)
class Failed:
    """Something that this writer cannot go on without has failed."""

    error: KeyorderError


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, and what is on its way was counted."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The producer is closed: nothing more will be sent."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The driver has come to its end, whatever ended it: nobody keeps the lease any more."""


# Actions: what the driver is to do, in order.
@dataclass(frozen=True, slots=True)
class WriteLease:
    """Write a lease record."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class WriteReady:
    """Write the answer to a PREPARE."""

    ready: Ready


@dataclass(frozen=True, slots=True)
class Look:
    """Ask where the logs of the leases and of these topics' timelines end, and read up to there; then Looked(number)."""

    number: int
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class CheckLogs:
    """See that the logs of the leases and of these topics' timelines do not end below what was read of them.

    since: an answer to a question of this moment or later serves. Nothing that the writer knows rests on it, as it does on
    a Look, which has to be asked now.
    """

    topics: frozenset[str]
    since: float


@dataclass(frozen=True, slots=True)
class FindPartitions:
    """Let the client that sends the records learn of new partitions of the topic; then PartitionsFound."""

    topic: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """Records of the topic are taken from now on."""

    topic: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The topic cannot be written."""

    topic: str
    error: KeyorderError


@dataclass(frozen=True, slots=True)
class FailTopic:
    """Nothing more goes to this topic: give up what is held of it."""

    topic: str
    error: KeyorderError


@dataclass(frozen=True, slots=True)
class Fail:
    """Stop: this writer can keep no order any more."""

    error: KeyorderError


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """Tell people: a topic has another epoch."""

    new: Timeline
    old: Timeline


@dataclass(frozen=True, slots=True)
class LeaseLapsed:
    """Tell people: no keyed record goes out until the writer has joined again."""


Event = (
    Wanted
    | TookId
    | TimelineRead
    | LeaseRead
    | Looked
    | Unreachable
    | PartitionsFound
    | NotWritten
    | Failed
    | Tick
    | Leaving
    | Ended
)
Action = (
    WriteLease
    | WriteReady
    | Look
    | CheckLogs
    | FindPartitions
    | Admitted
    | Refused
    | FailTopic
    | Fail
    | EpochSeen
    | LeaseLapsed
)
