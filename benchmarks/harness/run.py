"""Finds the measures, runs those that were asked for, and reports each as soon as it is done."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from keyorder.partitioner.errors import UsageError
from rich.console import Console

from .bench import Bench
from .machine import facts
from .measure import Measure
from .plots import save_plot
from .report import document, save, show

FOLDER = Path(__file__).resolve().parents[1]
_FILE = re.compile(r"[pr]\d+_\w+")


def measures() -> dict[str, Measure]:
    """Every measure of the folder by its id, in the order of the numbers. A file's name begins with its id."""
    found: dict[str, Measure] = {}
    for path in sorted(FOLDER.glob("[pr]*_*.py")):
        if _FILE.fullmatch(path.stem):
            measure = import_module(f"{__package__.rpartition('.')[0]}.{path.stem}").MEASURE
            found[measure.id] = measure
    return found


def chosen(only: Collection[str]) -> list[Measure]:
    """The measures with these ids, all for none. Raises UsageError for an id that does not exist."""
    known = measures()
    ids = [name.strip().upper() for name in only if name.strip()]
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise UsageError(f"no measure {', '.join(unknown)}: there are {', '.join(known)}")
    return [measure for name, measure in known.items() if not ids or name in ids]


def run(
    only: Collection[str],
    quick: bool,
    results: Path,
    console: Console,
    progress: Console,
    servers: str | None = None,
    repeats: int | None = None,
) -> list[dict[str, Any]]:
    """Run measures one after the other on one broker. Returns their documents, as written to `results`.

    console: for the tables. progress: for what is going on. repeats: pairs that count, None for the usual number. A measure
    whose modules are not installed is skipped.
    """
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        status = stack.enter_context(progress.status("starting")) if progress.is_terminal else None
        wanted = chosen(only)
        current = ""

        def say(text: str) -> None:
            if status is not None:
                status.update(f"{current}{text}")
            else:
                progress.print(f"{current}{text}", markup=False)

        bench = Bench(stack, say, quick, servers, repeats)
        for measure in wanted:
            current = f"{measure.id}: "
            missing = [name for name in measure.needs if find_spec(name) is None]
            if missing:
                progress.print(f"{measure.id} is skipped: it needs {', '.join(missing)}", markup=False)
                continue
            result = measure.run(bench)
            report = document(measure, result, facts(bench.kafka_version), quick)
            stem = f"{measure.id.lower()}{'-quick' if quick else ''}"
            save(report, results / f"{stem}.json")
            save_plot(measure, result, results / f"{stem}.svg")
            show(measure, result, console)
            found.append(report)
    return found
