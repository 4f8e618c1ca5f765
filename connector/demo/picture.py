"""The timeline as a picture: each partition of both topics, what was written and delivered, and where order broke."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .outcome import Outcome, SideResult
from .series import Series

_INK, _SOFT, _GRID = "#1d2733", "#6b7785", "#e3e7ec"
_DELIVERED, _WRITTEN, _LATE, _CHANGE, _LAG = "#3b82c4", "#1d2733", "#d92d20", "#8a5a00", "#7c8b9c"
_RIDGE = 0.86
_SHOWN = 0.985
_SHORT = {"join": "a consumer joins", "kill": "one is killed"}


def draw(outcome: Outcome, target: Path) -> None:
    """Write the picture to `target`, a PNG file."""
    # Loaded on use: nothing else of the demonstration needs it. Agg draws without a display.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sides = (("Stock clients", outcome.stock), ("keyorder", outcome.keyorder))
    partitions = outcome.counts[-1]
    with pyplot.rc_context({"font.family": "sans-serif", "font.size": 10, "text.color": _INK, "axes.edgecolor": _GRID}):
        figure, axes = pyplot.subplots(
            2,
            2,
            figsize=(16, 4.2 + 0.42 * max(partitions, 8)),
            sharex=True,
            sharey="row",
            gridspec_kw={"height_ratios": [1, max(partitions, 8) * 0.34], "hspace": 0.06, "wspace": 0.05},
        )
        full = _scale([side.series for _, side in sides])
        for column, (title, side) in enumerate(sides):
            _lag(axes[0][column], side.series)
            _ridges(axes[1][column], side.series, partitions, full)
            _headline(axes[0][column], title, side)
            for row, axis in enumerate(axes[:, column]):
                _marks(axis, outcome, committed=side is outcome.keyorder, labelled=row == 0)
        axes[0][0].set_ylim(0, 1.05 * max(1, *(max(side.series.lag) for _, side in sides)))
        axes[0][0].set_ylabel("lag\n(records)", color=_SOFT)
        axes[1][0].set_ylabel("partition", color=_SOFT)
        axes[0][0].set_xlim(0, max(side.series.slices * side.series.step for _, side in sides))
        _legend(figure)
        figure.savefig(target, dpi=110, bbox_inches="tight", facecolor="white", pad_inches=0.25)
        pyplot.close(figure)


def _scale(all_series: list[Series]) -> int:
    """What fills a band: all but the highest few slices, so that one burst does not flatten the rest."""
    counts = sorted(
        count
        for series in all_series
        for rows in (series.delivered, series.written)
        for row in rows.values()
        for count in row
        if count
    )
    return max(1, counts[int(len(counts) * _SHOWN)]) if counts else 1


def _headline(axis: Any, title: str, side: SideResult) -> None:
    broken = side.figure("reordered_keys")
    text = f"{broken:,} keys out of order" if broken else "every key in order"
    axis.text(0, 1.6, title, transform=axis.transAxes, fontsize=17, fontweight="bold", color=_INK)
    figures = f"{text} · {side.figure('lost'):,} records lost · {side.figure('records'):,} records"
    axis.text(0, 1.42, figures, transform=axis.transAxes, fontsize=12, color=_LATE if broken else "#18794e")


def _lag(axis: Any, series: Series) -> None:
    times = [n * series.step for n in range(series.slices)]
    axis.fill_between(times, series.lag, color=_LAG, alpha=0.35, linewidth=0, step="post")
    _plain(axis)


def _ridges(axis: Any, series: Series, partitions: int, full: int) -> None:
    """One band for each partition, all on one scale, the first partition on top."""
    times = [n * series.step for n in range(series.slices)]
    for partition in range(partitions):
        base = float(partitions - 1 - partition)
        axis.axhline(base, color=_GRID, linewidth=0.8, zorder=1)
        delivered, written, late = (
            [base + _RIDGE * min(1.0, count / full) for count in rows.get(partition, [0] * series.slices)]
            for rows in (series.delivered, series.written, series.late)
        )
        axis.fill_between(times, base, delivered, step="post", color=_DELIVERED, alpha=0.5, linewidth=0, zorder=2)
        counts = series.written.get(partition, [])
        since = next((n for n, count in enumerate(counts) if count), series.slices)
        axis.step(times[since:], written[since:], where="post", color=_WRITTEN, linewidth=0.8, zorder=3)
        axis.fill_between(times, base, late, step="post", color=_LATE, alpha=0.95, linewidth=0, zorder=4)
        # Few late records would be a line too thin to see: a mark in the band shows where they are.
        marked = [t + series.step / 2 for t, count in zip(times, series.late.get(partition, ()), strict=False) if count]
        axis.plot(marked, [base + 0.25] * len(marked), "|", color=_LATE, markersize=9, markeredgewidth=1.8, zorder=7)
    axis.set_yticks([partitions - 1 - p + 0.3 for p in range(partitions)], [str(p) for p in range(partitions)])
    axis.set_ylim(-0.25, partitions + 0.05)
    axis.set_xlabel("seconds of load", color=_SOFT)
    _plain(axis)


def _marks(axis: Any, outcome: Outcome, *, committed: bool, labelled: bool) -> None:
    """Changes are lines through everything, at the moment when clients begin to use the new partitions.

    For stock clients that is when the partitions are made; with keyorder it is the commit, and the change on its way
    there is shaded. A member that comes or goes is a thinner line.
    """
    for growth in outcome.growths:
        at = growth.at + growth.seconds if committed else growth.at
        axis.axvline(at, linewidth=1.3, color=_CHANGE, zorder=6)
        if committed:
            axis.axvspan(growth.at, at, color=_CHANGE, alpha=0.08, linewidth=0, zorder=0)
        if labelled:
            _label(axis, at, f"{growth.before} → {growth.after}", _CHANGE, "bold")
    for each in outcome.happenings:
        if each.kind in _SHORT:
            axis.axvline(each.at, linewidth=1.0, color=_SOFT, linestyle=(0, (2, 2)), zorder=6)
            if labelled:
                _label(axis, each.at, _SHORT[each.kind], _SOFT, "normal")


def _label(axis: Any, at: float, text: str, color: str, weight: str) -> None:
    # A member's line may stand close to a change's: their labels go to two heights.
    lift = 4 if weight == "bold" else 17
    axis.annotate(
        text,
        (at, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, lift),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        fontweight=weight,
        color=color,
    )


def _plain(axis: Any) -> None:
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(colors=_SOFT, length=0)


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(color=_DELIVERED, alpha=0.5, label="delivered to the group"),
        Line2D([], [], color=_WRITTEN, linewidth=1, label="written"),
        Line2D([], [], color=_LATE, marker="|", linestyle="", markeredgewidth=2, label="delivered out of order"),
        Line2D([], [], color=_CHANGE, linewidth=1.5, label="new partitions in use"),
    ]
    figure.legend(handles=handles, loc="upper center", ncols=4, frameon=False, bbox_to_anchor=(0.5, 0.055))
