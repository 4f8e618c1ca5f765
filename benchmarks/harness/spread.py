"""Medians and quartiles of repeated runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeats of one figure: the median, the quartiles (the middle half lies between them), the extremes, all of them."""

    median: float
    low: float
    high: float
    least: float
    most: float
    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Raises ValueError for no samples: a measure that measured nothing has no figure."""
        if not samples:
            raise ValueError("no samples: nothing was measured")
        return cls(
            median(samples),
            percentile(samples, 0.25),
            percentile(samples, 0.75),
            min(samples),
            max(samples),
            tuple(samples),
        )


def percentile(samples: Sequence[float], share: float) -> float:
    """The `share` percentile (0 to 1), linear between neighbours. Raises ValueError for no samples."""
    if not samples:
        raise ValueError("no samples: nothing was measured")
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
