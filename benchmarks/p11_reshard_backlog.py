"""P11: what records wait for when a topic is resharded over a backlog: a gate for keys, for partitions, a blocked shard."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message, Producer
from keyorder import Layout, OrderedProducer, TopicAdmin
from keyorder.connector import clock

from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result
from .harness.spread import Spread, percentile
from .reader import OLD, Reader

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KEYS = [b"k%d" % n for n in range(400)]
OWN = [key for key in KEYS if Layout(1, 2).home(key) == 0][:50]
_MOVED = [key for key in KEYS if Layout(1, 2).home(key) == 1]
MOVED, ABSENT = _MOVED[:50], _MOVED[50:100]
RATE, WORK, VALUE, LEAST = 400.0, 10_000.0, 100, 1.0
SHARES = {"p50": 0.5, "p99": 0.99}
Times = dict[str, float]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read across a change. gate: keyorder.gate, None for the whole shard. poll: seconds between its looks.

    early: with keyorder.gate.early.release.
    """

    name: str
    color: str
    gate: str | None
    poll: float | None = None
    early: bool = False


KEY, PARTITION = Way("gate by key", "#1f6f8b", "key"), Way("gate by partition", "#6aa84f", "partition")
EARLY = Way("early release", "#8e63ce", "key", early=True)
BLOCK, BLOCK_10 = (
    Way("whole shard, 0 s poll", "#e69138", None, 0.0),
    Way("whole shard, 10 s poll", "#c8553d", None, 10.0),
)
WAYS = {"shrink": (KEY, PARTITION, BLOCK, BLOCK_10), "growth": (EARLY, KEY, BLOCK)}


class ReshardBacklog(Measure):
    """The origin has a backlog when its keys move; what is written from then on waits in different ways."""

    id = "P11"
    title = "resharding under backlog"
    ours, theirs = "gate by key", "whole shard blocked, 0 s poll (simulated)"

    def run(self, bench: Bench) -> Result:
        """All ways in turns on each backlog, a fresh topic and group each time; the 10 s poll once."""
        repeats = bench.repeats
        backlogs = (0, 2_000) if bench.quick else (0, 2_000, 10_000, 50_000)
        plan = [(change, backlog) for change in WAYS for backlog in backlogs]
        found: dict[tuple[str, int, str], list[Times]] = {}
        self._once(bench, KEY, "shrink", 0)  # warm-up
        for number in range(repeats):
            for place, (change, backlog) in enumerate(plan):
                ways = WAYS[change]
                turn = (number + place) % len(ways)
                for way in ways[turn:] + ways[:turn]:
                    if way.poll and number:
                        continue
                    bench.say(f"run {number + 1} of {repeats}: {change}, backlog {backlog:,}, {way.name}")
                    found.setdefault((change, backlog, way.name), []).append(self._once(bench, way, change, backlog))
        return self._result(found, plan, repeats)

    def _once(self, bench: Bench, way: Way, change: str, backlog: int) -> Times:
        topic, admin = bench.topic("backlog"), TopicAdmin(bench.config)
        admin.create(topic, 2, config={"keyorder.view.age.ms": "200"}, initial_partition_count=1)
        origin = 1 if change == "shrink" else 0
        if change == "growth":
            admin.shrink(topic, 1)
        _backlog(bench.config, topic, origin, backlog)
        gate: dict[str, Any] = {"keyorder.gate": way.gate} if way.gate is not None else {"enable.auto.commit": False}
        if way.early:
            gate["keyorder.gate.early.release"] = True
        spec = {"config": {**bench.config, **gate}, "topic": topic, "rate": WORK, "block": way.poll}
        with ExitStack() as stack:
            # The owner of partition 0 makes the group's first commit, for which the other waits.
            readers = {
                p: stack.enter_context(
                    Reader(**spec, partition=p, waits=p == origin, backlog=backlog if p == origin else 0)
                )
                for p in range(2)
            }
            for reader in readers.values():
                reader.await_word("ready")
            writer = stack.enter_context(_Writer(bench.config, topic))
            (admin.shrink if change == "shrink" else admin.expand)(topic, 1 if change == "shrink" else 2)
            epoch = admin.timeline(topic).newest
            cuts = {**epoch.ends, **epoch.begins}
            for p in (1 - origin, origin):
                readers[p].say("go " + json.dumps({"limit": cuts[p], "parents": epoch.ends}))
                readers[p].await_word("gone")
            began = clock.now()
            writer.start()
            readers[1 - origin].await_word("drained")
            readers[origin].await_word("drained")
            sent = writer.finish(began + LEAST)
            # Even numbers are of own keys. After growth they stay in the origin, all else is in the target.
            moved = len(sent) // 2
            due = {0: len(sent), 1: 0} if change == "shrink" else {0: len(sent) - moved, 1: moved}
            given: dict[int, float] = {}
            for p, reader in readers.items():
                reader.say(f"stop {due[p]}")
            for reader in readers.values():
                given.update({int(n): at for n, at in json.loads(reader.line()).items()})
        return _times(sent, given, began)

    def _result(
        self, found: dict[tuple[str, int, str], list[Times]], plan: list[tuple[str, int]], repeats: int
    ) -> Result:
        figures: list[Figure] = []
        for change, backlog in plan:
            first, second, block = (found[change, backlog, way.name] for way in WAYS[change][:3])
            for what in first[0]:
                title = f"{change}, {backlog:,}: {what}"
                figures.append(_figure(f"{title}, {WAYS[change][0].name}", what, first, block))
                figures.append(_figure(f"{title}, {WAYS[change][1].name}", what, second, block))
                if change == "shrink":
                    slow = found[change, backlog, BLOCK_10.name]
                    figures.append(_figure(f"{title}, 10 s poll", what, slow, None))
        largest = max(backlog for _, backlog in plan)
        medians = {
            (change, way.name): {
                what: Spread.of([times[what] for times in found[change, largest, way.name]]).median
                for what in found[change, largest, way.name][0]
            }
            for change, ways in WAYS.items()
            for way in ways
        }
        own, calm = medians["shrink", KEY.name]["own keys, p99"], found["shrink", 0, KEY.name]
        calm_p99 = Spread.of([t["own keys, p99"] for t in calm]).median
        ratio = medians["shrink", KEY.name]["moved keys, p99"] / medians["shrink", BLOCK.name]["moved keys, p99"]
        early, late = (medians["growth", way.name]["absent keys, p50"] for way in (EARLY, KEY))
        return Result(
            data={
                "backlog": "0 to " + f"{largest:,} records of keys that move",
                "origin read at": f"{WORK:,.0f} records/s",
                "written meanwhile": f"{RATE:.0f} records/s, half of them of keys that moved",
                "keys": len(OWN) + len(MOVED) + len(ABSENT),
                "bytes": VALUE,
                "partitions": "2 -> 1, 1 -> 2",
            },
            repeats=repeats,
            figures=figures,
            goals=[
                Goal(
                    "own keys of a shrink's target do not wait for the backlog: p99 <= 100 ms",
                    f"{own:.0f} ms at {largest:,}, {calm_p99:.0f} ms without a backlog",
                    own <= 100,
                ),
                Goal("moved keys wait no longer than behind a blocked shard: p99 <= 1.1", f"{ratio:.2f}", ratio <= 1.1),
                Goal(
                    "early release: absent keys of a growth's target do not wait for the backlog: p50 <= 100 ms",
                    f"{early:.0f} ms at {largest:,}, {late:.0f} ms without it",
                    early <= 100,
                ),
            ],
            notes=[
                "From acknowledgement to delivery, of records written while the origin is drained, at least "
                f"{LEAST:.0f} s; drained: from the change to the last moved one of these.",
                "Whole shard: simulated with plain consumers on the same broker. Nothing behind the change is given out "
                "before a look finds all parents done; looks begin with the change. 10 s is KCL's published default "
                "(parentShardPollIntervalMillis); it ran once for each backlog.",
                "After growth own keys are those that stay in the origin: they lie behind its backlog in any case.",
                "Moved keys are in the backlog, absent keys have moved as well and are not in it. Early release begins to read "
                "the backlog when a gate has been closed for 0.2 s, and lets nothing go before it is through.",
            ],
            series={
                f"{change}, {way.name}": {
                    str(backlog): {
                        what: Spread.of([t[what] for t in found[change, backlog, way.name]]).median for what in times[0]
                    }
                    for (c, backlog, name), times in found.items()
                    if (c, name) == (change, way.name)
                }
                for change, ways in WAYS.items()
                for way in ways
            },
        )

    def plot(self, result: Result, axes: Axes) -> None:
        """The median by the backlog; the band reaches up to p99. Shrinks: own and moved keys; growths: moved and absent ones."""
        figure = axes.get_figure(root=True)
        assert figure is not None
        axes.remove()
        figure.set_size_inches(12, 4.5)
        figure.suptitle(f"{self.id}: {self.title}")
        sides = figure.subplots(1, 2, sharey=True)
        styles = {"shrink": (("own", "-"), ("moved", "--")), "growth": (("moved", "--"), ("absent", "-"))}
        for side, (change, ways) in zip(sides, WAYS.items(), strict=True):
            for way in ways:
                curve = result.series[f"{change}, {way.name}"]
                sizes = sorted(map(int, curve))
                for keys, style in styles[change]:
                    p50, p99 = (
                        [max(curve[str(size)][f"{keys} keys, {share}"], 0.1) for size in sizes] for share in SHARES
                    )
                    label = f"{way.name}: {keys} keys"
                    side.plot(sizes, p50, style, color=way.color, marker="o", markersize=3, label=label)
                    side.fill_between(sizes, p50, p99, color=way.color, alpha=0.1)
            side.set_title(change)
            side.set_xscale("symlog", linthresh=1_000)
            side.set_yscale("log")
            side.set_xlabel("backlog of the origin when its keys move, records")
            side.legend(loc="best", fontsize=7, handlelength=3.5)
        sides[0].set_ylabel("acknowledged to delivered, ms (p50 .. p99)")


class _Writer(threading.Thread):
    """Numbered records of own and moved keys in turn, at a steady rate; one unnumbered of each key before."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        super().__init__(daemon=True)
        self._topic, self._over, self._acknowledged = topic, threading.Event(), list[float]()
        self._producer = OrderedProducer({**config, "linger.ms": 0})
        for key in OWN:
            self._producer.produce(topic, _value(-1), key)
        if self._producer.flush(30):
            raise RuntimeError("the first records were not acknowledged")

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._producer.close()

    def run(self) -> None:
        due = clock.now()
        while not self._over.is_set():
            number = len(self._acknowledged)
            self._acknowledged.append(0.0)
            done = partial(self._delivered, number)
            self._producer.produce(self._topic, _value(number), _key(number), on_delivery=done)
            self._producer.poll(0)
            due += 1 / RATE
            until = max(due, clock.now())
            while (left := until - clock.now()) > 0:
                self._producer.poll(left)  # the pace of the load; acknowledgements are noted meanwhile

    def _delivered(self, number: int, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acknowledged[number] = clock.now()

    def finish(self, earliest: float) -> list[float]:
        """Stop, not before `earliest`; when each number was acknowledged."""
        self._over.wait(max(0.0, earliest - clock.now()))
        self._over.set()
        self.join()
        self._producer.flush(30)
        if not all(self._acknowledged):
            raise RuntimeError("a record failed: the figures would leave it out")
        return self._acknowledged


def _backlog(config: dict[str, Any], topic: str, partition: int, records: int) -> None:
    """Records of the keys that will move, where they live now."""
    producer = Producer({**config, "linger.ms": 20, "queue.buffering.max.messages": 10**6})
    for number in range(records):
        producer.produce(topic, OLD.ljust(VALUE), MOVED[number % len(MOVED)], partition)
    if producer.flush(60):
        raise RuntimeError(f"{topic} could not be filled within a minute")


def _value(number: int) -> bytes:
    return (b"%d" % number).ljust(VALUE)


def _key(number: int) -> bytes:
    """Own keys in turn with moved ones, and of these such as are in the backlog in turn with such as are not."""
    keys = OWN if number % 2 == 0 else MOVED if number % 4 == 1 else ABSENT
    return keys[number // 4 % len(keys)]


def _times(sent: list[float], given: dict[int, float], began: float) -> Times:
    """Milliseconds. A record may be given before its writer has come to hear of the acknowledgement."""
    if len(given) != len(sent):
        raise RuntimeError(f"{len(sent)} records were sent, {len(given)} seen: the figures would be wrong")
    waits = [max(0.0, given[number] - acknowledged) * 1e3 for number, acknowledged in enumerate(sent)]
    parts = {"own": waits[::2], "moved": waits[1::4], "absent": waits[3::4]}
    found = {
        f"{keys} keys, {name}": percentile(part, share)
        for keys, part in parts.items()
        for name, share in SHARES.items()
    }
    return {**found, "moved keys drained": (max(given[n] for n in range(1, len(sent), 2)) - began) * 1e3}


def _figure(name: str, what: str, ours: list[Times], theirs: list[Times] | None) -> Figure:
    mine = [times[what] for times in ours]
    if theirs is None:
        return Figure(name, "ms", Spread.of(mine))
    others = [times[what] for times in theirs]
    ratios = [a / b for a, b in zip(mine, others, strict=True) if b]
    return Figure(name, "ms", Spread.of(mine), Spread.of(others), Spread.of(ratios) if ratios else None)


MEASURE = ReshardBacklog()
