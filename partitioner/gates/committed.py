"""What a group has committed, by this member and by others, and which gates are open at that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..timeline import Timeline
from .early import Position
from .gate import Opened
from .gate_events import Heard, TopicView, Waived
from .gate_state import GatedPartition, Place
from .starts import Commit, proven_epoch, proven_position


class Committed:
    """What counts as committed for the gates of one reader.

    owned: its partitions; kept by the driver, and only read here. heard: of the others. listens: the application hears of
    keys that come and go, so that a gate asks for proven flushes too.
    """

    def __init__(self, owned: Mapping[Place, GatedPartition]) -> None:
        self._owned = owned
        self.heard = Heard()
        self.listens = False

    def commit(self, topic: str, q: int) -> Commit | None:
        """What counts as committed on `q`, by this member or another.

        Of an own partition too what the broker has acknowledged, not what was returned: if that opened a gate, a crash would
        give the old record out again, after the new one.
        """
        owned = self._owned.get((topic, q))
        return self.heard.commits.get((topic, q)) if owned is None or not owned.started else owned.counted

    def position(self, topic: str, q: int) -> int:
        """What the group has committed on `q`, acknowledged; 0 without a commit."""
        commit = self.commit(topic, q)
        return 0 if commit is None else commit.offset

    def known(self, topic: str, q: int) -> int | None:
        """The same; None where nobody has said yet."""
        owned = self._owned.get((topic, q))
        if (owned is None or not owned.started) and (topic, q) not in self.heard.answered:
            return None
        return self.position(topic, q)

    def known_of(self, topic: str) -> Position:
        """`known` of the partitions of one topic."""
        return partial(self.known, topic)

    def proven(self, timeline: Timeline, q: int) -> int:
        """`position`, with callbacks only as far as the flush is proven; for people."""
        if not self.listens:
            return self.position(timeline.topic, q)
        return proven_position(timeline, q, self.commit(timeline.topic, q))

    def opened(self, topic: str, view: TopicView, waived: Waived) -> Opened:
        """Which gates are open at what the group has committed; with callbacks also by what is proven as flushed."""
        proven: Callable[[int], float] | None = None
        if self.listens:
            proven = partial(self._proven_epoch, topic)
        return view.gates.open_now(partial(self.position, topic), waived, proven)

    def _proven_epoch(self, topic: str, q: int) -> float:
        return proven_epoch(self.commit(topic, q))

    def forget(self, topic: str) -> None:
        """What others have said of the topic counts no more."""
        heard = self.heard
        self.heard = Heard(
            {place: commit for place, commit in heard.commits.items() if place[0] != topic},
            frozenset(place for place in heard.answered if place[0] != topic),
            heard.changes,
        )
