"""What simulated histories have shown, run after run: hours come together from pieces, as those of `make jepsen` do.

A run counts for the code that it drove, so each bears a digest of that.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
RECORD, PAGE = ROOT / "docs" / "histories.json", ROOT / "docs" / "faults.md"
DRIVEN = ("partitioner", "connector")
# Of these what no history loads.
BESIDE = ("aio", "arrow", "cli", "connect", "demo", "doctor", "local", "monitoring")
_BEGIN, _END = "<!-- histories -->\n", "<!-- end of histories -->"


def is_driven(path: Path) -> bool:
    """Whether a history may load it. path: of a file of this project."""
    return not any(path.is_relative_to(ROOT / "connector" / folder) for folder in BESIDE)


def code() -> str:
    """The digest of the code that a history drives."""
    found = hashlib.sha256()
    for path in sorted(path for folder in DRIVEN for path in filter(is_driven, (ROOT / folder).rglob("*.py"))):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def load(path: Path = RECORD) -> list[dict[str, Any]]:
    """The kept runs; none where there is no record."""
    return json.loads(path.read_text())["runs"] if path.exists() else []


def add(path: Path, run: Mapping[str, Any]) -> None:
    """Keep a run."""
    path.write_text(json.dumps({"runs": [*load(path), dict(run)]}, indent=1) + "\n")


def page_of(runs: Sequence[Mapping[str, Any]]) -> str:
    """The totals of each code, as Markdown, the newest one first."""
    by_code: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        by_code[run["code"]].append(run)
    lines = ["| code | seeds | histories | bad | changes | records | faults |", "|---" * 7 + "|"]
    for digest, own in reversed(by_code.items()):
        seeds = ", ".join(f"{first} to {last}" for first, last in _ranges(own))
        sums = [sum(run[name] for run in own) for name in ("histories", "bad", "changes", "records", "faults")]
        lines.append(f"| `{digest}` | {seeds} | " + " | ".join(map(str, sums)) + " |")
    return "\n".join(lines)


def _ranges(runs: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """The seeds of the runs, first and last of each range; a run that follows the one before it goes on with its range."""
    found: list[tuple[int, int]] = []
    for run in runs:
        first, last = run["first"], run["first"] + run["histories"] - 1
        if found and found[-1][1] + 1 == first:
            first = found.pop()[0]
        found.append((first, last))
    return found


def update_page(page: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Write the totals into a document, between its marks."""
    before, _, rest = page.read_text().partition(_BEGIN)
    page.write_text(before + _BEGIN + page_of(runs) + "\n" + _END + rest.partition(_END)[2])
