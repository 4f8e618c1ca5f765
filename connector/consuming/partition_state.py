"""One partition that this member owns: how far it was fetched, returned, processed and committed.

All offsets are the next one to read. `returned` is what the application has seen, `processed` what it has finished,
`committed` what the broker acknowledged; only the last of them opens gates.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from confluent_kafka import TopicPartition

from ...partitioner.gates.ahead import Ahead, encode_ahead
from ...partitioner.gates.gate import Gate
from ...partitioner.gates.starts import Commit
from ...partitioner.timeline import Timeline
from ..messages import Place, key_of
from .records.batches import Backlog, Batch
from .records.late import Late
from .view import View


class PartitionState:
    """The state of one owned partition. Lives from assignment to revocation; used by the polling thread alone.

    started: its start offset is known. fetching: the client library reads it.
    limit: records at or above it wait behind a closed gate. held: those already fetched. closed: its first closed gate.
    proof_looked: its progress when it was last found to owe no proof.
    record_end: next offset after the last record returned; `returned` may be further, past records that never show
    (transaction markers, aborted and compacted ones), as end-of-partition events tell.
    in_place_end: next offset after the last record returned that was not late.
    held_keys: how many of them each key has, where single keys wait. late: what came out behind later offsets.
    seen_closed: epochs of its gates that were closed while it was owned. let_through: those whose held records have gone.
    announced: the newest epoch whose open gate the application has heard of. unannounced: the gate of which it could not be
    told yet, since its callback raised: nothing behind it is returned.
    note: the application's own metadata of the newest acknowledged commit. stored_note: that of what it has stored.
    assigned_as: what the application has assigned, where it has done so itself.
    settled_in: the timeline in which no flush is to be asked for any more, and no proof is owed.
    founded: a gate's `begins` that a commit must not pass yet.
    ahead_sent, ahead_committed: what the last commit said, and the last acknowledged one, of what lies beyond it.
    inherited: what an earlier owner has processed beyond the start.
    sealed_at: the cut of a partition that nobody reads any more, None for all others.
    released: next offset after the last record that may be returned, late ones left out.
    given: after an interruption, what the application has of the records that are fetched again.
    unfinished: returned, and the application is not back yet.
    wanted: where the application asked to start, a number or one of confluent_kafka's OFFSET_ names; None: by the group.
    flushed: the newest epoch for which the application was asked to flush, and did. What a commit has proven is another
    matter: `committed_epoch`.
    taken: next offset after what the client library has handed over here since it began; -1 for nothing.
    strays_up_to: next offset after the last stray that was counted.
    end_seen, end_seen_at: an end of the log, and a time by which it was known. settled_end: an earlier one: what lies below
    it was written before the newest look at the control topic began.
    """

    __slots__ = (
        "_processed",
        "_returned",
        "ahead_committed",
        "ahead_sent",
        "announced",
        "assigned_as",
        "closed",
        "committed",
        "committed_epoch",
        "end_seen",
        "end_seen_at",
        "eof",
        "fetched",
        "fetching",
        "flushed",
        "founded",
        "given",
        "held",
        "held_keys",
        "in_place_end",
        "inherited",
        "late",
        "let_through",
        "limit",
        "note",
        "partition",
        "paused_by_user",
        "paused_for_hold",
        "proof_looked",
        "record_end",
        "released",
        "sealed_at",
        "seen_closed",
        "settled_end",
        "settled_in",
        "started",
        "stored",
        "stored_note",
        "strays_up_to",
        "taken",
        "topic",
        "unannounced",
        "unfinished",
        "wanted",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.started = self.fetching = False
        self.fetched = self._returned = self._processed = self.record_end = self.in_place_end = 0
        self.late = Late()
        self.held_keys: Counter[bytes | None] = Counter()
        self.seen_closed: set[int] = set()
        self.let_through: set[int] = set()
        self.sealed_at: int | None = None
        self.founded: float = inf
        self.inherited: Ahead | None = None
        self.given: Ahead | None = None
        self.eof = -1
        self.stored: int | None = None
        self.stored_note = ""
        self.assigned_as: TopicPartition | None = None
        self.strays_up_to = 0
        self.taken = self.end_seen = self.settled_end = -1
        self.end_seen_at = -inf
        self.wanted: int | None = None
        self.committed: int | None = None
        self.ahead_sent = self.ahead_committed = ""
        self.committed_epoch: int | None = None
        self.note = ""
        self.settled_in: Timeline | None = None
        self.limit: float = inf
        self.held = Backlog()
        self.released = 0
        self.unfinished = False
        self.paused_by_user = self.paused_for_hold = False
        self.flushed = self.announced = -1
        self.unannounced: Gate | None = None
        self.closed: Gate | None = None
        self.proof_looked: tuple[object, ...] | None = None

    @property
    def place(self) -> Place:
        """(topic, partition)."""
        return self.topic, self.partition

    @property
    def returned(self) -> int:
        """Everything below it was returned. Records that passed a held one do not count: it may lie before them."""
        held = self.held.first if self.held else inf
        return int(min(self._returned, held, self.late.unreturned()))

    @returned.setter
    def returned(self, offset: int) -> None:
        self._returned = offset

    @property
    def processed(self) -> int:
        """Everything below it is done with: what may be committed."""
        held = self.held.first if self.held else inf
        return int(min(self._processed, held, self.late.unprocessed(), self.founded))

    @processed.setter
    def processed(self, offset: int) -> None:
        self._processed = offset

    def learned(self, offset: int, epoch: int | None, note: str) -> None:
        """The broker has acknowledged a commit, or said what is committed."""
        self.committed, self.committed_epoch, self.note = offset, epoch, note
        self.settled_in = None

    def progress(self, view: View) -> tuple[object, ...] | None:
        """All that decides what a commit of it proves. None where that is no matter of a few numbers."""
        if self.late:
            return None
        return (
            view,
            self.closed,
            self.limit,
            self.founded,
            self._processed,
            self._returned,
            self.unfinished,
            self.record_end,
            self.released,
            self.held.first if self.held else -1,
            self.eof,
            self.flushed,
            self.committed,
            self.committed_epoch,
        )

    def start_at(self, offset: int) -> None:
        """Begin (again) at `offset`, with nothing fetched."""
        self.started = True
        self.settled_in = None
        self.fetched = self.returned = self.processed = self.record_end = self.in_place_end = offset
        self.end_seen = self.settled_end = -1
        self.end_seen_at = -inf
        self.late.clear()
        self.held_keys.clear()
        self.let_through = set()
        self.inherited = self.given = None
        self.eof = -1
        self.stored, self.stored_note = None, ""
        self.strays_up_to = 0
        self.held.clear()
        self.released = 0
        self.unfinished = False

    def begin_again(self) -> None:
        """Forget what was fetched and not returned; from `fetched` on it is to be fetched again. May be called twice.

        What the application has stays returned: where single keys wait, that is more than what lies below an offset.
        """
        missing = {offset for offset in self.held.offsets() if offset < self._returned}
        self.late.keep_given(self._returned, missing)
        missing = set(self.late.not_given())
        self.held.clear()
        self.held_keys.clear()
        self.let_through = set()
        self.released = 0
        self.eof = -1
        self.paused_for_hold = False
        self.given = Ahead(self._returned, frozenset(missing)) if missing else None
        self.fetched = min(missing, default=self._returned)

    def is_here(self, offset: int) -> bool:
        """Whether the record at `offset` is done with, by an earlier owner, or given out already by this one."""
        return (self.inherited is not None and self.inherited.covers(offset)) or (
            self.given is not None and self.given.covers(offset)
        )

    @property
    def known_up_to(self) -> int:
        """At or above it `is_here` is False."""
        return max(-1 if self.inherited is None else self.inherited.upto, -1 if self.given is None else self.given.upto)

    @property
    def queued(self) -> bool:
        """Whether records may be returned that were not returned yet."""
        return self.released > self.record_end or self.late.unreturned() < inf

    def skip_tail(self) -> None:
        """Pass what no record shows: only when everything fetched before it was returned."""
        self._returned = max(self._returned, self._shown_up_to())

    def gave(self, offset: int) -> None:
        """A record, or a run of which it is the last, was returned to the application. A late one comes alone.

        May be called again for the same one, when an exception has cut the first call short.
        """
        self.unfinished = True
        if not self.late.has(offset):
            self.in_place_end = max(self.in_place_end, offset + 1)
        self.record_end = max(self.record_end, offset + 1)
        self.returned = max(self._returned, offset + 1)
        self.late.gave(offset, self.record_end)

    def ahead(self, committed: int) -> str:
        """What is processed beyond a commit of `committed`, for its metadata; '' where nothing is."""
        inherited = self.inherited
        upto = self._processed if inherited is None else max(self._processed, inherited.upto)
        if upto <= committed:
            return ""
        waiting = set(self.held.offsets()) | set(self.late)
        if inherited is not None:
            waiting |= {offset for offset in inherited.pending if offset >= self._processed}
        return encode_ahead(Ahead(upto, frozenset(waiting)), committed)

    @property
    def acknowledged(self) -> Commit | None:
        """The newest commit of this partition that the broker has acknowledged, None without one."""
        return None if self.committed is None else Commit(self.committed, self.committed_epoch)

    @property
    def counted(self) -> Commit | None:
        """What of it this member's own gates may count: after a rewind what lies behind is not processed any more."""
        if self.committed is None:
            return None
        epoch = self.committed_epoch
        return Commit(min(self.committed, self.processed), None if epoch is None else min(epoch, self.flushed))

    @property
    def uncommitted(self) -> bool:
        """Whether a commit would say anything new: another position, or more that is processed beyond the same one.

        Without the latter the next owner would repeat all that overtook a record that waits.
        """
        return self.processed != (self.committed or 0) or self.ahead(self.processed) != self.ahead_committed

    def hold_alone(self, record: Batch) -> None:
        """One record waits behind a closed gate where single keys wait."""
        self.held.append(record)
        self.held_keys[key_of(record.message(0))] += 1

    def let_go(self, batch: Batch, late: bool) -> None:
        """Held records may be returned; they leave the queue afterwards. late: one, perhaps behind later offsets."""
        if late:
            self.late.released(batch.last)
            key = key_of(batch.message(0))
            self.held_keys[key] -= 1
            if not self.held_keys[key]:
                del self.held_keys[key]
        else:
            self.released = max(self.released, batch.last + 1)

    def done_up_to(self, offset: int) -> None:
        """The application names a position of its own: all that it was given before it is done with."""
        if not self.late.done_up_to(offset):
            self.processed = self.processed_up_to(offset)
        elif self.in_place_end <= self._processed:
            # A late record's own position. Where nothing that came in its place is unfinished, only late ones lie below it:
            # those not done with hold the position by themselves. Nothing else may follow that would move it.
            self.processed = max(self._processed, self.processed_up_to(offset))

    def done_with_all(self) -> None:
        """The application is done with everything that it was given."""
        self.late.done_with_returned()
        self.processed = self._returned

    def processed_up_to(self, offset: int) -> int:
        """A position that the application named, moved past a tail without records if that is all that follows."""
        return max(offset, self._shown_up_to()) if offset >= self.record_end else offset

    def _shown_up_to(self) -> int:
        """No record that is not returned yet lies below this: up to the end that was seen, or to the gate that holds one.

        What lies before a closed gate may all be gone, compacted or aborted; then no end of partition shows up there. If the
        position stayed before that hole, every gate that waits for it would stay shut, this one in the end.
        """
        if self.queued:
            return -1
        if self.held:
            first = self.held.first
            return first if self.limit == inf else min(first, int(self.limit))
        return self.eof
