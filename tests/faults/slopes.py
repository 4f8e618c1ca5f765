"""How fast a series of samples grows: a line by least squares, and how sure its slope is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

_Z = NormalDist().inv_cdf(0.975)
FEWEST = 8  # samples that a line is drawn through


@dataclass(frozen=True)
class Slope:
    """Growth per hour: the estimate, and where it lies with a probability of 95 %. hours: how long was looked at."""

    value: float
    low: float
    high: float
    hours: float


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope | None:
    """The slope of a line through the samples; None where there are too few of them.

    Samples that follow each other are much alike, so they count for fewer: by the correlation of each residual with the next.
    """
    n = len(seconds)
    if n < FEWEST or seconds[-1] <= seconds[0]:
        return None
    mean_t, mean_v = sum(seconds) / n, sum(values) / n
    spread = sum((t - mean_t) ** 2 for t in seconds)
    rate = sum((t - mean_t) * (v - mean_v) for t, v in zip(seconds, values, strict=True)) / spread
    left = [v - mean_v - rate * (t - mean_t) for t, v in zip(seconds, values, strict=True)]
    squares = sum(r * r for r in left)
    together = sum(a * b for a, b in pairwise(left)) / squares if squares else 0.0
    alike = min(max(together, 0.0), 0.95)
    free = max(n * (1 - alike) / (1 + alike) - 2, 2.0)
    error = math.sqrt(squares / free / spread)
    width = _student(free) * error
    return Slope(rate * 3600, (rate - width) * 3600, (rate + width) * 3600, (seconds[-1] - seconds[0]) / 3600)


def _student(free: float) -> float:
    """Student's quantile for 95 %, from the normal one (Cornish and Fisher)."""
    z = _Z
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)


@dataclass(frozen=True)
class Bound:
    """What a slope may be. per_hour: its interval may not lie above. least: growth within a run that is not judged yet."""

    unit: str
    per_hour: float
    least: float

    def broken(self, found: Slope | None) -> bool:
        """Whether the whole interval lies above the bound, by more than the steps in which such a value grows."""
        return found is not None and found.low > self.per_hour and found.low * found.hours > self.least
