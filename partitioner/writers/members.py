"""The in-sync writer set, folded from `_keyorder_writers` (KIP-903, mapped to writers).

What the ISR is to a partition, this set is to a change: a member is admitted and counted only under its latest
incarnation, and anything that an older one says is ineligible. The fold is the same for live and recovering readers;
they differ only in `now`, the reader's own clock, from which leases are counted: always at or after the writer's own
count, so the reader never believes a lease over that the writer still holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..records.control_records import Lease, LeaseState, Ready
from ..stamps import Stamp

# What two clocks that run at different rates may disagree by over a lease, and the rounding of stamps.
_STAMP_MARGIN_S = 2.0


@dataclass(slots=True)
class Member:
    """One join of one writer, as this reader knows it. Times are seconds of the reader's clock.

    stamp: when its newest lease record was appended, None where the broker does not say.
    """

    lease: Lease
    incarnation: int
    renewed_at: float
    stamp: Stamp | None = None
    ready: dict[str, Ready] = field(default_factory=dict)

    @property
    def ends_at(self) -> float:
        """When the lease is over for this reader: counted from its reading, so never too early."""
        return self.renewed_at + self.lease.lease_ms / 1000

    def was_over(self, at: Stamp | None, wall_ms: int) -> bool:
        """Whether the lease was over when a record of the reader's own got the stamp `at`. False where that cannot be told.

        The writer counts from before it sent its renewal, so from before its stamp. Two clocks have to say so: the
        leader's, which has stamped both records, and the reader's wall clock (milliseconds since 1970).
        """
        elapsed = None if self.stamp is None else self.stamp.seconds_until(at)
        if self.stamp is None or elapsed is None:
            return False
        needed = self.lease.lease_ms / 1000 + _STAMP_MARGIN_S
        return elapsed >= needed and (wall_ms - self.stamp.at_ms) / 1000 >= needed

    def expelled(self) -> Lease:
        """The record that ends this join from outside."""
        return replace(
            self.lease, state=LeaseState.EXPELLED, incarnation=self.incarnation, sequence=self.lease.sequence + 1
        )


class WriterSet:
    """Every join that has neither left nor been expelled, by nonce."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._gone: set[str] = set()
        self._joins: dict[tuple[str, str | None], dict[str, int]] = {}
        self._proven: dict[str, int] = {}
        self.ineligible = 0

    def apply(self, record: Lease | Ready, offset: int, now: float, stamp: Stamp | None = None) -> None:
        """Fold in one record, read at `offset` of its partition at `now`. stamp: when it was appended."""
        if isinstance(record, Lease):
            self._apply_lease(record, offset, now)
            renewed = self._members.get(record.nonce)
            if renewed is not None and renewed.lease == record:
                renewed.stamp = stamp
            return
        member = self._members.get(record.nonce)
        if member is None or self._superseded(member):
            # KIP-903: a report of a stale incarnation completes nothing.
            self.ineligible += 1
            return
        known = member.ready.get(record.topic)
        if known is None or known.epoch <= record.epoch:
            member.ready[record.topic] = record

    def _apply_lease(self, lease: Lease, offset: int, now: float) -> None:
        if lease.proven and lease.transactional_id and lease.incarnation is not None:
            known = self._proven.get(lease.transactional_id, -1)
            self._proven[lease.transactional_id] = max(known, lease.incarnation)
        if lease.transactional_id and lease.took_id_after > self._proven.get(lease.transactional_id, -1):
            self._proven[lease.transactional_id] = lease.took_id_after
        if lease.state in (LeaseState.LEFT, LeaseState.EXPELLED):
            self._members.pop(lease.nonce, None)
            self._gone.add(lease.nonce)
            if lease.incarnation is not None:
                self._note_join(lease, lease.incarnation)
            return
        if lease.nonce in self._gone:
            self.ineligible += 1
            return
        member = self._members.get(lease.nonce)
        if member is not None and lease.sequence < member.lease.sequence:
            # A retry's copy of an older record. Believed, it would take the topics back that were joined since.
            return
        if member is None:
            # A later record carries the incarnation; only the JOIN itself is where it stands.
            incarnation = offset if lease.incarnation is None else lease.incarnation
            self._members[lease.nonce] = Member(lease, incarnation, now)
        else:
            member.lease, member.renewed_at = lease, now
            if lease.incarnation is not None:
                member.incarnation = lease.incarnation
        self._note_join(lease, self._members[lease.nonce].incarnation)

    def _note_join(self, lease: Lease, incarnation: int) -> None:
        self._joins.setdefault(lease.identity, {})[lease.nonce] = incarnation

    def _superseded(self, member: Member) -> bool:
        # By the newest join ever seen: that it left since does not make an older one eligible again.
        return max(self._joins[member.lease.identity].values()) > member.incarnation

    def live(self, topic: str) -> Iterator[Member]:
        """The members that may write to `topic`, superseded joins included until their own lease is over."""
        return (m for m in self._members.values() if topic in m.lease.topics)

    def get(self, nonce: str) -> Member | None:
        """The member of that join, or None once it left or was expelled."""
        return self._members.get(nonce)

    def is_fenced(self, nonce: str) -> bool:
        """Whether another writer under the same transactional id has proven that it took it later.

        It knew where the log ended before it took the id, and this join lies below: whoever joins has taken the id. Or:
        A writer joins after `init_transactions()`. So this one took the id before it joined, the other wrote under it
        after it had joined, and that was later (all joins under one id stand in one partition): whatever this one still
        sends is rejected by the broker.
        """
        member = self._members.get(nonce)
        if member is None or not member.lease.transactional_id:
            return False
        return self._proven.get(member.lease.transactional_id, -1) > member.incarnation

    def is_ready(self, nonce: str, topic: str, epoch: int) -> bool:
        """Whether that join is READY for this attempt, or gone: a writer leaves with nothing in flight."""
        member = self._members.get(nonce)
        if member is None:
            return nonce in self._gone
        ready = member.ready.get(topic)
        return ready is not None and ready.epoch == epoch and not self._superseded(member)

    def acknowledged(self, topic: str, epoch: int) -> dict[int, int]:
        """{origin: offset} the highest that any READY of this attempt reports as acknowledged."""
        highest: dict[int, int] = {}
        for member in self._members.values():
            ready = member.ready.get(topic)
            if ready is not None and ready.epoch == epoch:
                for q, offset in ready.acknowledged.items():
                    highest[q] = max(highest.get(q, 0), offset)
        return highest
