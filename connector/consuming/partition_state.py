"""One partition that this member owns: how far it was fetched, returned, processed and committed.

All offsets are the next one to read. `returned` is what the application has seen, `processed` what it has finished,
`committed` what the broker acknowledged; only the last of them opens gates.
"""

from __future__ import annotations

from math import inf

from ...partitioner.gates.ahead import Ahead, encode_ahead
from ...partitioner.gates.gate_state import GateState
from ...partitioner.gates.starts import Commit
from ..messages import Place, key_of
from .partition_parts import CommitState, Earlier, FetchState, Seen
from .records.batches import Backlog, Batch
from .records.late import Late
from .view import View


class PartitionState:
    """See the module.

    started: its start offset is known. held: records that were fetched and wait. late: what came out behind later offsets.
    record_end: next offset after the last record returned; `returned` may be further, past records that never show
    (transaction markers, aborted and compacted ones), as end-of-partition events tell.
    in_place_end: next offset after the last record returned that was not late.
    released: next offset after the last record that may be returned, late ones left out.
    unfinished: returned, and the application is not back yet.
    """

    __slots__ = (
        "_processed",
        "_returned",
        "commits",
        "earlier",
        "fetch",
        "fetched",
        "gates",
        "held",
        "in_place_end",
        "late",
        "partition",
        "record_end",
        "released",
        "seen",
        "started",
        "topic",
        "unfinished",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.fetch, self.gates, self.commits = FetchState(), GateState(), CommitState()
        self.seen, self.earlier = Seen(), Earlier()
        self.started = self.unfinished = False
        self.fetched = self._returned = self._processed = self.record_end = self.in_place_end = self.released = 0
        self.held, self.late = Backlog(), Late()

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
        return int(min(self._processed, held, self.late.unprocessed(), self.gates.founded))

    @processed.setter
    def processed(self, offset: int) -> None:
        self._processed = offset

    def progress(self, view: View) -> tuple[object, ...] | None:
        """All that decides what a commit of it proves. None where that is no matter of a few numbers."""
        if self.late:
            return None
        return (
            view,
            self.gates.closed,
            self.gates.limit,
            self.gates.founded,
            self._processed,
            self._returned,
            self.unfinished,
            self.record_end,
            self.released,
            self.held.first if self.held else -1,
            self.seen.eof,
            self.gates.flushed,
            self.commits.offset,
            self.commits.epoch,
        )

    def start_at(self, offset: int) -> None:
        """Begin (again) at `offset`, with nothing fetched."""
        self.started = True
        self.fetched = self.returned = self.processed = self.record_end = self.in_place_end = offset
        self.released, self.unfinished = 0, False
        self.held.clear()
        self.late.clear()
        self.seen, self.earlier = Seen(), Earlier()
        self.gates.begin_again()
        self.commits.begin_again()

    def begin_again(self) -> None:
        """Forget what was fetched and not returned; from `fetched` on it is to be fetched again. May be called twice.

        What the application has stays returned: where single keys wait, that is more than what lies below an offset.
        """
        missing = {offset for offset in self.held.offsets() if offset < self._returned}
        self.late.keep_given(self._returned, missing)
        missing = set(self.late.not_given())
        self.held.clear()
        self.gates.begin_again()
        self.released = 0
        self.seen.eof, self.seen.untold = -1, None
        self.fetch.paused_for_hold = False
        self.earlier.given = Ahead(self._returned, frozenset(missing)) if missing else None
        self.fetched = min(missing, default=self._returned)

    @property
    def backlog(self) -> int:
        """How many records may lie in the log behind what was fetched, as far as its end was seen."""
        return max(0, self.seen.end - self.fetched)

    @property
    def owes_end(self) -> bool:
        """Whether the application is to hear now of the end of the partition that came behind held records."""
        return self.seen.untold is not None and not self.held

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
        inherited = self.earlier.inherited
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
        commits = self.commits
        return None if commits.offset is None else Commit(commits.offset, commits.epoch)

    @property
    def counted(self) -> Commit | None:
        """What of it this member's own gates may count: after a rewind what lies behind is not processed any more."""
        commits = self.commits
        if commits.offset is None:
            return None
        epoch = None if commits.epoch is None else min(commits.epoch, self.gates.flushed)
        return Commit(min(commits.offset, self.processed), epoch)

    @property
    def uncommitted(self) -> bool:
        """Whether a commit would say anything new: another position, or more that is processed beyond the same one.

        Without the latter the next owner would repeat all that overtook a record that waits.
        """
        return self.processed != (self.commits.offset or 0) or self.ahead(self.processed) != self.commits.ahead

    def hold_alone(self, record: Batch) -> None:
        """One record waits behind a closed gate where single keys wait."""
        self.held.append(record)
        self.gates.hold_key(key_of(record.message(0)))

    def let_go(self, batch: Batch, late: bool) -> None:
        """Held records may be returned; they leave the queue afterwards. late: one, perhaps behind later offsets."""
        if late:
            self.late.released(batch.last)
            self.gates.free_key(key_of(batch.message(0)))
        else:
            self.released = max(self.released, batch.last + 1)

    def done_up_to(self, offset: int) -> None:
        """The application names a position of its own: all that it was given before it is done with."""
        if not self.late.done_up_to(offset, self._processed):
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
        """A position that the application named, moved past what it will not be given, if nothing else follows.

        That is what an earlier owner has processed, and a tail without records.
        """
        if offset < self.record_end:
            return offset
        inherited = self.earlier.inherited
        return max(offset, self._shown_up_to(), -1 if inherited is None else inherited.first_open(offset))

    def _shown_up_to(self) -> int:
        """No record that is not returned yet lies below this: up to the end that was seen, or to the gate that holds one.

        What lies before a closed gate may all be gone, compacted or aborted; then no end of partition shows up there. If the
        position stayed before that hole, every gate that waits for it would stay shut, this one in the end.
        """
        if self.queued:
            return -1
        if self.held:
            first = self.held.first
            return first if self.gates.limit == inf else min(first, int(self.gates.limit))
        return self.seen.eof
