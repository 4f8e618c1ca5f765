"""A result as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .measure import Figure, Measure, Result
from .spread import Spread


def document(measure: Measure, result: Result, machine: dict[str, Any], quick: bool) -> dict[str, Any]:
    """The object that is written to benchmarks/results."""
    return {
        "id": measure.id,
        "title": measure.title,
        "ours": measure.ours,
        "theirs": measure.theirs,
        "quick": quick,
        "machine": machine,
        "data": dict(result.data),
        "repeats": result.repeats,
        "figures": [asdict(figure) for figure in result.figures],
        "goals": [asdict(goal) for goal in result.goals],
        "notes": list(result.notes),
        "series": dict(result.series),
    }


def save(found: dict[str, Any], path: Path) -> None:
    """Write it, readable in a diff: six digits are more than any of these figures has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(found), indent=1) + "\n", "utf-8")


def show(measure: Measure, result: Result, console: Console) -> None:
    """The table of one measure, its data, its goals."""
    table = Table(title=f"{measure.id}  {measure.title}", title_justify="left", box=box.SIMPLE)
    for column in ("figure", "unit", measure.ours, measure.theirs, "ours / theirs"):
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    for figure in result.figures:
        table.add_row(figure.name, figure.unit, *_cells(figure))
    console.print(table)
    facts = ", ".join(f"{name} {value}" for name, value in result.data.items())
    console.print(f"  {facts}; {result.repeats} repeats; median [middle half]", markup=False)
    for goal in result.goals:
        mark = "[green]met[/green]" if goal.met else "[red]missed[/red]"
        console.print(f"  goal {goal.text}: {goal.found}: {mark}")
    for note in result.notes:
        console.print(f"  {note}", markup=False)


def _cells(figure: Figure) -> tuple[str, str, str]:
    return _cell(figure.ours), _cell(figure.theirs), _cell(figure.ratio)


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    if len(spread.samples) == 1:
        return number(spread.median)
    return rf"{number(spread.median)} \[{number(spread.low)}..{number(spread.high)}]"


def number(value: float) -> str:
    """Three digits, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(held) for held in value]
    return value
