"""Pictures of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .measure import Measure, Result

OURS, THEIRS = "#1f6f8b", "#c8553d"


def plot_figures(result: Result, axes: Axes, ours: str, theirs: str) -> None:
    """One bar per figure: ours as a multiple of theirs, the middle half of the pairs as a line, every pair as a point."""
    compared = [f for f in result.figures if f.ratio is not None]
    for place, figure in enumerate(compared):
        ratio = figure.ratio
        assert ratio is not None
        axes.barh(place, ratio.median, color=OURS, alpha=0.75, height=0.6)
        axes.plot([ratio.low, ratio.high], [place, place], color="black", linewidth=2)
        axes.plot(ratio.samples, [place] * len(ratio.samples), "o", color="black", markersize=3)
        axes.annotate(f" {ratio.median:.3g} x", (ratio.median, place), va="bottom")
    axes.axvline(1.0, color=THEIRS, linestyle="--", label=f"{theirs} = 1")
    axes.set_yticks(range(len(compared)), [f.name for f in compared])
    axes.invert_yaxis()
    axes.set_xlabel(f"{ours} / {theirs}")
    axes.legend(loc="best")


def save_plot(measure: Measure, result: Result, path: Path) -> None:
    """The measure's own picture as an SVG file; the same figures give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": "keyorder", "font.size": 9}):
        figure, axes = pyplot.subplots(figsize=(8, 4.5), constrained_layout=True)
        axes.set_title(f"{measure.id}: {measure.title}")
        measure.plot(result, axes)
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)
