"""What happens to a reader's gates, and what they ask for: the events and actions of `gate_machine`."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ..routing import Routing
from ..timeline import Timeline
from .early import Scan, ScanEnded
from .gate import Gate, Gates
from .gate_state import GatedPartition, Place
from .key_sieve import KeySieve
from .starts import Commit

P = TypeVar("P", bound=GatedPartition)
#: (partition, epoch) of gates that an operator let go.
Waived = Set[tuple[int, int]]


class TopicView(Protocol):
    """What is known of one topic. Replaced whole, never changed."""

    @property
    def timeline(self) -> Timeline:
        """Its epochs and cuts."""

    @property
    def gates(self) -> Gates:
        """The gates of that timeline."""

    @property
    def routing(self) -> Routing:
        """Where its keys live."""


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """What is known of the commits of other members' partitions. Replaced whole, never changed.

    commits: the last answers. answered: of which there was an answer since they are asked for, be it that there is no commit.
    changes: how often any of it has changed.
    """

    commits: Mapping[Place, Commit] = field(default_factory=dict)
    answered: frozenset[Place] = frozenset()
    changes: int = 0


# Events.
@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the reader. topics: those of which partitions are owned, the same object until some come or go."""

    topics: frozenset[str]
    views: Mapping[str, TopicView]
    waived: Mapping[str, Waived]


@dataclass(frozen=True, slots=True)
class BeginLook:
    """A LookAt is carried out. scanned: what became of the topic's scan, None while it runs."""

    topic: str
    scanned: ScanEnded | None = None


@dataclass(frozen=True, slots=True)
class Announced:
    """An Announce was carried out. heard: the application's callback has returned; it has not where it raised."""

    heard: bool


@dataclass(frozen=True, slots=True)
class LetGone:
    """A LetGo, or a LetKeysGo, was carried out."""


@dataclass(frozen=True, slots=True)
class LookEnded:
    """All that the look at a topic has asked for was carried out."""

    topic: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """All looks of the turn are over."""


@dataclass(frozen=True, slots=True)
class PositionsRead:
    """Something else is known of the others' commits."""

    heard: Heard


@dataclass(frozen=True, slots=True)
class Listening:
    """Whether the application hears of keys that come and go: then a gate asks for proven flushes too."""

    listens: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """The group's coordinator has acknowledged a position of this member in the topic, or the application has flushed."""

    topic: str


@dataclass(frozen=True, slots=True)
class Started:
    """Partitions of the topic were started."""

    topic: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions of the topic were assigned: what was heard of others may be from before a reset, and counts no more."""

    topic: str


@dataclass(frozen=True, slots=True)
class Rewound:
    """A position of the topic went back: gates behind it may have closed."""

    topic: str


@dataclass(frozen=True, slots=True)
class FetchedAgain:
    """What was fetched and not returned is fetched again."""


# Actions: what the driver is to do, in order. A look goes on when it hears what came of Announce, LetGo and LetKeysGo.
@dataclass(frozen=True, slots=True)
class LookAt:
    """Look at the topic's gates: BeginLook."""

    topic: str


@dataclass(frozen=True, slots=True)
class Announce(Generic[P]):
    """Call on_partition_key_assigned (KIP-253) for this gate, which is open; then Announced."""

    partition: P
    gate: Gate


@dataclass(frozen=True, slots=True)
class LetGo(Generic[P]):
    """Held records below an offset may be returned; then LetGone."""

    partition: P
    below: float


@dataclass(frozen=True, slots=True)
class LetKeysGo(Generic[P]):
    """Held records that pass the sieve may be returned; then LetGone."""

    partition: P
    sieve: KeySieve


@dataclass(frozen=True, slots=True)
class TellEnd(Generic[P]):
    """The application may hear of the end of the partition that came behind held records."""

    partition: P


@dataclass(frozen=True, slots=True)
class Unhold(Generic[P]):
    """There is room again: fetch on."""

    partition: P


@dataclass(frozen=True, slots=True)
class GateOpened:
    """Tell people: a partition that was behind a closed gate for `seconds` is behind none."""

    place: Place
    seconds: float


@dataclass(frozen=True, slots=True)
class ReadTails:
    """This scan, and no other, is wanted of the topic."""

    topic: str
    scan: Scan | None


@dataclass(frozen=True, slots=True)
class EndLook:
    """Say when all before is done: LookEnded."""

    topic: str


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Say when all looks are over: TurnEnded."""


@dataclass(frozen=True, slots=True)
class Fetch(Generic[P]):
    """Begin to fetch these, all at once: an eager member replaces its whole assignment with every call."""

    partitions: list[P]


@dataclass(frozen=True, slots=True)
class AskPositions:
    """Ask what the group has committed on these places, and only these, from now on; then PositionsRead."""

    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class ForgetPositions:
    """Drop what others have said of the topic, also what is on its way."""

    topic: str


Event = (
    Turn
    | BeginLook
    | Announced
    | LetGone
    | LookEnded
    | TurnEnded
    | PositionsRead
    | Listening
    | Moved
    | Started
    | Assigned
    | Rewound
    | FetchedAgain
)
Action = (
    LookAt
    | Announce[P]
    | LetGo[P]
    | LetKeysGo[P]
    | TellEnd[P]
    | Unhold[P]
    | GateOpened
    | ReadTails
    | EndLook
    | EndTurn
    | Fetch[P]
    | AskPositions
    | ForgetPositions
)
