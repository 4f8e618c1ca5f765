"""What dry runs of changes print. The JSON objects are documented in docs/commands.md and keep their shape."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import Any

from ...operations.forecast import ChangeForecast, ForcedDrain, GroupForecast, HoldForecast
from ..output import echo_wrapped, emit_table
from ..topics_output import layout_document, notices_document, show_notices


def plan_document(found: ChangeForecast) -> dict[str, Any]:
    """The object of `topics plan`, and of `expand` and `shrink` with --dry-run."""
    hold = found.hold
    return {
        "dry_run": True,
        "topic": found.topic,
        "current": layout_document(found.current),
        "target": layout_document(found.target),
        "partitions_to_create": found.partitions_to_create,
        "share_moved": _share(found.share_moved),
        "share_moved_by_stock": _share(found.plan.share_moved_by_stock),
        "moves": [{"from": move.source, "to": move.target, "share": _share(move.share)} for move in found.moves],
        "hold": {
            "seconds": hold.seconds,
            "at_most_s": hold.at_most_s,
            "measured_at_epochs": list(hold.epochs),
            "moving_records_per_s": _rounded(hold.moving_per_s),
        },
        "groups": [_group(group) for group in found.groups],
        "sampled_s": round(found.sampled_s, 3),
        "waits_for_groups": list(found.waits_for_groups),
        "not_waited_for": found.not_waited_for,
        "delay_ms": found.delay_ms,
        "stock_producers": asdict(found.stock),
        "warnings": notices_document(found.warnings),
    }


def forced_document(found: ForcedDrain) -> dict[str, Any]:
    """What a forced drain would lose."""
    return {
        "records": {str(p): records for p, records in sorted(found.records.items())},
        "losses": [asdict(loss) for loss in found.losses],
    }


def show_plan(found: ChangeForecast) -> None:
    """A dry run for people."""
    plan = found.plan
    before, after = plan.current.count, plan.target.count
    if not plan.moves:
        echo_wrapped(f"Topic {found.topic} has {after} partitions already: nothing would change")
        show_notices(found.warnings)
        return
    echo_wrapped(
        f"Topic {found.topic}: {before} -> {after} partitions (initial {plan.current.initial}), "
        f"{found.partitions_to_create} to be created"
    )
    echo_wrapped(f"Keys that move: {_text(plan.share_moved)}; the others stay and never wait")
    echo_wrapped(f"For comparison, the stock partitioner would move {_text(plan.share_moved_by_stock)}")
    emit_table(("from", "to", "share of all keys"), [(m.source, m.target, _text(m.share)) for m in plan.moves])
    echo_wrapped(_hold_text(found.hold))
    if found.groups:
        emit_table(
            ("group", "left to read where keys leave", "offsets", "gates open after"),
            [
                (
                    group.group,
                    " ".join(f"{b.partition}: {b.lag}" for b in group.backlogs if b.lag) or "nothing",
                    group.lag,
                    _gate_text(group),
                )
                for group in found.groups
            ],
        )
    else:
        echo_wrapped("Groups: none has committed offsets here")
    if plan.retired:
        waited = ", ".join(found.waits_for_groups) or "no group"
        echo_wrapped(f"Before partitions are emptied, {waited} is waited for, and {(found.delay_ms or 0) / 1000:g} s")
    show_notices(found.warnings)


def _group(found: GroupForecast) -> dict[str, Any]:
    return {
        "group": found.group,
        "lag": found.lag,
        "origins": [
            {
                "partition": b.partition,
                "at": b.at,
                "end": b.end,
                "lag": b.lag,
                "consumed_per_s": _rounded(b.consumed_per_s),
            }
            for b in found.backlogs
        ],
        "gate_s": _rounded(found.gate_s),
        "gate_unknown_because": found.why or None,
        "waited_for": found.named,
    }


def _hold_text(hold: HoldForecast) -> str:
    if hold.seconds is None:
        known = "unknown before the first change of this topic"
    else:
        known = f"{hold.seconds:.3f} s, the longest of the earlier changes to epochs {', '.join(map(str, hold.epochs))}"
    pace = "" if hold.moving_per_s is None else f"; {hold.moving_per_s:.0f} of their records come in per second"
    return f"Records of moving keys are held: {known}; {hold.at_most_s:g} s at most per attempt{pace}"


def _gate_text(group: GroupForecast) -> str:
    return f"unknown ({group.why})" if group.gate_s is None else f"about {group.gate_s:.1f} s at its present pace"


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _share(share: Fraction) -> dict[str, Any]:
    return {"fraction": str(share), "percent": round(float(share) * 100, 3)}


def _text(share: Fraction) -> str:
    return f"{share} ({float(share):.1%})"
