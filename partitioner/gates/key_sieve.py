"""Which held records of a partition may go where single keys wait: looked through once, in their order."""

from __future__ import annotations

from collections.abc import Callable


class KeySieve:
    """A record goes if nothing of its key waits before it, and `entered`: the gate is open by which its key came."""

    __slots__ = ("_entered", "_waiting")

    def __init__(self, entered: Callable[[bytes, int], bool]) -> None:
        self._entered = entered
        self._waiting: set[bytes] = set()

    def goes(self, key: bytes | None, offset: int) -> bool:
        """Whether this one goes; what does not go keeps the later ones of its key."""
        if key is None:
            return True
        if key not in self._waiting and self._entered(key, offset):
            return True
        self._waiting.add(key)
        return False
