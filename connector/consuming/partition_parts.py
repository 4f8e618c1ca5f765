"""What each part of the reader keeps about one partition. One of them writes each of these; the others read it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from confluent_kafka import Message, TopicPartition

from ...partitioner.gates.ahead import Ahead
from ...partitioner.timeline import Timeline


@dataclass(slots=True, eq=False)
class FetchState:
    """Whether the client library reads the partition, and from where.

    running: the library has it assigned. taken: next offset after what the library has handed over since it began; -1 for
    nothing. wanted: where the application asked to start, a number or one of confluent_kafka's OFFSET_ names; None: by the
    group. assigned_as: what the application has assigned, where it has done so itself.
    """

    running: bool = False
    taken: int = -1
    paused_by_user: bool = False
    paused_for_hold: bool = False
    wanted: int | None = None
    assigned_as: TopicPartition | None = None

    @property
    def paused(self) -> bool:
        """Whether the library is to hand over nothing for now."""
        return self.paused_by_user or self.paused_for_hold


@dataclass(slots=True, eq=False)
class Seen:
    """What was seen of the partition's log.

    eof: the newest end of partition that the library told, -1 for none. end, end_at: an end of the log, and a time by which
    it was known. settled_end: an earlier one: what lies below it was written before the newest look at the control topic
    began. strays_up_to: next offset after the last misplaced record that was counted. untold: an end of partition of which
    the application hears behind the records that are held.
    """

    eof: int = -1
    end: int = -1
    end_at: float = -inf
    settled_end: int = -1
    strays_up_to: int = 0
    untold: Message | None = None

    def passed(self, offset: int) -> None:
        """Nothing below this offset shows any more."""
        self.eof = max(self.eof, offset)


@dataclass(slots=True, eq=False)
class CommitState:
    """What the broker has acknowledged for the partition, and what was said to it.

    offset, epoch, note: the newest acknowledged commit; note is the application's own metadata. ahead: what it said of records
    beyond it. said: the last that keyorder has sent by itself, for a proof or from time to time. stored, stored_note: what the
    application has stored. settled_in: the timeline in which no flush is to be asked for any more, and no proof is owed.
    looked: the partition's progress when it was last found to owe no proof.
    """

    offset: int | None = None
    epoch: int | None = None
    note: str = ""
    ahead: str = ""
    said: TopicPartition | None = None
    stored: int | None = None
    stored_note: str = ""
    settled_in: Timeline | None = None
    looked: tuple[object, ...] | None = None

    def learned(self, offset: int | None, epoch: int | None, note: str) -> None:
        """The broker has acknowledged a commit, or said what is committed."""
        self.offset, self.epoch, self.note = offset, epoch, note
        self.settled_in = None

    def begin_again(self) -> None:
        """The position was set anew: what the application has stored, and what was found settled, counts no more."""
        self.stored, self.stored_note = None, ""
        self.settled_in = None


@dataclass(slots=True, eq=False)
class Earlier:
    """Records at or above the position that are done with already.

    inherited: what an earlier owner has processed beyond the start. given: after an interruption, what the application has
    of the records that are fetched again.
    """

    inherited: Ahead | None = None
    given: Ahead | None = None

    def covers(self, offset: int) -> bool:
        """Whether the record at `offset` is done with, by an earlier owner, or given out already by this one."""
        return (self.inherited is not None and self.inherited.covers(offset)) or (
            self.given is not None and self.given.covers(offset)
        )

    @property
    def upto(self) -> int:
        """At or above it `covers` is False."""
        return max(-1 if self.inherited is None else self.inherited.upto, -1 if self.given is None else self.given.upto)
