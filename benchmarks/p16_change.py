"""P16: the wall time of a change: after a quiet time, several in a row, and after a writer was killed some time ago."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from keyorder import TopicAdmin
from keyorder.connector import clock
from keyorder.connector.operations.control_state import ControlState
from keyorder.partitioner.changes.change import STAMP_TO_VISIBLE_S
from keyorder.partitioner.timeline import DEFAULT_VIEW_AGE_S

from .harness.bench import Bench
from .harness.measure import Figure, Goal, Measure, Result
from .harness.spread import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: After so long nothing of the last change is waited for.
_QUIET_S = 2 * DEFAULT_VIEW_AGE_S + STAMP_TO_VISIBLE_S + 0.5
_OFTEN_MS = 500
_LEASE = {"keyorder.lease.ms": 20_000, "keyorder.lease.renew.interval.ms": 2_000, "delivery.timeout.ms": 5_000}
_WRITER = """
import sys, threading
from keyorder import OrderedProducer
producer = OrderedProducer({"bootstrap.servers": sys.argv[1], **eval(sys.argv[3])})
producer.produce(sys.argv[2], b"v", b"k")
assert producer.flush(60) == 0
print("ready", flush=True)
threading.Event().wait()
"""


class ChangeTime(Measure):
    """The default view age, 2 s: two commits lie 4 s apart."""

    id = "P16"
    title = "wall time of a change"
    theirs = "-"

    def run(self, bench: Bench) -> Result:
        """Each situation on a topic of its own, from 4 partitions on, one more each time."""
        times: dict[str, list[float]] = {}
        topic = self._topic(bench)
        for _ in range(bench.repeats):
            bench.say("after a quiet time")
            self._quiet(bench, _QUIET_S)
            times.setdefault("after a quiet time", []).append(self._grow(bench, topic))
        for _ in range(3 if bench.quick else 10):
            bench.say("in a row")
            times.setdefault("in a row", []).append(self._grow(bench, topic))
        often = self._topic(bench, {"keyorder.view.age.ms": str(_OFTEN_MS)})
        for _ in range(3 if bench.quick else 10):
            bench.say("in a row, short view age")
            times.setdefault(f"in a row, view age {_OFTEN_MS} ms", []).append(self._grow(bench, often))
        for _ in range(bench.repeats):
            bench.say("after a killed writer")
            topic = self._topic(bench)
            self._kill_a_writer(bench, topic)
            times.setdefault("after a killed writer", []).append(self._grow(bench, topic))
        spreads = {name: Spread.of(samples) for name, samples in times.items()}
        quiet, row, often_row, killed = (spreads[name].median for name in times)
        return Result(
            data={"partitions": 4, "writers": 1},
            repeats=bench.repeats,
            figures=[Figure(name, "s", spread) for name, spread in spreads.items()],
            goals=[
                Goal("after a quiet time <= 0.5 s", f"{quiet:.2f} s", quiet <= 0.5),
                Goal("in a row <= 2 s each", f"{row:.2f} s", row <= 2),
                Goal(f"in a row, view age {_OFTEN_MS} ms, <= 2 s each", f"{often_row:.2f} s", often_row <= 2),
                Goal("after a writer that was killed long ago <= 1 s", f"{killed:.2f} s", killed <= 1),
            ],
            notes=[
                "In a row each change waits until the last commit is twice the view age old: 4 s by default.",
                "The killed writer had a lease of 20 s, over before the change; the default is 45 s.",
            ],
            series={name: {"0": [s.low, s.median, s.high]} for name, s in spreads.items()},
        )

    def plot(self, result: Result, axes: Axes) -> None:
        """A bar each."""
        names = list(result.series)
        axes.bar(names, [result.series[name]["0"][1] for name in names])
        axes.set_ylabel("seconds")

    def _topic(self, bench: Bench, settings: dict[str, str] | None = None) -> str:
        topic = bench.topic("change")
        TopicAdmin(bench.config).create(topic, 4, config=settings)
        return topic

    def _grow(self, bench: Bench, topic: str) -> float:
        admin = TopicAdmin(bench.config)
        count = admin.timeline(topic).newest.count
        began = clock.now()
        admin.expand(topic, count + 1)
        return clock.now() - began

    def _kill_a_writer(self, bench: Bench, topic: str) -> None:
        """One that has written, and whose lease is over when this returns."""
        words = [sys.executable, "-c", _WRITER, str(bench.config["bootstrap.servers"]), topic, repr(_LEASE)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            if "ready" not in writer.stdout.readline():
                raise RuntimeError("the writer did not start")
            writer.send_signal(signal.SIGKILL)
        self._quiet(bench, _LEASE["keyorder.lease.ms"] / 1000 + 3)
        state = ControlState(bench.config, AdminClient(bench.config))
        try:
            state.refresh()
            if not list(state.writers(topic)):
                raise RuntimeError("nobody remembers the writer that was killed")
        finally:
            state.close()

    def _quiet(self, bench: Bench, seconds: float) -> None:
        threading.Event().wait(seconds)


MEASURE = ChangeTime()
