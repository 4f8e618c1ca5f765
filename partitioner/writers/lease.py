"""A writer's own side of its lease: when it may send, and when it must stop.

All times are seconds of one clock that counts through suspend. The rules, each there because a simpler one lost order:

- a lease counts from *before* its record was sent, and only once the writer has read that record back;
- a renewal counts only if it is read back while the lease that it extends still runs: a later one may lie behind an
  EXPEL and a COMMIT that the writer has not read yet;
- a lapse is final for its join. The writer may join again, under a new nonce, with nothing in flight;
- a record is handed to the client library only while `now + delivery timeout + margin < lease end`, since the library
  may retry it for that long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ..errors import ConfigError
from ..records.control_records import Lease, LeaseState


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long a lease runs, how often it is renewed, and the client library's delivery timeout. Seconds.

    Raises ConfigError unless renew_interval + delivery_timeout + margin < lease.
    """

    lease: float = 45.0
    renew_interval: float = 10.0
    delivery_timeout: float = 20.0
    margin: float = 2.0

    def __post_init__(self) -> None:
        used = self.renew_interval + self.delivery_timeout + self.margin
        if min(self.lease, self.renew_interval, self.delivery_timeout) <= 0 or used >= self.lease:
            raise ConfigError(
                "keyorder.lease.ms",
                f"a lease of {self.lease:g} s is not longer than keyorder.lease.renew.interval.ms + delivery.timeout.ms + "
                f"margin ({self.renew_interval:g} + {self.delivery_timeout:g} + {self.margin:g} s)",
                "raise the lease, or lower delivery.timeout.ms",
            )


class Standing(Enum):
    """Where a writer stands. Only a LIVE one sends."""

    OUT = "OUT"
    JOINING = "JOINING"
    LIVE = "LIVE"
    LAPSED = "LAPSED"
    SUPERSEDED = "SUPERSEDED"
    CLOSED = "CLOSED"


class LeaseKeeper:
    """One writer's lease. Methods take `now` and return the record to write, if there is one."""

    def __init__(
        self,
        writer: str,
        terms: LeaseTerms,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 0,
    ) -> None:
        self.writer, self.terms = writer, terms
        self.standing = Standing.OUT
        self.nonce = ""
        self.incarnation: int | None = None
        self.confirmed: frozenset[str] = frozenset()
        self.send_until = float("-inf")
        self._transactional_id, self._transaction_timeout_ms = transactional_id, transaction_timeout_ms
        self._topics: tuple[str, ...] = ()
        self._sequence = 0
        self._sent: dict[int, tuple[float, frozenset[str]]] = {}  # when, and the topics
        self._ends = float("-inf")
        self._renewed = float("-inf")
        self._joins: dict[str, int] = {}
        self.proven = False
        self.took_id_after = -1

    def join(self, nonce: str, topics: Iterable[str], now: float) -> Lease:
        """Begin anew under `nonce`. To be called with nothing in flight."""
        if self.incarnation is not None:
            self._joins[self.nonce] = self.incarnation
        self.standing = Standing.JOINING
        self.nonce, self.incarnation = nonce, None
        self._topics = tuple(sorted(topics))
        self._sequence, self._sent, self.confirmed = 0, {}, frozenset()
        self.proven = False
        self._ends = self.send_until = float("-inf")
        return self._record(LeaseState.JOIN, now)

    def renew(self, now: float, topics: Iterable[str] | None = None, due: bool = False) -> Lease | None:
        """The renewal to write: when one is due, when it is asked for, or when the topics grew. None otherwise."""
        if self.standing is not Standing.LIVE:
            return None
        grown = tuple(sorted(topics)) if topics is not None else self._topics
        if grown == self._topics and not due and now - self._renewed < self.terms.renew_interval:
            return None
        self._topics = grown
        return self._record(LeaseState.LIVE, now)

    def acknowledged(self) -> None:
        """The broker has acknowledged a record that was sent under this join; the next lease record says so."""
        self.proven = self.standing is Standing.LIVE

    def lost_join(self) -> None:
        """A record of this join could not be written. Before the join was read back, it is better begun anew."""
        if self.standing is Standing.JOINING:
            self.standing = Standing.OUT

    def leave(self, now: float) -> Lease | None:
        """The writer's own end, with nothing in flight. None when it had not joined."""
        joined = self.standing in (Standing.LIVE, Standing.LAPSED, Standing.JOINING)
        self.standing, self.send_until = Standing.CLOSED, float("-inf")
        return self._record(LeaseState.LEFT, now) if joined else None

    def read(self, lease: Lease, offset: int, now: float) -> None:
        """Take in a record of this writer's id, read from the writers' topic at `now`."""
        self.tick(now)
        if lease.nonce != self.nonce:
            # A JOIN that a retry wrote twice stands where it was read first, for this reader as for the controller.
            theirs = self._joins.get(lease.nonce, offset) if lease.incarnation is None else lease.incarnation
            self._joins[lease.nonce] = theirs
        if self.standing not in (Standing.JOINING, Standing.LIVE):
            return
        if lease.nonce != self.nonce:
            ended = lease.state in (LeaseState.LEFT, LeaseState.EXPELLED)
            if not ended and self.incarnation is not None and theirs > self.incarnation:
                self.standing, self.send_until = Standing.SUPERSEDED, float("-inf")
            return
        if lease.state in (LeaseState.EXPELLED, LeaseState.LEFT):
            self.standing, self.send_until = Standing.LAPSED, float("-inf")
            return
        sent = self._sent.get(lease.sequence)
        if sent is None:
            return
        for older in [s for s in self._sent if s <= lease.sequence]:
            del self._sent[older]
        if lease.state is LeaseState.JOIN and self.incarnation is None:
            self.incarnation = offset
            self.standing = Standing.LIVE
        self._ends = sent[0] + self.terms.lease
        self.send_until = self._ends - self.terms.delivery_timeout - self.terms.margin
        # What a later record does not name any more is not waited for by whoever has read that one.
        self.confirmed = frozenset(lease.topics).intersection(*(topics for _, topics in self._sent.values()))
        self.tick(now)

    def tick(self, now: float) -> None:
        """Let time pass: a lease that ran out is a lapse. A JOIN that is not read back within a lease lapses too."""
        over = now >= self._ends if self.standing is Standing.LIVE else now >= self._renewed + self.terms.lease
        if self.standing in (Standing.LIVE, Standing.JOINING) and over:
            self.standing, self.send_until = Standing.LAPSED, float("-inf")

    def next_timer(self) -> float:
        """When `renew` or `tick` have something to do next; infinity when nothing comes by itself."""
        if self.standing is Standing.JOINING:
            return self._renewed + self.terms.lease
        if self.standing is Standing.LIVE:
            return min(self._renewed + self.terms.renew_interval, self._ends)
        return float("inf")

    def _record(self, state: LeaseState, now: float) -> Lease:
        self._sequence += 1
        named = frozenset(self._topics)
        self._sent[self._sequence], self._renewed = (now, named), now
        self.confirmed &= named
        return Lease(
            writer=self.writer,
            nonce=self.nonce,
            state=state,
            incarnation=self.incarnation,
            lease_ms=round(self.terms.lease * 1000),
            sequence=self._sequence,
            topics=self._topics,
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            proven=self.proven,
            took_id_after=self.took_id_after,
        )
