"""When a group's position of a partition is worth a report (KIP-253, "Proposed Changes" 7).

The KIP's members exchange positions; on a stock broker a report is a commit that carries the proof of the flush. The
rule is the same: tell what somebody may wait for, and nothing else.
"""

from __future__ import annotations


class PositionReporter:
    """The rule for one partition. Make one when the partition is assigned.

    due() is true when the position was never reported, when it has passed a cut that it had not passed at the last
    report, or when it has grown since and stands at the high watermark. A true answer counts as the report; call `lost()`
    when the report failed after all.
    """

    __slots__ = ("_before", "_fences", "_position")

    def __init__(self) -> None:
        self._position: int | None = None
        self._fences = 0
        self._before: tuple[int | None, int] = (None, 0)

    def due(self, position: int, high_watermark: int, fences_passed: int) -> bool:
        """Whether to report `position` now.

        fences_passed: how many of the partition's cuts lie at or below `position`. A cut may come to lie below a position
        that stands still: that is reported, since the offset alone does not prove that the application has flushed.
        A position that fell back (a rewind) is reported too, since others believe the higher one.
        """
        known = self._position
        if known is not None:
            crossed = fences_passed > self._fences
            at_end = position > known and position == high_watermark
            if position >= known and not crossed and not at_end:
                return False
        self._before = (known, self._fences)
        self._position, self._fences = position, fences_passed
        return True

    def lost(self) -> None:
        """The last report did not arrive: it is due again."""
        self._position, self._fences = self._before
