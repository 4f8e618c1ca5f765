"""When the gates of a topic are looked at again: when something has moved, and less often where a look takes long."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from .gate_events import Waived
from .gate_state import Place

# A look at a topic's gates costs more the more partitions it has. After one that took a time t the next one waits for
# _BRISK * t where something has moved, and for _CALM * t where nobody tells. One that costs little never waits. Seconds.
_CHEAP, _BRISK, _CALM = 0.0002, 4.0, 20.0
# The gates of a topic with a closed one are looked at so often even if nothing seems to have moved. Seconds.
_AT_LEAST = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """The last look at a topic's gates: when it ended, how long it took, and what it saw of others.

    changes: of what was heard of others. waited: the places of other members that its closed gates wait for. own: those of
    this member.
    """

    at: float
    took: float
    changes: int
    waived: Waived
    waited: frozenset[Place]
    own: frozenset[Place]

    def due(self, now: float, moved: bool, changes: int, waived: Waived, untold: bool) -> bool:
        """Whether another one may find anything new, and this one was not too expensive.

        untold: something may have happened that nobody tells: a scan has ended, or a callback will not raise any more.
        """
        since = now - self.at
        if since >= _AT_LEAST:
            return True
        if moved or self.changes != changes or self.waived != waived:
            return self.took < _CHEAP or since >= _BRISK * self.took
        return untold and (self.took < _CHEAP or since >= _CALM * self.took)


class Looks:
    """The last look at each topic."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}

    def get(self, topic: str) -> Look | None:
        """The last one, None before the first."""
        return self._looks.get(topic)

    def ended(self, topic: str, look: Look) -> None:
        """Another look at the topic is over."""
        self._looks[topic] = look

    def keep(self, topics: Collection[str]) -> None:
        """Forget all other topics."""
        self._looks = {topic: look for topic, look in self._looks.items() if topic in topics}

    def wait_for(self, places: Iterable[Place]) -> bool:
        """Whether a closed gate waits for what this member has yet to do on one of these places of its own."""
        return any(place in look.own for place in places for look in self._looks.values())

    def waited(self) -> frozenset[Place]:
        """The places of other members that closed gates wait for."""
        return frozenset(place for look in self._looks.values() for place in look.waited)


#: What there is for a topic without waivers.
NO_WAIVERS: Waived = frozenset()
