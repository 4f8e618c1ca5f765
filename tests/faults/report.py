"""What campaigns have shown: a report of one (JSON, HTML, a time line), and the record in which all add up."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faults.change import PHASES

Document = Mapping[str, Any]
_COLORS = {
    "clearing": "#d9d9d9",
    "roll call": "#bdd7e7",
    "preparing": "#6baed6",
    "collecting": "#3182bd",
    "cutting": "#08519c",
    "committing": "#fd8d3c",
    "hand-over": "#a1d99b",
}


def load(path: Path) -> dict[str, Any]:
    """The kept record; an empty one where there is none."""
    return json.loads(path.read_text()) if path.exists() else {"runs": []}  # type: ignore[no-any-return]


def coverage(record: Document) -> dict[str, dict[str, int]]:
    """{fault: {phase: rounds in which it did something there}} over all runs of a record."""
    table: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for run in record["runs"]:
        for fault, phases in run["coverage"].items():
            for phase, times in phases.items():
                table[fault][phase] += times
    return {fault: dict(phases) for fault, phases in table.items()}


def condensed(document: Document) -> dict[str, Any]:
    """A campaign as the record keeps it. An episode that went wrong covers nothing: what it shows is mended, and struck again."""
    table: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    figures: dict[str, int] = defaultdict(int)
    seconds, rounds = 0.0, 0
    for episode in document["episodes"]:
        seconds += episode["ended"] - episode["began"]
        for name, value in episode["figures"].items():
            figures[name] += value
        for each in episode["rounds"]:
            rounds += 1
            for phase in [] if episode["wrong"] else each["phases"]:
                table[each["fault"]][phase] += 1
    return {
        "seed": document["seed"],
        "seconds": round(seconds),
        "kinds": sorted({episode["kind"] for episode in document["episodes"]}),
        "episodes": len(document["episodes"]),
        "rounds": rounds,
        "wrong": [episode["seed"] for episode in document["episodes"] if episode["wrong"]],
        "figures": dict(figures),
        "coverage": {fault: dict(table[fault]) for fault in sorted(table)},
    }


def add(path: Path, document: Document) -> None:
    """Add a campaign to the record."""
    record = load(path)
    record["runs"].append(condensed(document))
    path.write_text(json.dumps(record, indent=1) + "\n")


def summary(document: Document) -> str:
    """A campaign in a few lines."""
    found = condensed(document)
    hits = sum(times for phases in found["coverage"].values() for times in phases.values())
    return (
        f"{found['episodes']} episodes, {found['rounds']} rounds in {found['seconds']} s, {hits} cells struck; "
        f"{found['figures']}; wrong: {found['wrong'] or 'none'}"
    )


def table(covered: Mapping[str, Mapping[str, int]], faults: Sequence[str]) -> str:
    """A Markdown table: faults, and how often each did something in each phase of a change."""
    lines = ["| fault | " + " | ".join(PHASES) + " |", "|---" * (len(PHASES) + 1) + "|"]
    for fault in faults:
        counts = [str(covered.get(fault, {}).get(phase, 0) or "") for phase in PHASES]
        lines.append(f"| `{fault}` | " + " | ".join(counts) + " |")
    return "\n".join(lines)


def update_page(page: Path, record: Document, faults: Sequence[str]) -> None:
    """Write the record's totals and its table into a document, between its marks."""
    begin, end = "<!-- coverage -->\n", "<!-- end -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(before + begin + totals(record, faults) + "\n" + end + rest.partition(end)[2])


def totals(record: Document, faults: Sequence[str]) -> str:
    """What all runs have come to, as Markdown."""
    runs = record["runs"]
    figures: dict[str, int] = defaultdict(int)
    for run in runs:
        for name, value in run["figures"].items():
            figures[name] += value
    covered = coverage(record)
    cells = sum(1 for fault in faults for phase in PHASES if covered.get(fault, {}).get(phase, 0))
    wrong = [seed for run in runs for seed in run["wrong"]]
    return (
        f"{len(runs)} runs, {sum(run['seconds'] for run in runs) / 3600:.1f} hours, "
        f"{sum(run['episodes'] for run in runs)} episodes, {sum(run['rounds'] for run in runs)} rounds; "
        f"{figures['records']} records, {figures['lost']} lost, {figures['reordered_keys']} keys reordered, "
        f"{figures['illegal_duplicates']} illegal duplicates; {cells} of {len(faults) * len(PHASES)} cells struck. "
        f"Seeds of runs: {', '.join(str(run['seed']) for run in runs) or 'none'}. "
        f"Episodes that went wrong: {', '.join(map(str, wrong)) or 'none'}.\n\n" + table(covered, faults)
    )


def write(document: Document, folder: Path) -> None:
    """report.json, report.html and a time line per episode, in a folder."""
    (folder / "report.json").write_text(json.dumps(document, indent=1))
    covered = coverage({"runs": [condensed(document)]})
    parts = [f"<h1>Campaign {document['seed']}</h1><p>{html.escape(summary(document))}</p>", _html_table(covered)]
    for episode in document["episodes"]:
        name = f"episode-{episode['seed']}.svg"
        draw(episode, folder / name)
        parts.append(f"<h2>{episode['kind']}, seed {episode['seed']}</h2><p>{html.escape(str(episode['figures']))}</p>")
        if episode["wrong"]:
            parts.append(f"<pre>{html.escape(episode['wrong'])}</pre>")
        parts.append((folder / name).read_text().partition("<!DOCTYPE")[2].partition(">")[2])
    style = "body{font:14px sans-serif;margin:2em}td,th{border:1px solid #ccc;padding:2px 8px}table{border-collapse:collapse}"
    (folder / "report.html").write_text(f"<!doctype html><meta charset=utf-8><style>{style}</style>" + "\n".join(parts))


def _html_table(covered: Mapping[str, Mapping[str, int]]) -> str:
    head = "".join(f"<th>{phase}</th>" for phase in PHASES)
    rows = "".join(
        f"<tr><td>{fault}</td>" + "".join(f"<td>{phases.get(phase, '')}</td>" for phase in PHASES) + "</tr>"
        for fault, phases in sorted(covered.items())
    )
    return f"<table><tr><th>fault</th>{head}</tr>{rows}</table>"


def draw(episode: Mapping[str, Any], path: Path) -> None:
    """The time line of an episode: faults above, phases of the changes below, and how long it took to get on."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    start = episode["began"]
    with matplotlib.rc_context({"svg.hashsalt": "keyorder", "font.size": 8}):
        figure, axes = pyplot.subplots(figsize=(11, 2.4), constrained_layout=True)
        for each in episode["rounds"]:
            steps = each["steps"]
            for place, step in enumerate(steps):
                until = steps[place + 1]["at"] if place + 1 < len(steps) else each["recovered"]
                axes.barh(0, until - step["at"], left=step["at"] - start, color=_COLORS[step["phase"]])
            for blow in each["blows"]:
                axes.barh(1, max(0.2, blow["ended"] - blow["began"]), left=blow["began"] - start, color="#c8553d")
            first = each["blows"][0]
            axes.text(first["began"] - start, 1.5, f"{each['fault']} ({first['target']})", rotation=12, fontsize=7)
            axes.barh(2, 0, left=0)
        axes.set_yticks([0, 1], ["change", "fault"])
        axes.set_ylim(-0.6, 3.2)
        axes.set_xlim(0, max(1.0, episode["ended"] - start))
        axes.set_xlabel("seconds")
        axes.legend(
            handles=[Patch(color=c, label=p) for p, c in _COLORS.items()], ncols=7, fontsize=6, loc="lower right"
        )
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)
