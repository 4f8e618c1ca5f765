"""How long the client library may block while nothing comes.

A gate that opens is seen at the end of a block, and so is the epoch that a change ends with. Both come within moments as a
rule, and then each moment counts, in each member that takes part in a hand-over; also when they have just come, since what
follows from them, such as the proof of a new epoch, may be seen to in the next turn only. A change also stops the flow of
records, maybe before it is seen itself: a reader that has just had some looks soon. What has lasted for long is allowed to be
seen later by a fiftieth of that: a change that waits for a silent writer may take a minute, and all readers of the topic would
look for it a thousand times a second.
"""

from __future__ import annotations

# Seconds: while something is about to happen, while records may have been stopped by a change, and else.
_SHORTEST, _SHORT, _LONGEST = 0.001, 0.005, 0.05
_PART = 0.02


class Patience:
    """The wait of one consumer."""

    def __init__(self) -> None:
        self._awaited: list[object] = []
        self._since = self._came = float("-inf")

    def came(self, now: float) -> None:
        """There were records."""
        self._came = now

    def wait(self, awaited: list[object], now: float) -> float:
        """Seconds. awaited: all that may happen soon; as soon as it is something else, the wait is short again."""
        if awaited != self._awaited:
            self._awaited, self._since = awaited, now
        if not awaited:
            if now - self._since < _LONGEST:
                return _SHORTEST
            return _SHORT if now - self._came < _LONGEST else _LONGEST
        return min(_LONGEST, max(_SHORTEST, (now - self._since) * _PART))
