"""P13: what grows with partitions, epochs and writers: gate check, routing, planner, start, change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, pairwise
from math import log10
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # not re-exported
from keyorder import Layout, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control.control_reader import readable
from keyorder.connector.control.control_topics import all_writer_slots, timeline_slot, writer_slot
from keyorder.connector.metadata import wait_for_partitions
from keyorder.partitioner.changes.plan import plan_change
from keyorder.partitioner.epochs import ChangePhase, Epoch
from keyorder.partitioner.folding import folded, origins_to_fold
from keyorder.partitioner.gates.gate import Gates
from keyorder.partitioner.records.control_records import (
    Lease,
    LeaseState,
    Ready,
    decode_timeline,
    encode_lease,
    encode_timeline,
    lease_key,
    timeline_key,
)
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline, crossings
from keyorder.partitioner.writers.members import WriterSet

from .crowd import Crowd
from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result
from .harness.spread import Spread
from .load import key_of
from .reader_growth import first_records, rereads, starts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = dict[int, Spread]
LOW, HIGH = 8, 12
RENEWALS = 60  # ten minutes of them: what stands in a segment that the cleaner has not come to
RECENT = 30  # timelines of the last ten changes
QUICK_VIEW = {"keyorder.view.age.ms": "200"}


class Growth(Measure):
    """Nothing is held against it: the slope is the figure."""

    id = "P13"
    title = "cost by partitions, epochs and writers"
    theirs = "-"

    def run(self, bench: Bench) -> Result:
        """Curves, each point repeated; the pure ones without a broker."""
        tens = (10, 100) if bench.quick else (10, 100, 1_000)
        partitions = tens if bench.quick else (*tens, 10_000)
        curves: dict[str, Curve] = {}
        many = tens if bench.quick else (*tens, 10_000)
        for name, axis, make in (
            ("partitions", partitions, by_partitions),
            ("epochs", (1, *many), by_epochs),
        ):
            for size in axis:
                bench.say(f"{size} {name}, without a broker")
                for what, spread in pure(bench, make(size)).items():
                    curves.setdefault(f"{what}, by {name}", {})[size] = spread
        for size in partitions:
            bench.say(f"planner, {size} partitions")
            layout = Layout(max(1, size // 2), max(1, size // 2))
            curves.setdefault("planner, by partitions", {})[size] = timed(
                bench,
                lambda layout=layout, size=size: plan_change(layout, size).share_moved,  # type: ignore[misc]
            )
        for size, spread in folding(bench, many).items():
            curves.setdefault("a change of a timeline that folds, by changes made", {})[size] = spread
        self._starts(bench, tens, curves)
        self._changes(bench, tens, partitions, curves)
        self._readers(bench, curves)
        return self._result(bench, curves)

    def _starts(self, bench: Bench, tens: Sequence[int], curves: dict[str, Curve]) -> None:
        for size in (1, *tens):
            bench.say(f"start with {size} epochs and {size} writers")
            topic = bench.topic("start")
            newest = grown_topic(bench, topic, size)
            records = [
                replace(newest, epochs=newest.epochs[: max(1, len(newest.epochs) - n // 3)]) for n in range(RECENT)
            ]
            put(bench, [(*timeline_slot(topic), timeline_key(topic), encode_timeline(t)) for t in reversed(records)])
            put(bench, leases(topic, size))
            slots = [timeline_slot(topic), *all_writer_slots()]

            def load(slots: Any = slots, topic: str = topic, size: int = size) -> None:
                writers = WriterSet()
                for message in readable(bench.config, slots, 30.0):
                    record = (
                        message.record if message.key.endswith(topic.encode()) or message.slot in slots[1:] else None
                    )
                    if isinstance(record, Lease | Ready):
                        writers.apply(record, message.offset, clock.now())
                if sum(1 for _ in writers.live(topic)) != size:
                    raise RuntimeError("the writers were not all read")

            def first_record(topic: str = topic) -> None:
                with OrderedProducer(bench.config) as producer:
                    producer.produce(topic, b"v", b"k")
                    if producer.flush(30):
                        raise RuntimeError("the first record was not acknowledged")

            curves.setdefault("control topics loaded, by epochs and writers", {})[size] = timed(bench, load, 1)
            curves.setdefault("first record of a new producer, by epochs and writers", {})[size] = timed(
                bench, first_record, 1
            )
            put(bench, leases(topic, size, LeaseState.LEFT))  # or the next point would read them too

    def _changes(self, bench: Bench, tens: Sequence[int], partitions: Sequence[int], curves: dict[str, Curve]) -> None:
        for size in partitions:
            bench.say(f"changes of {size} partitions")
            topic = bench.topic("wide")
            admin = TopicAdmin(bench.config)
            # Half at first: a controller of Kafka refuses to make 10 000 partitions in one request.
            admin.create(topic, size // 2, config=QUICK_VIEW, timeout=300.0)
            admin.expand(topic, size, timeout=300.0)
            counts = iter(range(size + 1, size + 100))
            curves.setdefault("change, by partitions", {})[size] = self._change(bench, topic, lambda: next(counts))  # noqa: B023
        for size in (1, *tens):
            bench.say(f"changes after {size} epochs")
            topic = bench.topic("long")
            newest = grown_topic(bench, topic, size)
            put(bench, [(*timeline_slot(topic), timeline_key(topic), encode_timeline(newest))])
            turns = cycle([LOW, HIGH] if newest.newest.count == HIGH else [HIGH, LOW])
            curves.setdefault("change, by epochs", {})[size] = self._change(bench, topic, lambda: next(turns))  # noqa: B023
        topic = bench.topic("row")
        TopicAdmin(bench.config).create(topic, LOW, config=QUICK_VIEW)
        turns = cycle([HIGH, LOW])
        for size in (10, 20) if bench.quick else (20, 100, 200):
            bench.say(f"changes in a row, up to {size}")
            admin = TopicAdmin(bench.config)
            while admin.timeline(topic).newest.number < size - bench.repeats - 1:
                count = next(turns)
                (admin.expand if count == HIGH else admin.shrink)(topic, count)
            curves.setdefault("change, by changes in a row", {})[size] = self._change(bench, topic, lambda: next(turns))
            slots = [timeline_slot(topic), *all_writer_slots()]
            curves.setdefault("control topics loaded, by changes in a row", {})[size] = timed(
                bench,
                lambda: readable(bench.config, slots, 30.0),  # noqa: B023
                1,
            )
        for size in (1, *tens):
            bench.say(f"changes beneath {size} writers")
            topic = bench.topic("many")
            TopicAdmin(bench.config).create(topic, LOW, config=QUICK_VIEW)
            with Crowd(bench.config, topic) as crowd:
                crowd.join(size)
                crowd.await_that(lambda: crowd.live() == size, 120)  # noqa: B023
                turns = cycle([HIGH, LOW])
                curves.setdefault("change, by writers", {})[size] = self._change(bench, topic, lambda: next(turns))  # noqa: B023
                crowd.leave(size)

    def _readers(self, bench: Bench, curves: dict[str, Curve]) -> None:
        for size in (1, 20) if bench.quick else (1, 50, 300):
            bench.say(f"a consumer of {size} topics")
            ours, theirs = first_records(bench, size)
            curves.setdefault("first records, by topics", {})[size] = ours
            curves.setdefault("stock first records, by topics", {})[size] = theirs
            ours, theirs = starts(bench, size)
            curves.setdefault("consumer start, by topics", {})[size] = ours
            curves.setdefault("stock consumer start, by topics", {})[size] = theirs
        for size in (10, 40) if bench.quick else (10, 100, 1_000):
            bench.say(f"a grown topic of {size} partitions")
            ours, theirs, closed = rereads(bench, size)
            curves.setdefault("grown topic read again, by partitions", {})[size] = ours
            curves.setdefault("the same by a stock consumer, by partitions", {})[size] = theirs
            curves.setdefault("CPU in a second behind closed gates, by partitions", {})[size] = closed

    def _change(self, bench: Bench, topic: str, count: Callable[[], int]) -> Spread:
        admin = TopicAdmin(bench.config)
        now = admin.timeline(topic).newest.count

        def change() -> None:
            nonlocal now
            wanted = count()
            (admin.expand if wanted > now else admin.shrink)(topic, wanted, timeout=300.0)
            now = wanted

        return timed(bench, change, 1)

    def _result(self, bench: Bench, curves: dict[str, Curve]) -> Result:
        def at(name: str, size: int | None = None) -> tuple[int, float]:
            curve = curves[name]
            largest = max(curve) if size is None else size
            return largest, curve[largest].median

        figures = [
            Figure(f"{name}: {size:,}", "ms", scaled(spread, 1e3))
            for name, curve in curves.items()
            for size, spread in curve.items()
            if size in (min(curve), max(curve))
        ]
        made, folds = at("a change of a timeline that folds, by changes made")
        _, few = at("a change of a timeline that folds, by changes made", 100)
        epochs, long = at("gate check, by epochs")
        _, short = at("gate check, by epochs", 10)
        wide, plan = at("planner, by partitions")
        size, start = at("control topics loaded, by epochs and writers")
        _, first = at("first record of a new producer, by epochs and writers")
        topics, joined = at("consumer start, by topics")
        _, stock_joined = at("stock consumer start, by topics")
        read, again = at("grown topic read again, by partitions")
        _, stock_again = at("the same by a stock consumer, by partitions")
        _, closed = at("CPU in a second behind closed gates, by partitions")
        return Result(
            data={"records": "timelines and leases", "partitions": max(curves["planner, by partitions"]), "epochs": epochs,
                  "writers": max(curves["change, by writers"])},
            repeats=bench.repeats,
            figures=figures,
            goals=[
                Goal("gate check grows with the logarithm of the epochs or less",
                     f"{long / short:.2f} times from 10 to {epochs:,} epochs", long / short <= log10(epochs)),
                Goal("a change of a timeline that folds costs the same however many there were",
                     f"{folds / few:.2f} times from 100 to {made:,} changes", folds / few <= 1.5),
                Goal(f"planner <= 100 ms at {wide:,} partitions", f"{plan * 1e3:.1f} ms", plan <= 0.1),
                Goal(f"start <= 2 s with {size:,} epochs and {size:,} writers",
                     f"control topics {start:.2f} s, first record acknowledged after {first:.2f} s",
                     start <= 2 and first <= 2),
                Goal(f"consumer of {topics:,} topics starts in twice the stock one's time",
                     f"{joined / stock_joined:.2f} times", joined <= 2 * stock_joined),
                Goal(f"grown topic of {read:,} partitions read again in 1.3 times the stock one's time",
                     f"{again / stock_again:.2f} times", again <= 1.3 * stock_again),
                Goal(f"a member behind closed gates takes 5 % of a core at {read:,} partitions",
                     f"{closed * 100:.1f} %", closed <= 0.05),
            ],
            notes=[
                "A change's time holds twice keyorder.view.age.ms, here 0.4 s, and the making of partitions.",
                f"Control topics as they stand before the cleaner comes: {RECENT} timelines, {RENEWALS} renewals of each writer.",
                "Changes by writers: all sessions run in one thread of this process.",
            ],
            series={name: {str(n): [s.low, s.median, s.high] for n, s in curve.items()} for name, curve in curves.items()},
        )  # fmt: skip

    def plot(self, result: Result, axes: Axes) -> None:
        """All curves, both axes logarithmic."""
        for number, (name, curve) in enumerate(result.series.items()):
            sizes = [int(size) for size in curve]
            style = "-" if "change" in name else "--" if "by epochs" in name else ":"
            axes.plot(
                sizes,
                [m for _, m, _ in curve.values()],
                style,
                marker="o",
                markersize=3,
                label=name,
                color=f"C{number % 10}",
            )
            axes.fill_between(sizes, [a for a, _, _ in curve.values()], [b for _, _, b in curve.values()], alpha=0.15)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("partitions, epochs or writers")
        axes.set_ylabel("seconds")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7)


def folding(bench: Bench, sizes: Sequence[int]) -> Curve:
    """Seconds of one change with all that follows from it in the core, after so many changes six hours apart.

    Retention is three days: what is older than twelve changes is gone from the logs.
    """
    timeline, cuts = history("t", [LOW]), [0]
    curve: dict[int, list[float]] = {}
    for number in range(1, max(sizes) + 1):
        began = clock.now()
        before, count = timeline, HIGH if timeline.newest.count == LOW else LOW
        moves = crossings(LOW, before.newest.count, count)
        prepared = before.opened(count, ChangePhase.PLAN).prepared()
        timeline = prepared.committed({q: number * 100 for q, _ in moves}, {p: number * 100 for _, p in moves})
        cuts.append(number * 100)
        starts = dict.fromkeys(origins_to_fold(timeline), cuts[max(0, number - 12)])
        timeline = decode_timeline(encode_timeline(folded(timeline, starts, number * 6 * 3_600_000)))
        before.check_successor(timeline)
        Gates(timeline), Routing(timeline)
        seconds = clock.now() - began
        if number + bench.repeats > min((size for size in sizes if size >= number), default=0):
            curve.setdefault(min(size for size in sizes if size >= number), []).append(seconds)
    return {size: Spread.of(samples) for size, samples in curve.items()}


def by_partitions(count: int) -> Timeline:
    """A topic that was doubled once; records lie in every partition."""
    return history("t", [max(1, count // 2), count])


def by_epochs(epochs: int) -> Timeline:
    """A topic that went back and forth so many times."""
    return history("t", [LOW, *(HIGH if n % 2 == 0 else LOW for n in range(epochs))])


def history(topic: str, counts: Sequence[int]) -> Timeline:
    """A timeline of these counts, with cuts that rise by a hundred each time."""
    epochs = [Epoch(0, counts[0])]
    for number, (before, after) in enumerate(pairwise(counts), 1):
        moves = crossings(counts[0], before, after)
        cut = number * 100
        epochs.append(Epoch(number, after, {q: cut for q, _ in moves}, {p: cut for _, p in moves}))
    return Timeline(topic, "topic-id", "cluster-id", counts[0], tuple(epochs))


def pure(bench: Bench, timeline: Timeline) -> dict[str, Spread]:
    """Seconds of one gate check, one routing lookup, one look for a stray, one view made, one record decoded."""
    gates, routing, data = Gates(timeline), Routing(timeline), encode_timeline(timeline)
    entered = next(iter(gates.all())).partition
    middle = 50 * len(timeline.epochs)
    keys = [key_of(n) for n in range(1_000)]
    homes = [routing.of(key).home for key in keys]

    def lookups() -> None:
        for key in keys:
            routing.of(key)

    def strays() -> None:
        for key, home in zip(keys, homes, strict=True):
            routing.is_stray(key, home, 10**9)

    return {
        "gate check": timed(bench, lambda: gates.open_now(lambda q: middle).first_closed(entered), 200),
        "routing lookup": scaled(timed(bench, lookups, 20), 1e-3),
        "stray check": scaled(timed(bench, strays, 20), 1e-3),
        "view made": timed(bench, lambda: (Gates(timeline), Routing(timeline)), 1),
        "record decoded": timed(bench, lambda: decode_timeline(data), 1),
    }


def timed(bench: Bench, thing: Callable[[], object], times: int = 5) -> Spread:
    """Seconds of one call: the first one is not counted, then so many in a row, repeated."""
    thing()
    samples = []
    for _ in range(bench.repeats):
        began = clock.now()
        for _ in range(times):
            thing()
        samples.append((clock.now() - began) / times)
    return Spread.of(samples)


def scaled(spread: Spread, factor: float) -> Spread:
    """The same in another unit."""
    return Spread.of([sample * factor for sample in spread.samples])


def grown_topic(bench: Bench, topic: str, epochs: int) -> Timeline:
    """A real topic, empty, and the timeline that says that it went back and forth so many times; not written yet."""
    admin = TopicAdmin(bench.config)
    admin.create(topic, LOW, config=QUICK_VIEW)
    raw = AdminClient(bench.config)
    raw.create_partitions([NewPartitions(topic, HIGH)])[topic].result(30)
    wait_for_partitions(raw, topic, HIGH, str(bench.config["bootstrap.servers"]))
    made = history(topic, [LOW, *(HIGH if n % 2 == 0 else LOW for n in range(epochs))])
    # The log is empty, and so are all cuts.
    empty = [replace(e, ends=dict.fromkeys(e.ends, 0), begins=dict.fromkeys(e.begins, 0)) for e in made.epochs]
    return replace(admin.timeline(topic), epochs=tuple(empty), last_number=empty[-1].number)


def leases(topic: str, writers: int, state: LeaseState = LeaseState.LIVE) -> list[tuple[str, int, bytes, bytes]]:
    """Renewals of so many writers, as they stand in the log; one LEFT of each to end them."""
    found = []
    for sequence in range(2, 2 + RENEWALS) if state is LeaseState.LIVE else [2 + RENEWALS]:
        for number in range(writers):
            writer = f"writer-{number}-{topic}"
            lease = Lease(writer, f"nonce-{writer}", state, number, 45_000, sequence, (topic,))
            found.append((*writer_slot(writer), lease_key(writer, f"nonce-{writer}"), encode_lease(lease)))
    return found


def put(bench: Bench, records: Sequence[tuple[str, int, bytes, bytes]]) -> None:
    """Write control records as they are."""
    producer = Producer({**bench.config, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    for topic, partition, key, value in records:
        producer.produce(topic, value, key, partition)
    if producer.flush(60):
        raise RuntimeError("control records were not written")


MEASURE = Growth()
