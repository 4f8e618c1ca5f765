"""What `keyorder compact` prints. The JSON objects are documented in docs/compaction.md and keep their shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..connector.cli.output import fields_in_json
from ..connector.compaction_settings import Finding
from .migration import StrategyChange
from .plan import CompactionPlan, CompactionReport
from .strategy import Strategy
from .versions import Version, positions_text

Rows = Iterator[tuple[object, ...]]


def strategy_document(strategy: Strategy) -> dict[str, str]:
    """{"strategy"} and, for the header strategy, {"header"}."""
    return {"strategy": strategy.kind.value, **({"header": strategy.header} if strategy.header else {})}


def plan_document(plan: CompactionPlan) -> dict[str, Any]:
    """The object of `compact plan`."""
    return {
        "topic": plan.topic,
        **strategy_document(plan.strategy),
        "managed": plan.managed,
        "records": plan.records,
        "bytes": plan.bytes,
        "keys": plan.keys,
        "tombstones": plan.tombstones,
        "appends": plan.appends,
        "append_bytes": plan.append_bytes,
        "malformed": plan.malformed,
        "unversioned": plan.unversioned,
        "seconds": round(plan.seconds, 3),
        "min_compaction_lag_seconds": plan.lag,
        "findings": _findings(plan.findings),
    }


def plan_rows(plan: CompactionPlan) -> Rows:
    """The same for people."""
    yield "strategy", _named(plan.strategy)
    yield "records read", f"{plan.records} ({plan.bytes} bytes) in {plan.seconds:.1f} s"
    yield "keys with a value", plan.keys
    yield "keys that are deleted", plan.tombstones
    yield "keys to write again", f"{plan.appends} ({plan.append_bytes} bytes)"
    if plan.malformed or plan.unversioned:
        yield (
            "records without a version",
            f"{plan.unversioned}, of them {plan.malformed} with a header of another length",
        )
    yield from _finding_rows(plan.findings)


def report_document(report: CompactionReport) -> dict[str, Any]:
    """The object of `compact run`."""
    return {
        "topic": report.topic,
        **strategy_document(report.strategy),
        "records": report.records,
        "bytes": report.bytes,
        "keys": report.keys,
        "tombstones": report.tombstones,
        "appends": report.appends,
        "append_bytes": report.append_bytes,
        "transactions": report.transactions,
        "raced": report.raced,
        "unappendable": report.unappendable,
        "seconds": round(report.seconds, 3),
        "findings": _findings(report.findings),
    }


def report_rows(report: CompactionReport) -> Rows:
    """The same for people."""
    yield "strategy", _named(report.strategy)
    yield "records read", f"{report.records} ({report.bytes} bytes) in {report.seconds:.1f} s"
    yield "keys written again", f"{report.appends} ({report.append_bytes} bytes) in {report.transactions} transactions"
    if report.raced:
        yield "of them for a version written meanwhile", report.raced
    if report.unappendable:
        yield "keys that could not be written again", report.unappendable
    yield from _finding_rows(report.findings)


def change_document(change: StrategyChange) -> dict[str, Any]:
    """The object of `compact set-strategy`."""
    return {
        "topic": change.topic,
        "before": strategy_document(change.before),
        "after": strategy_document(change.after),
        "changed": change.changed,
        "sampled": change.sampled,
        "lacking": change.lacking,
        "switched": positions_text(change.switched),
        "findings": _findings(change.findings),
        "notes": list(change.notes),
    }


def change_rows(change: StrategyChange) -> Rows:
    """The same for people."""
    yield "before", _named(change.before)
    yield "after", _named(change.after) if change.changed else "the same: nothing was changed"
    if change.sampled:
        yield "recent records without the header", f"{change.lacking} of {change.sampled}"
    for note in change.notes:
        yield "note", note
    yield from _finding_rows(change.findings)


def version_document(key: bytes, version: Version) -> dict[str, Any]:
    """One line of `compact view`: `encoding` names the fields that are base64, since they are not UTF-8."""
    parts, encoding = fields_in_json({"key": key, "value": version.value or b""})
    document: dict[str, Any] = {**parts}
    if encoding:
        document["encoding"] = encoding
    document |= {
        "version": version.version if version.versioned else None,
        "timestamp": version.timestamp,
        "partition": version.partition,
        "offset": version.offset,
    }
    return document


def _named(strategy: Strategy) -> str:
    return f"header {strategy.header}" if strategy.header else strategy.kind.value


def _findings(findings: tuple[Finding, ...]) -> list[dict[str, Any]]:
    return [{"setting": f.setting, "problem": f.problem, "fix": f.fix, "fatal": f.fatal} for f in findings]


def _finding_rows(findings: tuple[Finding, ...]) -> Rows:
    for finding in findings:
        yield "unsafe" if finding.fatal else "warning", finding
