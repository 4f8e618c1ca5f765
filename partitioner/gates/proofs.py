"""Which flush a commit proves, and when a commit is due for its proof alone (KIP-253, "Proposed Changes" 7).

The KIP's members exchange positions; on a stock broker a commit is what others see. Its metadata carries the newest epoch
up to which the application has flushed, since an offset alone does not prove that. What the broker has acknowledged
decides whether a proof is owed, never what a member remembers to have proven: a later commit may have carried an older
epoch, because a gate of the partition seemed closed while the positions of other members were not known yet.
"""

from __future__ import annotations

from ..timeline import Timeline
from .gate import Gate
from .starts import Commit, flushed_epoch


def provable_epoch(timeline: Timeline, partition: int, offset: int, asked: int, closed: Gate | None) -> int:
    """The newest epoch that a commit of `offset` may carry; -1 for none.

    asked: the newest epoch for which the application was asked to flush, and did. closed: the partition's first closed
    gate. A view that was a moment old has let records of keys that never moved pass a gate that it did not know yet; a
    commit past a closed gate carries an epoch from before it.
    """
    reached = min(asked, flushed_epoch(timeline, partition, offset))
    return reached if closed is None or offset <= closed.begins else min(reached, closed.epoch - 1)


def crosses(timeline: Timeline, partition: int, after: int, upto: int) -> bool:
    """Whether keys leave the partition in an epoch above `after`, up to `upto`: somebody may wait for that proof."""
    return after < upto and any(after < e.number <= upto and partition in e.ends for e in timeline.epochs[1:])


def proof_due(timeline: Timeline, partition: int, acknowledged: Commit | None, provable: int) -> bool:
    """Whether the newest acknowledged commit says less than could be proven, so that somebody may wait for the rest.

    True where there is no commit: from the first one on the partition counts as processed up to it.
    """
    if acknowledged is None:
        return True
    known = -1 if acknowledged.epoch is None else acknowledged.epoch
    return crosses(timeline, partition, known, provable)
