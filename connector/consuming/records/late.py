"""Records that were let go behind later offsets of their partition: where single keys are held, others overtake them.

A position says "everything below is done with", so it stays below the oldest of these until that one is done with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from math import inf


class Late:
    """The late records of one partition, by offset, from their release until they are processed.

    Each has the end of what had been returned in offset order when it was returned itself: whoever names a position
    beyond that has seen records that came after it.
    """

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[int, int | None] = {}

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ends)

    def has(self, offset: int) -> bool:
        """Whether it is one of these and not done with."""
        return offset in self._ends

    def released(self, offset: int) -> None:
        """It goes out with the next poll."""
        self._ends[offset] = None

    def gave(self, offset: int, record_end: int) -> None:
        """A record was returned, one of these or not. record_end: behind the highest offset returned so far."""
        if offset in self._ends:
            del self._ends[offset]  # those that were given stand in the order in which they were
            self._ends[offset] = record_end

    def keep_given(self, returned: int, missing: Iterable[int]) -> None:
        """Of the others remember those below `returned` alone, and these as well: they will come once more."""
        self._ends = {o: end for o, end in self._ends.items() if end is not None or o < returned} | dict.fromkeys(
            missing
        )

    def not_given(self) -> Iterator[int]:
        """Those that the application has not seen."""
        return (offset for offset, end in self._ends.items() if end is None)

    def unreturned(self) -> float:
        """The oldest that the application has not seen; inf when there is none."""
        return min((offset for offset, end in self._ends.items() if end is None), default=inf)

    def unprocessed(self) -> float:
        """The oldest that is not done with; inf when there is none."""
        return min(self._ends, default=inf)

    def done_with_returned(self) -> None:
        """The application is done with all that it was given."""
        self._ends = {offset: end for offset, end in self._ends.items() if end is None}

    def done_up_to(self, position: int, processed: int) -> bool:
        """The application names a position: done with are those below it that it was given before.

        processed: all below it that came in its place is done with. True when the position was that of a late record itself,
        and so says nothing of later offsets.
        """
        given = {offset: end for offset, end in self._ends.items() if end is not None}
        own = given.get(position - 1)
        done = {offset for offset, end in given.items() if position > end}
        if own is not None:
            done.add(position - 1)
            before = list(takewhile(lambda offset: offset != position - 1, given))
            # The same position names the place at which the application has failed, if it was given that record before.
            failed = position in before if position in self._ends else processed <= position < own
            if not failed:
                done.update(offset for offset in before if offset < position)
        self._ends = {offset: end for offset, end in self._ends.items() if offset not in done}
        return own is not None

    def clear(self) -> None:
        """Start anew."""
        self._ends.clear()
