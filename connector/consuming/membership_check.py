"""A process that stood still may have lost its partitions: what it gives out then comes after what their new owner did.

The group gives a member up when it has said nothing for a session. The process that wakes does not know: the library's
next heartbeat will say so, but records that were fetched before lie ready. So they wait until the group has confirmed
the membership, by taking a commit that it refuses to anybody else (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, a stale epoch).
"""

from __future__ import annotations

import logging

from .. import clock
from .assignment import Assignment
from .committing import Committer
from .partition_state import PartitionState

# Below the shortest session that brokers allow by default: group.min.session.timeout.ms is 6 000.
_SILENCE = 5.0
_ASK_AGAIN = 0.1
_LOG = logging.getLogger("keyorder.consumer")


class MembershipCheck:
    """Casts doubt on the membership when nobody was there for long. Used by one thread at a time.

    Nobody: the polling thread was away, or it did not poll the client library, which then leaves the group as well. What is
    assigned before the group has confirmed the membership is in doubt too: it may come of a rebalance that the library had
    taken part in meanwhile, and that is over.

    Being away may also mean that the application took its time: then the confirmation costs one request.
    """

    def __init__(self, assignment: Assignment, commits: Committer) -> None:
        self._assignment, self._commits = assignment, commits
        self._unconfirmed = False
        self._seen = self._served = clock.now()
        self._ask_at = 0.0

    def look(self, now: float) -> None:
        """The polling thread is here, at `now`."""
        if now - self._seen >= _SILENCE:
            self._doubt(now, now - self._seen)
        self._seen = now

    def served(self, now: float) -> None:
        """The client library is polled, at `now`, or its poll has returned."""
        if now - self._served >= _SILENCE:
            self._doubt(now, now - self._served)
        self._served = now

    def _doubt(self, now: float, seconds: float) -> None:
        if self._assignment.owned and not self._unconfirmed:
            _LOG.info("nobody polled for %.1f s: records wait until the group has confirmed the membership", seconds)
        self._unconfirmed = True
        self._ask_at = now

    def _readable(self) -> list[PartitionState]:
        return [owned for owned in self._assignment.owned.values() if owned.started]

    @property
    def in_doubt(self) -> bool:
        """Whether something is read that may be another member's by now. What was not started yet gives nothing out."""
        return self._unconfirmed and bool(self._readable())

    def ask(self, now: float) -> None:
        """Ask the group before the library is polled, where there is doubt: from a refusal the library learns of the loss.

        Else a rebalance that has been waiting since then would be told as one in which positions can still be committed.
        """
        if self.in_doubt and now >= self._ask_at:
            self._commits.confirms(self._readable())

    def settle(self, now: float) -> bool:
        """Ask the group, ten times a second at most. True when it has confirmed. Raises as a commit."""
        if now < self._ask_at:
            return False
        if self._commits.confirms(self._readable()):
            self._unconfirmed = False
            return True
        self._ask_at = clock.now() + _ASK_AGAIN
        return False
