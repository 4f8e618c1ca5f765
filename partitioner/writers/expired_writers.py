"""Which records of writers that are gone may be erased, so that `_keyorder_writers` does not grow with every process.

Each join has a key of its own, so the log cleaner keeps the last record of every writer that ever was. A controller that
stays erases them by tombstones. Only the reader's own clock counts: a living writer renews well within its lease, so one
whose records have not changed for much longer is gone or frozen, and a frozen one finds its own lease over and joins anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..records.control_records import Lease, LeaseState, Ready

# Nothing is erased before so many lengths of its lease: the margin is for clocks that run apart.
_LEASES = 4


@dataclass(slots=True)
class _Join:
    """One join of one writer: its last lease record, and its READYs. since: when the last of these was read."""

    since: float
    partition: int
    writer: str
    lease_key: bytes | None = None
    lease: Lease | None = None
    incarnation: int = -1
    readies: set[bytes] = field(default_factory=set)


class ExpiredWriters:
    """Every join that has a record. Feed it all records of the writers' topic in order; see `due`.

    quiet_s: how long the records of a join must have stood unchanged.
    """

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._joins: dict[str, _Join] = {}
        self._nonce_of: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._joins)

    def take(self, key: bytes, record: Lease | Ready | None, partition: int, offset: int, now: float) -> None:
        """One record was read there at `now`, seconds of the reader's clock; None is a tombstone."""
        if record is None:
            self._drop(key)
            return
        join = self._joins.setdefault(record.nonce, _Join(now, partition, record.writer))
        join.since = now
        self._nonce_of[key] = record.nonce
        if isinstance(record, Ready):
            join.readies.add(key)
            return
        join.lease_key, join.lease = key, record
        if record.incarnation is not None:
            join.incarnation = record.incarnation
        elif join.incarnation < 0:
            join.incarnation = offset  # of the JOIN, where it was read first

    def due(self, now: float) -> Iterator[tuple[int, bytes]]:
        """(partition, key) of every record that may be erased, a join's READYs before its lease.

        The joins of one writer, or under one transactional id, go oldest first: an older one must not seem the newest.
        """
        by_name: dict[tuple[int, str], list[_Join]] = {}
        for join in self._joins.values():
            name = join.lease.transactional_id if join.lease is not None else None
            by_name.setdefault((join.partition, name or join.writer), []).append(join)
        for (partition, _), joins in by_name.items():
            joins.sort(key=lambda join: join.incarnation)
            for number, join in enumerate(joins):
                if not self._forgettable(join, joins[number + 1 :], now):
                    break
                for key in sorted(join.readies):
                    yield partition, key
                if join.lease_key is not None:
                    yield partition, join.lease_key

    def _forgettable(self, join: _Join, later: list[_Join], now: float) -> bool:
        lease = join.lease
        if lease is None:
            return now - join.since >= self._quiet_s
        if now - join.since < max(self._quiet_s, _LEASES * lease.lease_ms / 1000):
            return False
        if lease.state in (LeaseState.LEFT, LeaseState.EXPELLED) or not lease.transactional_id:
            return True
        # A crashed transactional writer is fenced by the change that expels it, or by who has its id since.
        return any(o.lease and o.lease.proven and o.lease.transactional_id == lease.transactional_id for o in later)

    def _drop(self, key: bytes) -> None:
        nonce = self._nonce_of.pop(key, None)
        join = self._joins.get(nonce) if nonce is not None else None
        if nonce is None or join is None:
            return
        join.readies.discard(key)
        if key == join.lease_key:
            join.lease_key = join.lease = None
        if not join.readies and join.lease is None:
            del self._joins[nonce]
