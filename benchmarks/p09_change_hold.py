"""P9: how long a layout change makes writers wait, against a stop-the-world copy to a new topic."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not re-exported
from keyorder import Layout, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.log_offsets import LogOffsets

from .copying import copy
from .harness.bench import Bench, Pairs
from .harness.measure import Figure, Goal, Measure, Result
from .harness.spread import Spread, percentile
from .load import Sent, drained, fill, key_of, writers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEFORE, AFTER = 8, 12
WRITERS, RATE, KEYS, VALUE, BROKERS = 10, 300.0, 10_000, 200, 3
LIGHT = 100.0
MOVING = [Layout(BEFORE, BEFORE).home(key_of(n)) != Layout(BEFORE, AFTER).home(key_of(n)) for n in range(KEYS)]


class ChangeHold(Measure):
    """Ours: `expand` beneath ten writers. Theirs: stop the ten writers, copy all, point them at the new topic."""

    id = "P9"
    title = "what a change of the partition count costs writers"
    theirs = "stop-the-world copy"

    def run(self, bench: Bench) -> Result:
        """A fresh topic, filled to the same size, for each run; beside three brokers the changes alone."""
        records = 50_000 if bench.quick else 1_000_000
        calm = 2.0 if bench.quick else 5.0
        holds: list[float] = []
        held: list[float] = []
        with tempfile.TemporaryDirectory(prefix="keyorder-bench-") as made:
            folder = Path(made)

            def ours() -> dict[str, float]:
                return self._change(bench, records, folder, calm, holds, held)

            def theirs() -> dict[str, float]:
                topic = bench.topic("copy")
                self._stock(bench.config, topic, BEFORE)
                fill(bench.config, topic, records, KEYS, b"v" * VALUE)
                return self._copy(bench, topic, folder, calm)

            pairs = bench.pairs(ours, theirs)
            result = self._result(pairs, records, holds, held)
            light: list[dict[str, float]] = []
            for number in range(few := min(bench.repeats, 3)):
                bench.say(f"light load, run {number + 1} of {few}")
                light.append(self._change(bench, records // 10, folder, calm, [], [], LIGHT))
            waits: list[float] = []
            found: list[dict[str, float]] = []
            with bench.beside(BROKERS) as three:
                bench.say(f"{BROKERS} brokers, warm-up")
                self._change(three, records // 10, folder, calm, [], [])
                for number in range(three.repeats):
                    bench.say(f"{BROKERS} brokers, run {number + 1} of {three.repeats}")
                    found.append(self._change(three, records // 10, folder, calm, [], waits))
        return self._with_three(_with_light(result, light), found, waits)

    def _change(
        self,
        bench: Bench,
        records: int,
        folder: Path,
        calm: float,
        holds: list[float],
        held: list[float],
        rate: float = RATE,
    ) -> dict[str, float]:
        topic = bench.topic("hold")
        TopicAdmin(bench.config).create(topic, BEFORE)
        fill(bench.config, topic, records, KEYS, b"v" * VALUE)
        steps: list[tuple[str, float]] = []
        with writers(bench, WRITERS, topic, folder, True, rate, KEYS, VALUE) as crew:
            meter = bench.meter()
            _rest(calm)
            rested = meter.stop()
            began = clock.now()
            meter = bench.meter(apart=[writer.pid for writer in crew])
            TopicAdmin(bench.config, lambda name: steps.append((name, clock.now()))).expand(topic, AFTER)
            cost = meter.stop()
            _rest(0.5)
            seen = [writer.finish() for writer in crew]
        _none_failed(seen)
        longest = [max(sent.held) * 1e3 for sent in seen if sent.held]
        waits = [t * 1e3 for sent in seen for t in sent.held]
        holds.extend(longest)
        held.extend(waits)
        prepared = next(at for name, at in steps if name.startswith("prepar"))
        during = _latencies(seen, prepared, steps[-1][1])
        span = max(steps[-1][1] - prepared, 0.02)
        base = _latencies(seen, began - calm * 0.8, began)
        slices = [_latencies(seen, began - k * span, began - (k - 1) * span) for k in range(1, int(calm * 0.8 / span))]
        slices = [s for s in slices if s] or [base]
        drains = [wait * 1e3 for wait in drained(seen, began - calm * 0.8, began)]
        return {
            "stopped": percentile(longest, 0.5),
            "longest": max(longest),
            "held p50": percentile(waits, 0.5),
            "held p99": percentile(waits, 0.99),
            "change": cost.wall,
            "cpu": cost.cpu,
            "staying p50 calm": percentile(base, 0.5),
            "staying p50 during": percentile(during, 0.5),
            "staying p99 calm": percentile(base, 0.99),
            "staying p99 during": percentile(during, 0.99),
            "noise p50": percentile([percentile(s, 0.5) for s in slices], 0.95),
            "noise p99": percentile([percentile(s, 0.99) for s in slices], 0.95),
            "cores calm": (rested.cpu + rested.broker_cpu) / rested.wall,
            "drained p50 calm": percentile(drains, 0.5),
            "drained p99 calm": percentile(drains, 0.99),
        }

    def _copy(self, bench: Bench, topic: str, folder: Path, calm: float) -> dict[str, float]:
        target = f"{topic}-new"
        self._stock(bench.config, target, AFTER)
        with writers(bench, WRITERS, topic, folder, False, RATE, KEYS, VALUE) as crew:
            _rest(calm)
            meter = bench.meter(apart=[writer.pid for writer in crew])
            stopped = clock.now()
            for writer in crew:
                writer.say("pause")
            for writer in crew:
                writer.heard()
            offsets = LogOffsets(bench.config)
            marks = offsets.high_watermarks([(topic, p) for p in range(BEFORE)], timeout=10.0)
            offsets.close()
            copy(bench.config, topic, target, {p: mark for (_, p), mark in marks.items()})
            cost = meter.stop()
            for writer in crew:
                writer.say(f"resume {target}")
            waits = [(writer.heard() - stopped) * 1e3 for writer in crew]
            _none_failed([writer.finish() for writer in crew])
        return {"stopped": percentile(waits, 0.5), "longest": max(waits), "change": cost.wall, "cpu": cost.cpu}

    def _stock(self, config: dict[str, Any], topic: str, partitions: int) -> None:
        admin = AdminClient(config)
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def _result(self, pairs: Pairs, records: int, holds: Sequence[float], held: Sequence[float]) -> Result:
        stopped = pairs.reported("stopped", "ms")
        alone = {
            name: Spread.of([run.values[name] for run in pairs.ours]) for name in pairs.ours[0].values if " " in name
        }
        p50, p99 = percentile(holds, 0.5), percentile(holds, 0.99)
        added = {
            share: Spread.of(
                [r.values[f"staying {share} during"] - r.values[f"staying {share} calm"] for r in pairs.ours]
            )
            for share in ("p50", "p99")
        }
        room = {s: alone[f"noise {s}"].median - alone[f"staying {s} calm"].median for s in added}
        assert stopped.theirs is not None
        shorter = stopped.theirs.median / stopped.ours.median
        return Result(
            data={
                "records": records,
                "bytes": records * (VALUE + 16),
                "keys": KEYS,
                "partitions": f"{BEFORE} -> {AFTER}",
                "writers": WRITERS,
                "load": f"{WRITERS * RATE:.0f} records/s",
            },
            repeats=len(pairs.ours),
            figures=[
                stopped,
                pairs.reported("longest", "ms"),
                Figure("held records, p50", "ms", alone["held p50"]),
                Figure("held records, p99", "ms", alone["held p99"]),
                pairs.reported("change", "s"),
                pairs.reported("cpu", "s"),
                Figure("cores that writers and broker take, calm", "", alone["cores calm"]),
                Figure("all in flight acknowledged, calm, p50", "ms", alone["drained p50 calm"]),
                Figure("all in flight acknowledged, calm, p99", "ms", alone["drained p99 calm"]),
                Figure("staying keys, latency p50 calm", "ms", alone["staying p50 calm"]),
                Figure("staying keys, latency p50 during", "ms", alone["staying p50 during"]),
                Figure("staying keys, latency p99 calm", "ms", alone["staying p99 calm"]),
                Figure("staying keys, latency p99 during", "ms", alone["staying p99 during"]),
            ],
            goals=[
                Goal("hold of a writer's moving keys, p50 <= 15 ms", f"{p50:.1f} ms", p50 <= 15),
                Goal("p99 <= 40 ms", f"{p99:.1f} ms", p99 <= 40),
                Goal(
                    "added to keys that stay, p50: nothing",
                    f"{added['p50'].median:+.2f} ms; calm stretches of that length vary by {room['p50']:.2f} ms",
                    added["p50"].median <= max(room["p50"], 0.0),
                ),
                Goal(
                    "p99 <= 1 ms",
                    f"{added['p99'].median:+.2f} ms; calm stretches of that length vary by {room['p99']:.2f} ms",
                    added["p99"].median <= 1.0,
                ),
                Goal(">= 100 times shorter than the copy", f"{shorter:,.0f} times", shorter >= 100),
            ],
            notes=[
                "stopped: the median writer's longest wait in a change; longest: the worst writer's.",
                "all in flight acknowledged: how long the broker took, without a change, for what the writers had sent at"
                " a moment. A change waits for the same before it reads the cuts.",
                "The copy's time grows with the data, the hold does not. Consumers' offsets are not carried over here;"
                " that would come on top of the copy.",
            ],
            series={
                "hold of each writer, ms": list(holds),
                "held records, ms": sorted(held)[:: max(1, len(held) // 500)],
            },
        )

    def _with_three(self, result: Result, found: Sequence[dict[str, float]], waits: Sequence[float]) -> Result:
        """With the figures of the changes beside three brokers."""
        p50, p99 = percentile(waits, 0.5), percentile(waits, 0.99)
        added = Spread.of([values["staying p99 during"] - values["staying p99 calm"] for values in found])
        units = {
            "held p50": "ms",
            "held p99": "ms",
            "change": "s",
            "staying p99 calm": "ms",
            "staying p99 during": "ms",
        }
        return replace(
            result,
            figures=[*result.figures, *_figures(f"{BROKERS} brokers", units, found)],
            goals=[
                *result.goals,
                Goal(f"{BROKERS} brokers: held p50 <= 15 ms", f"{p50:.1f} ms", p50 <= 15),
                Goal(f"{BROKERS} brokers: held p99 <= 40 ms", f"{p99:.1f} ms", p99 <= 40),
                Goal(
                    f"{BROKERS} brokers: added to keys that stay, p99 <= 1 ms",
                    f"{added.median:+.2f} ms",
                    added.median <= 1,
                ),
            ],
        )

    def plot(self, result: Result, axes: Axes) -> None:
        """How long writers waited, as shares, on a logarithmic axis."""
        holds = sorted(result.series["hold of each writer, ms"])
        copied = result.figures[0].theirs
        assert copied is not None
        axes.plot(holds, [(i + 1) / len(holds) for i in range(len(holds))], drawstyle="steps-post", label="keyorder")
        axes.axvline(copied.median, color="#c8553d", linestyle="--", label="stop-the-world copy (median)")
        axes.set_xscale("log")
        axes.set_xlabel("how long a writer's moving keys wait, ms")
        axes.set_ylabel("share of writers and changes")
        axes.legend(loc="center right")


def _with_light(result: Result, found: Sequence[dict[str, float]]) -> Result:
    """With the figures of the changes beneath a third of the load."""
    units = {"held p50": "ms", "held p99": "ms", "staying p99 calm": "ms", "staying p99 during": "ms", "cores calm": ""}
    return replace(result, figures=[*result.figures, *_figures(f"{WRITERS * LIGHT:.0f} records/s", units, found)])


def _figures(situation: str, units: dict[str, str], found: Sequence[dict[str, float]]) -> list[Figure]:
    """What the changes of one situation gave, by name and unit."""
    return [
        Figure(f"{situation}: {name}", unit, Spread.of([values[name] for values in found]))
        for name, unit in units.items()
    ]


def _rest(seconds: float) -> None:
    """Let the load run: the length of a stretch that is measured, nothing is awaited."""
    from threading import Event

    Event().wait(seconds)


def _latencies(seen: Sequence[Sent], since: float, until: float) -> list[float]:
    """Milliseconds to acknowledgement of records of keys that stay, handed over in [since, until)."""
    return [
        latency * 1e3
        for sent in seen
        for at, latency, key in zip(sent.at, sent.latency, sent.key, strict=True)
        if since <= at < until and not MOVING[key]
    ]


def _none_failed(seen: Sequence[Sent]) -> None:
    failed = sum(sent.failed for sent in seen)
    if failed:
        raise RuntimeError(f"{failed} records failed: the figures would leave them out")


MEASURE = ChangeHold()
