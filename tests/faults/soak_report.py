"""What soaks have shown: the samples and a picture of one, and the record in which all are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from faults.report import load
from faults.slopes import Bound

Document = Mapping[str, Any]
_BEGIN, _END = "<!-- runs -->\n", "<!-- end -->"


def condensed(document: Document) -> dict[str, Any]:
    """A soak as the record keeps it: without its samples."""
    took = [seconds for _, seconds in document["changes"]]
    half = len(took) // 2
    return {
        "seed": document["seed"],
        "seconds": document["seconds"],
        "changes": len(took),
        "change_median_s": [round(median(part), 1) if part else None for part in (took[:half], took[half:])],
        "kills": document["kills"],
        "figures": document["figures"],
        "wrong": bool(document["wrong"]),
        "slopes": document["slopes"],
    }


def add(path: Path, document: Document) -> None:
    """Add a soak to the record."""
    record = load(path)
    record["runs"].append(condensed(document))
    path.write_text(json.dumps(record, indent=1) + "\n")


def table(run: Document) -> str:
    """The slopes of a run in Markdown."""
    lines = ["| series | last | per hour | 95 % interval | bound | |", "|---|---|---|---|---|---|"]
    for name, each in run["slopes"].items():
        line, bound = each["slope"], each["bound"]
        shown = (
            "| too few samples | "
            if line is None
            else f"| {line['value']:+.1f} | {line['low']:+.1f} to {line['high']:+.1f} "
        )
        word = "above" if each["broken"] else ""
        lines.append(f"| {name} | {each['last']:.1f} {shown}| {'' if bound is None else f'{bound:g}'} | {word} |")
    return "\n".join(lines)


def told(run: Document) -> str:
    """A run in two sentences."""
    figures, (early, late) = run["figures"], run["change_median_s"]
    return (
        f"{run['seconds'] / 60:.0f} minutes, seed {run['seed']}: {run['changes']} changes, {run['kills']['member']} members and "
        f"{run['kills']['controller']} controllers killed; {figures.get('records', 0)} records, {figures.get('lost', 0)} lost, "
        f"{figures.get('reordered_keys', 0)} keys reordered, {figures.get('illegal_duplicates', 0)} illegal duplicates. A "
        f"change took {early} s in the first half and {late} s in the second (median)."
    )


def summary(document: Document, bounds: Mapping[str, Bound]) -> str:
    """A soak as it is told at its end."""
    stated = ", ".join(
        f"{name} {b.per_hour:g} {b.unit} (judged from a growth of {b.least:g} on)" for name, b in bounds.items()
    )
    return "\n".join(
        [
            table(document),
            told(condensed(document)),
            f"bounds: {stated}; a process of ours fails where the whole interval lies above",
            *([f"WRONG: {document['wrong']}"] if document["wrong"] else []),
        ]
    )


def page_of(record: Document) -> str:
    """What the page says of the record: every run, and the slopes of the longest one."""
    runs = record["runs"]
    if not runs:
        return "No run is kept yet."
    longest = max(runs, key=lambda run: run["seconds"])
    return "\n".join(
        [*(f"- {told(run)}" for run in runs), "", f"The slopes of seed {longest['seed']}:", "", table(longest)]
    )


def update_page(page: Path, record: Document) -> None:
    """Write the record into the page, between its marks."""
    before, _, rest = page.read_text().partition(_BEGIN)
    page.write_text(before + _BEGIN + page_of(record) + "\n" + _END + rest.partition(_END)[2])


def write(document: Document, folder: Path) -> None:
    """The samples as JSON, and the picture."""
    (folder / "soak.json").write_text(json.dumps(document, indent=1) + "\n")
    draw(document, folder / "soak.svg")


def draw(document: Document, path: Path) -> None:
    """Each kind of value over time, one line for each process."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kinds = list(dict.fromkeys(name.rpartition(" ")[2] for name in document["series"]))
    units = {"memory": "memory, MiB", "size": "control topics, MiB"}
    with matplotlib.rc_context({"svg.hashsalt": "keyorder", "font.size": 8}):
        figure, rows = pyplot.subplots(
            len(kinds), 1, figsize=(9, 2.2 * len(kinds)), sharex=True, constrained_layout=True
        )
        for axes, kind in zip(rows if len(kinds) > 1 else [rows], kinds, strict=True):
            for name, samples in document["series"].items():
                if name.endswith(f" {kind}"):
                    axes.plot(
                        [t / 60 for t, _ in samples], [v for _, v in samples], label=name.rpartition(" ")[0].lstrip("_")
                    )
            axes.set_ylabel(units.get(kind, kind))
            axes.set_ylim(bottom=0)
            axes.axvline(document["seconds"] / 180, color="#999999", linewidth=0.8, linestyle=":")
            axes.legend(fontsize=6, loc="lower right", ncols=4)
        axes.set_xlabel("minutes; the slopes begin at the dotted line")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)
