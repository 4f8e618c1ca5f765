"""What happens to a reader's starts, and what they ask for: the events and actions of `start_machine`."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ..errors import KeyorderError
from ..timeline import Timeline, TopicIdentity
from .gate_state import Place
from .starts import Commit, Start

#: (log start, end as this reader may read it), by partition.
Logs = Mapping[Place, tuple[int, int]]


class KnownTopic(Protocol):
    """What is known of one topic. Replaced whole, never changed."""

    @property
    def timeline(self) -> Timeline:
        """Its epochs and cuts."""

    @property
    def managed(self) -> bool:
        """Whether the control topic has a timeline of it."""


class Fetched(Protocol):
    """wanted: where the application asked to start, a number or one of the client library's names; None: by the group."""

    wanted: int | None


class StartingPartition(Protocol):
    """A partition that is owned. started: its start is known."""

    topic: str
    partition: int
    started: bool

    @property
    def fetch(self) -> Fetched:
        """Where it is to be read."""


P = TypeVar("P", bound=StartingPartition)


# Events.
@dataclass(frozen=True, slots=True)
class Assigned:
    """A partition of the topic is owned, and has not started."""

    topic: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Partitions of these topics are owned, and of no others any more."""

    topics: Set[str]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the reader. An attempt of an earlier turn that was cut short is over.

    manual: partitions are assigned by the application, and not by a group. unusable: topics whose timelines cannot be gone
    by. remade: those of them that were made again before anything of them was started.
    """

    manual: bool
    unusable: Set[str]
    remade: Set[str]


# Answers. Each comes for the request of its kind; Failed for any of them.
@dataclass(frozen=True, slots=True)
class Looked:
    """views: of the topics that were looked at since the moment that was asked for."""

    views: Mapping[str, KnownTopic]


@dataclass(frozen=True, slots=True)
class Identified:
    """found: which topics these are; one that is not there, or may not be seen, is absent."""

    found: Mapping[str, TopicIdentity]
    views: Mapping[str, KnownTopic]


@dataclass(frozen=True, slots=True)
class CommitsRead:
    """commits: the group's, by topic and partition. views, waived: what is known since. waived: (partition, epoch)."""

    commits: Mapping[str, Mapping[int, Commit]]
    views: Mapping[str, KnownTopic]
    waived: Mapping[str, Set[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class LogsRead:
    """What the leaders say of their logs."""

    logs: Logs


@dataclass(frozen=True, slots=True)
class Committed:
    """The group has taken all offsets."""


@dataclass(frozen=True, slots=True)
class Begun:
    """All partitions of a Begin read from their starts."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A request was not answered, or refused."""

    error: KeyorderError


# Requests: the machine goes on when it hears what came of them.
@dataclass(frozen=True, slots=True)
class Look:
    """Wait until looks at these topics have ended that began at these times or later, for `wait` seconds in all: Looked."""

    since: Mapping[str, float]
    wait: float


@dataclass(frozen=True, slots=True)
class Identify:
    """Ask the cluster which topics these are, and how many partitions they have: Identified."""

    topics: list[str]


@dataclass(frozen=True, slots=True)
class ReadCommits:
    """Ask the group's coordinator, for these partitions of each topic: CommitsRead."""

    partitions: Mapping[str, range]


@dataclass(frozen=True, slots=True)
class ReadLogs:
    """Ask the leaders: LogsRead. at_least: a new leader's end may lie below it for a moment; patience is worth while."""

    at_least: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class CommitStarts:
    """Commit all at once, synchronously: Committed."""

    commits: Mapping[str, Mapping[int, Commit]]


@dataclass(frozen=True, slots=True)
class Begin(Generic[P]):
    """Read these partitions of a topic from their starts, which were asked for at `asked`: Begun. The topic goes on.

    look_soon: records wait, and the next look at the control topic says which of them were written before it.
    """

    topic: str
    starts: list[tuple[P, Start]]
    asked: float
    look_soon: bool


# Actions without an answer.
@dataclass(frozen=True, slots=True)
class Follow:
    """Follow the topic's timeline, anew if it could not be gone by."""

    topic: str


@dataclass(frozen=True, slots=True)
class NoteCount:
    """The topic has so many partitions."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The topic cannot go on: the application is told once of each kind of error."""

    topic: str
    error: KeyorderError


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell people, and not the application: the topic could not be started for `seconds`, and is tried on."""

    topic: str
    seconds: float
    error: KeyorderError


Answer = Looked | Identified | CommitsRead | LogsRead | Committed | Begun | Failed
Event = Assigned | Kept | Turn | Answer
Request = Look | Identify | ReadCommits | ReadLogs | CommitStarts | Begin[P]
Action = Request[P] | Follow | NoteCount | Stop | Warn
