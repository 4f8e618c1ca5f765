"""Times of control records by the clock of the broker that appended them.

Two such times can be compared where one leader has given both: the same partition under the same leader epoch. Everything
else is another clock. A leader whose clock is set while it leads gives times that look comparable and are not: what is
decided by stamps alone must have a second line behind it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a leader appended a record (`message.timestamp.type=LogAppendTime`): at_ms of its clock, since 1970."""

    partition: int
    leader_epoch: int
    at_ms: int

    def seconds_until(self, later: Stamp | None) -> float | None:
        """How long after this one `later` was given; None where that cannot be told."""
        if later is None or (later.partition, later.leader_epoch) != (self.partition, self.leader_epoch):
            return None
        return (later.at_ms - self.at_ms) / 1000 if later.at_ms >= self.at_ms else None
