"""What `keyorder topics` prints. The JSON objects are documented in docs/configuration.md and keep their shape."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from fractions import Fraction
from typing import Any

import click

from ...partitioner.layout import Layout
from ...partitioner.plan import ChangePlan
from ...partitioner.timeline import Epoch
from ..admin import TopicDescription
from ..controller import Change
from .output import emit_table

_STEPS = {
    "started": "no other controller can change this topic now",
    "clearing": "giving up an attempt that another controller left open",
    "roll call": "asking every writer to show that it lives",
    "preparing": "asking the writers to hold the keys that move",
    "collecting": "waiting until every writer holds them",
    "cutting": "reading where each partition ends",
    "committing": "committing the new layout",
    "aborting": "giving this attempt up, the held records go on",
    "done": "done",
    "failed": "given up, the layout is as it was",
}
_NOTE = (
    "Producers without keyorder spread keys over all partitions as soon as new ones exist: "
    "let every writer of this topic use an OrderedProducer first."
)


def layout_document(layout: Layout) -> dict[str, int]:
    """{"initial", "count"}."""
    return {"initial": layout.initial, "count": layout.count}


def description_document(found: TopicDescription) -> dict[str, Any]:
    """The object of `topics describe`, also printed by `create` and `adopt`."""
    change = found.change
    return {
        "topic": found.topic,
        "topic_id": found.topic_id,
        "layout": layout_document(found.layout),
        "partitions": found.partitions,
        "ordered": found.ordered,
        "epochs": [
            {
                "number": epoch.number,
                "count": epoch.count,
                "ends": _cuts(epoch.ends),
                "begins": _cuts(epoch.begins),
                "committed_at_ms": epoch.committed_at_ms,
            }
            for epoch in found.epochs
        ],
        "change": None
        if change is None
        else {"epoch": change.epoch, "count": change.count, "phase": change.phase.value, "attempt": change.attempt},
        "writers": [
            {
                "writer": writer.writer,
                "incarnation": writer.incarnation,
                "topics": list(writer.topics),
                "transactional": writer.transactional,
            }
            for writer in found.writers
        ],
        "settings": dict(found.settings),
    }


def change_document(change: Change) -> dict[str, Any]:
    """The object of `topics expand`."""
    return {
        "topic": change.topic,
        "before": change.before,
        "after": change.after,
        "changed": change.changed,
        "epoch": change.epoch,
        "attempts": change.attempts,
        "steps": [{"name": step.name, "seconds": round(step.seconds, 3)} for step in change.steps],
        "ends": _cuts(change.ends),
        "begins": _cuts(change.begins),
    }


def plan_document(topic: str, plan: ChangePlan, physical: int) -> dict[str, Any]:
    """The object of `topics expand --dry-run`. physical: how many partitions exist."""
    return {
        "dry_run": True,
        "topic": topic,
        "current": layout_document(plan.current),
        "target": layout_document(plan.target),
        "partitions_to_create": max(0, plan.target.count - physical),
        "share_moved": _share(plan.share_moved),
        "share_moved_by_stock": _share(plan.share_moved_by_stock),
        "moves": [{"from": move.source, "to": move.target, "share": _share(move.share)} for move in plan.moves],
        "notes": [_NOTE],
    }


def show_description(found: TopicDescription) -> None:
    """A description for people."""
    delivery = "in order" if found.ordered else "with ordered delivery off"
    click.echo(f"Topic {found.topic} ({found.topic_id}), {delivery}")
    retired = found.partitions - found.layout.count
    unused = f", {retired} not in use" if retired > 0 else ""
    click.echo(f"Layout: {found.layout.count} partitions, {found.layout.initial} at first{unused}")
    change = found.change
    if change is None:
        click.echo("Change: none")
    else:
        click.echo(
            f"Change: to {change.count} partitions, {change.phase.value}, epoch {change.epoch}, attempt {change.attempt}"
        )
    for name, value in sorted(found.settings.items()):
        click.echo(f"Setting: {name}={value}")
    emit_table(
        ("epoch", "partitions", "committed", "keys left (partition@offset)", "keys came (partition@offset)"),
        [_epoch_row(epoch) for epoch in found.epochs],
    )
    if found.writers:
        emit_table(
            ("writer", "incarnation", "transactional", "topics"),
            [(w.writer, w.incarnation, "yes" if w.transactional else "no", ", ".join(w.topics)) for w in found.writers],
        )
    else:
        click.echo("Writers: none")


def show_change(change: Change) -> None:
    """A finished change for people."""
    if not change.changed:
        click.echo(f"Topic {change.topic} has {change.after} partitions already: nothing was changed")
        return
    tries = "" if change.attempts == 1 else f", at attempt {change.attempts}"
    click.echo(
        f"Topic {change.topic} went from {change.before} to {change.after} partitions (epoch {change.epoch}{tries})"
    )
    emit_table(("seconds", "step"), [(f"{step.seconds:.3f}", words_of(step.name)) for step in change.steps])


def show_plan(topic: str, plan: ChangePlan, physical: int) -> None:
    """A plan for people."""
    before, after = plan.current.count, plan.target.count
    if not plan.moves:
        click.echo(f"Topic {topic} has {after} partitions already: nothing would change")
        return
    click.echo(
        f"Topic {topic}: {before} -> {after} partitions (initial {plan.current.initial}), "
        f"{max(0, after - physical)} to be created"
    )
    click.echo(f"Keys that move: {_text(plan.share_moved)}; the others stay and never wait")
    click.echo(f"For comparison, the stock partitioner would move {_text(plan.share_moved_by_stock)}")
    emit_table(("from", "to", "share of all keys"), [(m.source, m.target, _text(m.share)) for m in plan.moves])
    click.echo(_NOTE)


def words_of(step: str) -> str:
    """A step of the controller in words; names of writers and the like stay as they are."""
    return _STEPS.get(step, step)


@contextmanager
def steps_shown(topic: str, partitions: int) -> Iterator[Callable[[str], None]]:
    """Shows each step on stderr: a line that changes on a terminal, plain lines elsewhere. stdout stays clean."""
    if not sys.stderr.isatty():
        yield lambda step: click.echo(words_of(step), err=True)
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"changing {topic} to {partitions} partitions") as status:
        yield lambda step: status.update(words_of(step))


def _epoch_row(epoch: Epoch) -> tuple[object, ...]:
    committed = datetime.fromtimestamp(epoch.committed_at_ms / 1000).astimezone()
    return (
        epoch.number,
        epoch.count,
        committed.isoformat(" ", "seconds"),
        " ".join(f"{p}@{offset}" for p, offset in sorted(epoch.ends.items())) or None,
        " ".join(f"{p}@{offset}" for p, offset in sorted(epoch.begins.items())) or None,
    )


def _cuts(cuts: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(cuts.items())}


def _share(share: Fraction) -> dict[str, Any]:
    return {"fraction": str(share), "percent": round(float(share) * 100, 3)}


def _text(share: Fraction) -> str:
    return f"{share} ({float(share):.1%})"
