"""A look at the cluster as HTML, for people. Whatever comes from the cluster is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from html import escape

from ...partitioner.layout import Layout
from ...partitioner.modes import Mode
from ..group_gates import GroupGate
from ..operations.change_status import ChangeStatus
from ..operations.description import TopicDescription
from .epoch_line import NARROW, WIDE, epoch_line
from .epoch_line import STYLE as LINE_STYLE
from .watching import Look

# The newest epochs, so that a topic that changes every day stays on a screen.
_EPOCHS = 12
STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c4314b; --wait: #945800; --chip: #8882; --new: #3f51b533; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8095; --wait: #f0ad4e; --new: #8c9eff44; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; }
h1 { font-size: 1.3rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: .95rem; margin: .9rem 0 .2rem; }
section { border: 1px solid var(--line); border-radius: .5rem; margin: 1rem 0; padding: .8rem 1rem; }
p { margin: .2rem 0; } .bad { color: var(--bad); font-weight: 600; } .wait { color: var(--wait); font-weight: 600; }
.sides { display: grid; gap: 0 2.5rem; grid-template-columns: minmax(0, 1fr); }
@media (min-width: 72rem) { .sides { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); } }
.wide { overflow-x: auto; } table { border-collapse: collapse; } ul { margin: .2rem 0; padding: 0; }
th, td { border-bottom: 1px solid var(--line); padding: .15rem .9rem .15rem 0; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; }
@media (max-width: 40rem) { th, td { font-size: .8rem; padding-right: .3rem; } th { font-size: .72rem; }
  td:first-child:not(.n) { min-width: 4.2em; } }
td.n, th.n { font-variant-numeric: tabular-nums; text-align: right; }
.tree { overflow-x: auto; } .tree li { display: flex; list-style: none; margin: .15rem 0; }
.tree li ul { margin: 0; } .tree li li::before { content: "\\2192"; margin: 0 .4rem; opacity: .6; }
.tree li li:first-child { margin-top: 0; }
.tree span { align-self: flex-start; background: var(--chip); border-radius: .3rem; padding: 0 .6rem; white-space: nowrap; }
.tree .unused { background: var(--new); } .tree .retired { opacity: .6; }
body.lost main { opacity: .5; } #lost { display: none; } body.lost #lost { display: block; }
"""
SCRIPT = """
const events = new EventSource("events");
events.onmessage = event => {
  document.body.className = "";
  document.querySelector("main").innerHTML = event.data;
};
events.onerror = () => { document.body.className = "lost"; };
"""


def page(body: str, nonce: str, every: float) -> str:
    """The whole document. Without scripts the browser loads it again by itself. nonce: of the style and of the script."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>keyorder status</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<noscript><meta http-equiv="refresh" content="{max(1, round(every))}"></noscript>'
        f'<style nonce="{nonce}">{STYLE}{LINE_STYLE}</style></head><body><h1>keyorder</h1>'
        '<p id="lost" class="bad">The command that serves this page does not answer: what you see is old.</p>'
        f'<main>{body}</main><script nonce="{nonce}">{SCRIPT}</script></body></html>'
    )


def body(look: Look, problem: str, now: float) -> str:
    """What changes from look to look. problem: why the newest one failed. now: seconds of connector.clock."""
    failed = f'<p class="bad">The newest look failed: {escape(problem)}</p>' if problem else ""
    if not look.at_ms:
        return failed or "<p>The first look at the cluster is under way.</p>"
    unreadable = "".join(
        f'<section><h2>{escape(topic)}</h2><p class="bad">It cannot be read. {escape(str(error))}</p></section>'
        for topic, error in sorted(look.unreadable.items())
    )
    nothing = "" if look.topics or look.unreadable else "<p>No topic is managed here.</p>"
    topics = "".join(_topic(topic, look, now) for topic in look.topics)
    return f"<p>As of {_time(look.at_ms)}, {_count(len(look.topics), 'managed topic')}.</p>{failed}{nothing}{unreadable}{topics}"


def _topic(found: TopicDescription, look: Look, now: float) -> str:
    layout = found.layout
    beyond = [found.modes.get(p) for p in range(layout.count, found.partitions)]
    unused = sum(mode is Mode.READ_WRITE for mode in beyond)
    retired = len(beyond) - unused
    facts = [
        _count(layout.count, "partition"),
        f"{layout.initial} at first",
        *([f"{unused} not in use"] if unused else []),
        *([f"{retired} retired"] if retired else []),
        f"epoch {found.epochs[-1].number}",
        "in order" if found.ordered else "ordered delivery is off",
    ]
    return (
        f"<section><h2>{escape(found.topic)}</h2><p>{', '.join(facts)}</p>"
        f"{_change(look.changes.get(found.topic))}{_gates(found)}"
        f'<div class="sides"><div><h3>Partitions, and where their keys came from</h3>{_tree(found)}'
        f"{_line(found, look.at_ms)}{_epochs(found)}</div>"
        f"<div>{_groups(found, look, now)}{_retired(found)}{_writers(found, look.at_ms)}</div></div></section>"
    )


def _change(status: ChangeStatus | None) -> str:
    if status is None or status.change is None:
        return "<p>No change is open: no controller is needed.</p>"
    change = status.change
    what = f"to {_count(change.count, 'partition')}" if change.slice is None else "values are re-homed"
    since = "" if status.since_ms is None else f" since {_time(status.since_ms)}"
    controller = "no controller works on it" if status.stalled else "under way"
    kind = "bad" if status.stalled else "wait"
    return (
        f'<p class="{kind}">Change {what}: {change.phase.value}{since}, attempt {change.attempt}, {controller}</p>'
        f"<p>{escape(status.next_step)}</p>"
    )


def _tree(found: TopicDescription) -> str:
    """Each partition beneath the one that it was split from."""
    highest = max(found.partitions, found.layout.count)
    family = Layout(found.layout.initial, highest)
    children: dict[int, list[int]] = {}
    for p in range(family.initial, highest):
        children.setdefault(family.parent(p), []).append(p)

    def shown(p: int) -> str:
        mode = found.modes.get(p)
        kind, more = ("", "")
        if p >= found.layout.count:
            is_new = mode is Mode.READ_WRITE or p >= found.partitions
            kind, more = ("unused", " not in use") if is_new else ("retired", f" {mode.name.lower()}" if mode else "")
        below = "".join(shown(child) for child in children.get(p, ()))
        name = f'<span class="{kind}">{p}{more.replace("_", " ")}</span>' if kind else f"<span>{p}</span>"
        return f"<li>{name}{f'<ul>{below}</ul>' if below else ''}</li>"

    return f'<ul class="tree">{"".join(shown(p) for p in range(family.initial))}</ul>'


def _line(found: TopicDescription, at_ms: int) -> str:
    """The epochs on a line of time; nothing before the first change."""
    lines = [epoch_line(found.epochs, at_ms, width) for width in (WIDE, NARROW)] if len(found.epochs) > 1 else [""]
    return f'<h3>Partitions over time (UTC)</h3><div class="wide">{"".join(lines)}</div>' if lines[0] else ""


def _epochs(found: TopicDescription) -> str:
    rows = [
        (
            epoch.number,
            epoch.count,
            _time(epoch.committed_at_ms) if epoch.committed_at_ms else "-",
            f"{epoch.held_ms / 1000:.2f} s" if epoch.held_ms else "-",
        )
        for epoch in found.epochs[: -_EPOCHS - 1 : -1]
    ]
    earlier = len(found.epochs) - len(rows)
    more = f"<p>{_count(earlier, 'earlier epoch')}</p>" if earlier else ""
    return _table("Epochs", ("epoch", "partitions", "committed", "records held for"), rows) + more


def _groups(found: TopicDescription, look: Look, now: float) -> str:
    rows = []
    for group in found.groups:
        since = [look.closed_since.get((group.group, found.topic, g.partition, g.epoch), now) for g in group.closed]
        oldest = f"{now - min(since):.0f} s" if since else "-"
        rows.append((group.group, look.lag(found.topic, group), len(group.closed), oldest))
    return (
        _table("Groups", ("group", "lag", "closed gates", "oldest"), rows) or "<p>No group has committed offsets.</p>"
    )


def _gates(found: TopicDescription) -> str:
    rows = [
        (group.group, gate.partition, gate.epoch, gate.begins, _needs(gate))
        for group in found.groups
        for gate in group.closed
    ]
    return _table(
        "Closed gates", ("group", "partition", "epoch", "from offset", "waits until the group has committed"), rows
    )


def _needs(gate: GroupGate) -> str:
    return ", ".join(f"partition {n.partition} up to {n.needs} (is at {n.at})" for n in gate.blockers)


def _retired(found: TopicDescription) -> str:
    rows = [
        (drain.partition, drain.state.value.replace("_", " "), drain.upto, drain.error or "-")
        for drain in found.retired
    ]
    return _table("Retired partitions", ("partition", "state", "emptied below", "error"), rows)


def _writers(found: TopicDescription, at_ms: int) -> str:
    rows = [
        (
            writer.writer,
            writer.incarnation,
            "yes" if writer.transactional else "no",
            "-" if writer.renewed_at_ms is None else f"{max(0, at_ms - writer.renewed_at_ms) / 1000:.0f} s ago",
        )
        for writer in found.writers
    ]
    return (
        _table("Writers", ("writer", "incarnation", "transactional", "last heard"), rows)
        or "<p>No writer is there.</p>"
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a heading; nothing without rows. Whole numbers stand to the right."""
    found = list(rows)
    if not found:
        return ""
    numbers = [all(isinstance(row[i], int) for row in found) for i in range(len(columns))]

    def cells(row: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if number else ''}>{escape(str(cell))}</{tag}>"
            for cell, number in zip(row, numbers, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in found)
    return f'<h3>{title}</h3><div class="wide"><table><tr>{cells(columns, "th")}</tr>{body}</table></div>'


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
