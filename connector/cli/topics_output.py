"""What `keyorder topics` prints. The JSON objects are documented in docs/commands.md and keep their shape."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from ...partitioner.adoption import KeySample
from ...partitioner.epochs import Drain, Epoch, OpenChange, Retirement
from ...partitioner.layout import Layout
from ..group_gates import GateNeed, GroupGate
from ..operations.description import GroupDescription, TopicDescription
from ..operations.notices import Notice
from ..topology.results import Change
from .output import echo_wrapped, emit_table, is_terminal

_STEPS = {
    "started": "no other controller can change this topic now",
    "clearing": "giving up an attempt that another controller left open",
    "roll call": "asking every writer to renew its lease",
    "preparing": "asking the writers to hold the keys that move",
    "collecting": "waiting until every writer holds them",
    "cutting": "reading where each partition ends",
    "committing": "committing the new layout",
    "aborting": "giving this attempt up, held records go to the old partitions",
    "done": "done",
    "failed": "given up, the layout is as it was",
}


def layout_document(layout: Layout) -> dict[str, int | str]:
    """{"initial", "count", "hash"}."""
    return {"initial": layout.initial, "count": layout.count, "hash": layout.hash}


def sample_document(sample: KeySample | None) -> dict[str, Any] | None:
    """What an adoption has looked at: {"records", "keys", "explained"}; null when nothing was."""
    if sample is None:
        return None
    return {"records": sample.records, "keys": sample.keys, "explained": dict(sample.explained)}


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
                "held_ms": epoch.held_ms or None,
            }
            for epoch in found.epochs
        ],
        "change": None if change is None else open_change_document(change),
        "writers": [
            {
                "writer": writer.writer,
                "incarnation": writer.incarnation,
                "topics": list(writer.topics),
                "transactional": writer.transactional,
                "lease_ms": writer.lease_ms,
                "renewed_at_ms": writer.renewed_at_ms,
                "unmanaged": list(writer.unmanaged),
            }
            for writer in found.writers
        ],
        "settings": dict(found.settings),
        "modes": {str(p): int(mode) for p, mode in sorted(found.modes.items())},
        "retired": [drain_document(drain) for drain in found.retired],
        "groups": [
            {
                "group": group.group,
                "committed": _cuts(group.committed),
                "gates": group.gates,
                "closed": [gate_document(gate) for gate in group.closed],
            }
            for group in found.groups
        ],
        "strays": None if found.strays is None else [asdict(each) for each in found.strays],
        "strays_problem": found.strays_problem or None,
    }


def open_change_document(change: OpenChange) -> dict[str, Any]:
    """An attempt that is neither committed nor given up."""
    return {
        "epoch": change.epoch,
        "count": change.count,
        "phase": change.phase.value,
        "attempt": change.attempt,
        "deadline_ms": change.deadline_ms or None,
        "rehomes": None if change.slice is None else change.slice.partition,
    }


def drain_document(drain: Drain) -> dict[str, Any]:
    """A retired partition, and how far its emptying is."""
    wishes = drain.retirement
    return {
        "partition": drain.partition,
        "epoch": drain.epoch,
        "upto": drain.upto,
        "mode": int(drain.mode),
        "state": drain.state.value,
        "waits_for_groups": list(wishes.groups),
        "immediate": wishes.immediate,
        "delay_ms": wishes.delay_ms,
        "forced": wishes.forced,
        "tries": drain.tries,
        "error": drain.error or None,
    }


def gate_document(gate: GroupGate) -> dict[str, Any]:
    """A gate as a group stands before it."""

    def needs(found: Sequence[GateNeed]) -> list[dict[str, int]]:
        return [{"partition": n.partition, "needs": n.needs, "at": n.at, "missing": n.missing} for n in found]

    return {
        "partition": gate.partition,
        "epoch": gate.epoch,
        "begins": gate.begins,
        "at": gate.at,
        "origins": needs(gate.origins),
        "waits_for": needs(gate.blockers),
        "missing": gate.missing,
    }


def notices_document(found: Sequence[Notice]) -> list[dict[str, str]]:
    """Warnings: [{"code", "text"}]."""
    return [{"code": notice.code.value, "text": notice.text} for notice in found]


def show_notices(found: Sequence[Notice]) -> None:
    """Warnings on stderr, one per line."""
    for notice in found:
        echo_wrapped(f"WARNING: {notice.text}", "  ", err=True)


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
        "waited_for": [
            {**asdict(wait), "began": round(wait.began, 3), "seconds": round(wait.seconds, 3)}
            for wait in change.waited_for
        ],
        "warnings": notices_document(change.warnings),
    }


def show_description(found: TopicDescription) -> None:
    """A description for people."""
    delivery = "in order" if found.ordered else "with ordered delivery off"
    echo_wrapped(f"Topic {found.topic} ({found.topic_id}), {delivery}")
    retired = found.partitions - found.layout.count
    unused = f", {retired} not in use" if retired > 0 else ""
    echo_wrapped(
        f"Layout: {found.layout.count} partitions, {found.layout.initial} at first{unused}, keys by {found.layout.hash}"
    )
    change = found.change
    if change is None:
        echo_wrapped("Change: none")
    else:
        what = (
            f"to {change.count} partitions" if change.slice is None else f"re-homes values of {change.slice.partition}"
        )
        echo_wrapped(f"Change: {what}, {change.phase.value}, epoch {change.epoch}, attempt {change.attempt}")
    for name, value in sorted(found.settings.items()):
        echo_wrapped(f"Setting: {name}={value}")
    emit_table(
        ("epoch", "partitions", "committed", "keys left (partition@offset)", "keys came (partition@offset)"),
        [_epoch_row(epoch) for epoch in found.epochs],
    )
    if found.writers:
        emit_table(
            ("writer", "incarnation", "transactional", "lease", "last heard", "topics", "unmanaged topics"),
            [
                (
                    w.writer,
                    w.incarnation,
                    "yes" if w.transactional else "no",
                    f"{w.lease_ms / 1000:g} s",
                    time_text(w.renewed_at_ms),
                    ", ".join(w.topics),
                    ", ".join(w.unmanaged) or None,
                )
                for w in found.writers
            ],
        )
    else:
        echo_wrapped("Writers: none")
    if found.retired:
        emit_table(
            ("retired", "mode", "state", "emptied below", "waits for groups", "delay", "error"),
            [
                (
                    d.partition,
                    d.mode,
                    d.state.value.replace("_", " "),
                    d.upto,
                    "none (forced)" if d.retirement.forced else ", ".join(d.retirement.groups) or None,
                    delay_text(d.retirement),
                    d.error or None,
                )
                for d in found.retired
            ],
        )
    show_strays(found)
    show_gates(found.groups)


def show_strays(found: TopicDescription) -> None:
    """Misplaced records and stock producers for people; nothing where nobody looked."""
    if found.strays_problem:
        echo_wrapped(f"Misplaced records: unknown, {found.strays_problem}")
    if found.strays is None:
        return
    looked = sum(each.records for each in found.strays)
    bad = [each for each in found.strays if each.strays or each.foreign]
    if not bad:
        echo_wrapped(f"Misplaced records, records of stock producers: none among the newest {looked}")
    else:
        rows = [(s.partition, s.records, s.strays, s.last, s.foreign, s.last_foreign) for s in bad]
        emit_table(("partition", "looked at", "misplaced", "last at", "of stock producers", "last at"), rows)


def show_gates(groups: Sequence[GroupDescription]) -> None:
    """The closed gates of groups for people."""
    if not groups:
        echo_wrapped("Groups: none has committed offsets here")
        return
    rows = [
        (
            group.group,
            gate.partition,
            gate.epoch,
            " ".join(f"{n.partition}@{n.needs}" for n in gate.blockers),
            " ".join(f"{n.partition}@{n.at}" for n in gate.blockers),
            gate.missing,
        )
        for group in groups
        for gate in group.closed
    ]
    clear = [group.group for group in groups if not group.closed]
    if clear:
        echo_wrapped(f"Groups before no closed gate: {', '.join(clear)}")
    if rows:
        emit_table(("group", "closed gate of", "epoch", "needs", "is at", "missing"), rows)


def delay_text(retirement: Retirement) -> str:
    """The delay of a shrink in words."""
    if retirement.immediate:
        return "none"
    return "the topic's" if retirement.delay_ms is None else f"{retirement.delay_ms} ms"


def time_text(at_ms: int | None) -> str | None:
    """A time of the wall clock for people."""
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(" ", "seconds")


def show_change(change: Change) -> None:
    """A finished change for people."""
    if not change.changed:
        echo_wrapped(f"Topic {change.topic} has {change.after} partitions already: nothing was changed")
        return
    tries = "" if change.attempts == 1 else f", at attempt {change.attempts}"
    echo_wrapped(
        f"Topic {change.topic} went from {change.before} to {change.after} partitions (epoch {change.epoch}{tries})"
    )
    emit_table(("seconds", "step"), [(f"{step.seconds:.3f}", words_of(step.name)) for step in change.steps])


def words_of(step: str) -> str:
    """A step of the controller in words; names of writers and the like stay as they are."""
    return _STEPS.get(step, step)


@contextmanager
def steps_shown(topic: str, partitions: int) -> Iterator[Callable[[str], None]]:
    """Shows each step on stderr: a line that changes on a terminal, plain lines elsewhere. stdout stays clean."""
    if not is_terminal(sys.stderr):
        yield lambda step: click.echo(words_of(step), err=True)
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"changing {topic} to {partitions} partitions") as status:
        yield lambda step: status.update(words_of(step))


def _epoch_row(epoch: Epoch) -> tuple[object, ...]:
    return (
        epoch.number,
        epoch.count,
        time_text(epoch.committed_at_ms),
        " ".join(f"{p}@{offset}" for p, offset in sorted(epoch.ends.items())) or None,
        " ".join(f"{p}@{offset}" for p, offset in sorted(epoch.begins.items())) or None,
    )


def _cuts(cuts: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(cuts.items())}
