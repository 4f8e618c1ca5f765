"""How long the client library may block while nothing comes.

A gate that opens is seen at the end of a block, and so is the epoch that a change ends with. Both come within moments as a
rule, and then each moment counts. What has lasted for long is allowed to be seen later by a fiftieth of that: a change that
waits for a silent writer may take a minute, and all readers of the topic would look for it two hundred times a second.
"""

from __future__ import annotations

# Seconds: while something is about to happen, and else.
_SHORTEST, _LONGEST = 0.005, 0.05
_PART = 0.02


class Patience:
    """The wait of one consumer."""

    def __init__(self) -> None:
        self._awaited: list[object] = []
        self._since = 0.0

    def wait(self, awaited: list[object], now: float) -> float:
        """Seconds. awaited: all that may happen soon; as soon as it is something else, the wait is short again."""
        if not awaited:
            self._awaited = awaited
            return _LONGEST
        if awaited != self._awaited:
            self._awaited, self._since = awaited, now
        return min(_LONGEST, max(_SHORTEST, (now - self._since) * _PART))
