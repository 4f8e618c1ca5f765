"""Where slots of the control topics were found to end, and whom an answer serves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..control.control_topics import Slot


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """One leader's answer. asked: when the question began. read: up to where the slot had been handed out by then."""

    asked: float
    end: int
    read: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The answers for some slots. asked: since when at the latest they hold: the begin of the oldest question."""

    asked: float
    known: Mapping[Slot, KnownEnd]

    @property
    def behind(self) -> tuple[Slot, int, int] | None:
        """(slot, what was read of it before the question, where it ends): of a leader that has less than was read."""
        for slot, known in self.known.items():
            if known.end < known.read:
                return slot, known.read, known.end
        return None


class KnownEnds:
    """The newest answer of each slot. Whoever asks gets it if its question is young enough for them.

    It counts when a question began, never when its answer came. What was written in between may lie beyond the answer, and
    whoever has to know of all that stood at some moment would be told that there is no more: a reader would take its view
    for newer than it is and deliver records of a key that has moved.

    What was read is kept with the answer, as it was before the question: to compare the end with what has been read since
    says nothing, and without the comparison the answer of a leader that is behind would be good for everybody but who asked.
    """

    def __init__(self) -> None:
        self._known: dict[Slot, KnownEnd] = {}

    def keep(self, asked: float, ends: Mapping[Slot, int], read: Mapping[Slot, int]) -> None:
        """Answers to one question. An older question's that comes later changes nothing.

        read: taken before the question was sent, and `asked` as well.
        """
        for slot, end in ends.items():
            known = self._known.get(slot)
            if known is None or known.asked < asked:
                self._known[slot] = KnownEnd(asked, end, read.get(slot, 0))

    def serving(self, slots: Collection[Slot], since: float) -> Ends | None:
        """The answers, if the question for each of these slots began at `since` or later; else None."""
        known = {slot: self._known[slot] for slot in slots if slot in self._known}
        asked = min((each.asked for each in known.values()), default=since)
        return None if len(known) < len(set(slots)) or asked < since else Ends(asked, known)
