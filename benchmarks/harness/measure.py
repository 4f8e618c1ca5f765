"""What a measure is, and what it hands back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .spread import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .bench import Bench


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: the same quantity of ours and of the thing it is held against.

    ratio: ours / theirs, taken pair by pair, so that a slow moment of the machine meets both.
    theirs, ratio: None for a figure that has nothing to be held against.
    """

    name: str
    unit: str
    ours: Spread
    theirs: Spread | None = None
    ratio: Spread | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal in words, what was measured in words, and whether it was met."""

    text: str
    found: str
    met: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What a measure found.

    data: what was moved: records, bytes, keys, partitions. repeats: pairs that were counted, warm-up apart.
    series: curves for the plot and for whoever reads the JSON; any shape that JSON has.
    """

    data: Mapping[str, Any]
    repeats: int
    figures: Sequence[Figure]
    goals: Sequence[Goal]
    notes: Sequence[str] = ()
    series: Mapping[str, Any] = field(default_factory=dict)


class Measure(ABC):
    """One measure: a file `benchmarks/p<number>_<name>.py` with `MEASURE = ...` at its end.

    id: as in docs/benchmarks.md. ours, theirs: what the two things are called in the table.
    needs: modules that it imports besides keyorder's own requirements; without them it is skipped, and says so.
    """

    id: str
    title: str
    ours: str = "keyorder"
    theirs: str
    needs: Sequence[str] = ()

    @abstractmethod
    def run(self, bench: Bench) -> Result:
        """Measure. `bench` has the broker, the clock, `pairs()`, and says whether a short form is asked for."""

    def plot(self, result: Result, axes: Axes) -> None:
        """Draw the result. By default, the figures' ratios to the other thing, with their quartiles."""
        from .plots import plot_figures

        plot_figures(result, axes, self.ours, self.theirs)
