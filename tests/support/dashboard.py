"""docs/images/dashboard.png: the dashboard's panels, drawn from its own queries over scraped metrics.

Neither Grafana nor a browser is needed for it: `make screenshots ONLY=dashboard`.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.promql import Labels, Query, QueryError, Scrape, over_time, parsed

ROOT = Path(__file__).resolve().parents[2]
BOARD = ROOT / "docker/monitoring/dashboard.json"
_WIDTH, _CELL, _DPI, _MARGIN = 1200, 26, 100, 8  # pixels; a cell is a row of the grid, of 24 columns
_INK, _SOFT, _GRID, _PAGE, _BORDER = "#24292e", "#6b7785", "#e9ecef", "#f4f5f5", "#dfe3e6"
_COLOURS = ("#3274d9", "#e0752d", "#37872d", "#8f3bb8", "#c4162a", "#0f8a8a")


@dataclass(frozen=True)
class Panel:
    """As the dashboard's file has it. kind: stat, timeseries or row; unit: s or short; grid: x, y, w, h."""

    kind: str
    title: str
    unit: str
    grid: tuple[int, int, int, int]
    targets: tuple[tuple[Query, str], ...]


def panels(board: dict[str, Any], interval: float) -> list[Panel]:
    """All of them, with `All` for each variable. interval: seconds between two scrapes. Raises QueryError."""
    names = {each["name"] for each in board["templating"]["list"]}
    found = []
    for panel in board["panels"]:
        if panel["type"] not in ("stat", "timeseries", "row"):
            raise QueryError(f"panel {panel['title']!r}: the type {panel['type']!r} is not known")
        targets = []
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", f"{math.ceil(4 * interval)}s")
            text = re.sub(r"\$(\w+)", lambda found: ".*" if found[1] in names else found[0], text)
            targets.append((parsed(text), target.get("legendFormat", "")))
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        found.append(Panel(panel["type"], panel["title"], unit, (x, y, w, h), tuple(targets)))
    return found


def legend(form: str, labels: Labels) -> str:
    """`{{group}} on {{topic}}` with the values of a series."""
    values = dict(labels)
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: values.get(found[1], ""), form)


def draw(found: Sequence[Panel], samples: Sequence[Scrape], target: Path) -> None:
    """Write the picture to `target`, a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = max(panel.grid[1] + panel.grid[3] for panel in found)
    height = rows * _CELL + 2 * _MARGIN
    with pyplot.rc_context({"font.family": "sans-serif", "font.size": 8, "text.color": _INK, "axes.edgecolor": _GRID}):
        figure = pyplot.figure(figsize=(_WIDTH / _DPI, height / _DPI), dpi=_DPI, facecolor=_PAGE)
        for panel in found:
            _panel(figure, panel, samples, height)
        figure.savefig(target, dpi=_DPI, facecolor=_PAGE)
        pyplot.close(figure)


def _panel(figure: Any, panel: Panel, samples: Sequence[Scrape], height: int) -> None:
    """In its place of the grid; the figure counts from below, in parts of its size."""
    from matplotlib.patches import FancyBboxPatch

    x, y, w, h = panel.grid
    column = (_WIDTH - 2 * _MARGIN) / 24
    left, right = _MARGIN + x * column + 4, _MARGIN + (x + w) * column - 4
    top, bottom = height - _MARGIN - y * _CELL - 4, height - _MARGIN - (y + h) * _CELL + 4
    if panel.kind == "row":
        figure.text(
            left / _WIDTH, (top + bottom) / 2 / height, f"\u25be  {panel.title}", size=11, weight="bold", va="center"
        )
        return

    def place(x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
        return x0 / _WIDTH, y0 / height, (x1 - x0) / _WIDTH, (y1 - y0) / height

    back = figure.add_axes((0, 0, 1, 1), zorder=-1)
    back.set_axis_off()
    back.set(xlim=(0, _WIDTH), ylim=(0, height))
    shape = "round,pad=0,rounding_size=4"
    back.add_patch(
        FancyBboxPatch((left, bottom), right - left, top - bottom, shape, facecolor="white", edgecolor=_BORDER, lw=1)
    )
    figure.text((left + 10) / _WIDTH, (top - 9) / height, panel.title, size=9 if w > 6 else 8, weight="bold", va="top")
    if panel.kind == "stat":
        _stat(figure, panel, samples, ((left + right) / 2 / _WIDTH, (bottom + (top - bottom) * 0.4) / height))
    else:
        _series(figure.add_axes(place(left + 60, bottom + 42, right - 14, top - 32)), panel, samples)


def _stat(figure: Any, panel: Panel, samples: Sequence[Scrape], centre: tuple[float, float]) -> None:
    for query, _ in panel.targets:
        *_, (_, last) = over_time(query, samples)
        text = ", ".join(said(value, panel.unit) for value in last.values()) or "No data"
        figure.text(*centre, text, size=24, weight="bold", color=_COLOURS[2], ha="center", va="center")


def _series(axis: Any, panel: Panel, samples: Sequence[Scrape]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    began = samples[0].at
    lines: dict[str, dict[float, float]] = {}
    for query, form in panel.targets:
        for at, vector in over_time(query, samples):
            for labels, value in vector.items():
                lines.setdefault(legend(form, labels), {})[at - began] = value
    highest = 0.0
    for number, (name, points) in enumerate(sorted(lines.items())):
        # A gap stays a gap; a value alone between two of them would not show without its dot.
        times = [scrape.at - began for scrape in samples]
        values = [points.get(at, math.nan) for at in times]
        colour = _COLOURS[number % len(_COLOURS)]
        axis.plot(times, values, color=colour, lw=1.6, marker="o", ms=2.2, label=name)
        axis.fill_between(times, values, color=colour, alpha=0.08, lw=0)
        highest = max([highest, *(value for value in values if not math.isnan(value))])
    axis.set(xlim=(0, samples[-1].at - began), ylim=(0, highest * 1.12 or 1))
    axis.yaxis.set_major_locator(
        MaxNLocator(4, integer=not highest or (panel.unit == "short" and highest >= 1), min_n_ticks=1)
    )
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: said(value, panel.unit)))
    axis.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 1.5, 2, 3, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02}"))
    axis.tick_params(length=0, colors=_SOFT, labelsize=8)
    axis.tick_params(axis="x", pad=5)
    axis.grid(color=_GRID, lw=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    if lines:
        axis.legend(
            loc="upper left", bbox_to_anchor=(-0.08, -0.16), ncols=min(len(lines), 5), frameon=False, fontsize=8,
            handlelength=1.2, borderaxespad=0, columnspacing=1.6,
        )  # fmt: skip
    if not any(not math.isnan(value) for points in lines.values() for value in points.values()):
        axis.text(0.5, 0.5, "No data", transform=axis.transAxes, ha="center", va="center", color=_SOFT, size=11)


def said(value: float, unit: str) -> str:
    """A value as Grafana writes it: 250 ms, 1.5 K."""
    if unit == "s" and value:
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s" if value < 120 else f"{value / 60:.3g} min"
    if value >= 1000:
        return f"{value / 1000:.3g} K"
    return f"{value:.3g}" + (" s" if unit == "s" else "")


def picture(target: Path) -> None:
    """A cluster, the load, the picture at `target`."""
    from keyorder.connector.local.cluster import LocalCluster
    from support.dashboard_load import INTERVAL, scrapes

    found = panels(json.loads(BOARD.read_text()), INTERVAL)  # first: a query that is not known needs no load
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(data_dir=Path(folder) / "brokers") as cluster,
    ):
        samples = scrapes({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 4}, Path(folder))
    draw(found, samples, target)
