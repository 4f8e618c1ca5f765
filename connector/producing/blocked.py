"""Keys that take no more records until the application knows that one has failed: later ones would overtake it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...partitioner.errors import KeyBlockedError

# Of one topic. Beyond that all of its keys are blocked, by one entry.
_MOST_BYTES = 16 * 1024 * 1024
_ENTRY_BYTES = 200


@dataclass(slots=True)
class _Topic:
    keys: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    bytes: int = 0
    all: str | None = None


class BlockedKeys:
    """The blocked keys of one producer, by topic. Used under its lock. most_bytes: how much a topic's may take."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._topics: dict[str, _Topic] = {}

    def block(self, topic: str, key: bytes, why: str, transaction: int = 0) -> None:
        """Block a key. transaction: in which its record failed."""
        blocked = self._topics.setdefault(topic, _Topic())
        if blocked.all is not None:
            return
        if key not in blocked.keys:
            blocked.bytes += len(key) + _ENTRY_BYTES
        blocked.keys[key] = why, transaction
        if blocked.bytes > self._most_bytes:
            blocked.keys.clear()
            blocked.all = f"records of more keys have failed than are kept in mind; the last: {why}"

    def any(self, topic: str) -> bool:
        """Whether a key of this topic is blocked."""
        return topic in self._topics

    def refuse(self, topic: str, key: bytes) -> None:
        """Raise KeyBlockedError, once, if the key is blocked: with this the application knows."""
        blocked = self._topics.get(topic)
        if blocked is None:
            return
        if blocked.all is not None:
            del self._topics[topic]
            raise KeyBlockedError(topic, blocked.all)
        found = blocked.keys.get(key)
        if found is not None:
            self.unblock(topic, key)
            raise KeyBlockedError(topic, found[0])

    def unblock(self, topic: str, key: bytes) -> None:
        """The application knows."""
        blocked = self._topics.get(topic)
        if blocked is None or blocked.keys.pop(key, None) is None:
            return
        blocked.bytes -= len(key) + _ENTRY_BYTES
        if not blocked.keys and blocked.all is None:
            del self._topics[topic]

    def take(self, topic: str) -> list[tuple[bytes, str]]:
        """Take out what is blocked of a topic, key by key: somebody else keeps it from now on."""
        blocked = self._topics.pop(topic, None)
        return [] if blocked is None else [(key, why) for key, (why, _) in blocked.keys.items()]

    def all_blocked(self, topic: str) -> bool:
        """Whether every key of this topic is blocked."""
        blocked = self._topics.get(topic)
        return blocked is not None and blocked.all is not None

    def forget_transactions(self, first: int) -> None:
        """From this one on they were aborted: none of their records is there, and the application knows."""
        for topic, blocked in list(self._topics.items()):
            for key in [key for key, (_, number) in blocked.keys.items() if number >= first]:
                self.unblock(topic, key)
