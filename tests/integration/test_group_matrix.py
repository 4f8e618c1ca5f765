"""Assignment protocols x what happens to a member x growth and shrink, judged by the history checker.

The diagonal runs always; `make matrix` (KEYORDER_MATRIX=full) runs all forty. Several groups share one topic and one change:
each is judged by itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState
from support.cluster import KafkaUnderTest
from support.groups import QUICK
from support.workload import Worker, Workload

PROTOCOLS: dict[str, dict[str, str]] = {
    "range": {"partition.assignment.strategy": "range"},
    "roundrobin": {"partition.assignment.strategy": "roundrobin"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
    "static": {"partition.assignment.strategy": "range"},
}
EVENTS = ("join", "leave", "crash", "zombie")
CHANGES = {"growth": 5, "shrink": 3}
FULL = os.environ.get("KEYORDER_MATRIX") == "full"
DIAGONAL = [
    ("growth", [("range", "join"), ("cooperative-sticky", "crash"), ("static", "crash")]),
    ("shrink", [("roundrobin", "leave"), ("kip-848", "zombie")]),
]
ALL = [(change, [(protocol, event) for protocol in PROTOCOLS]) for change in CHANGES for event in EVENTS]
_SESSION = 6.0


class Group:
    """One group of two members, to one of which something happens."""

    def __init__(self, run: Workload, protocol: str, event: str) -> None:
        self._run, self.protocol, self.event = run, protocol, event
        self.name = f"{protocol}-{event}"
        self._members = [self._member(1), self._member(2)]

    def _member(self, number: int, again: str = "") -> Worker:
        config = dict(PROTOCOLS[self.protocol])
        if self.protocol == "static":
            config["group.instance.id"] = f"{self.name}-{number}"
        return self._run.consumer(f"{self.name}-{number}{again}", self.name, config=config, work_s=0.0002)

    def members(self) -> int:
        """How many members the broker counts."""
        group = f"{self.name}-{self._run.run}"
        admin = self._run.kafka.admin()
        found = admin.describe_consumer_groups([group])[group].result(120)
        return len(found.members) if found.state is not ConsumerGroupState.DEAD else 0

    def begin(self) -> None:
        """The first half of what happens, while the change begins."""
        if self.event == "join":
            self._member(3)
        elif self.event == "leave":
            self._members[1].stop()
        elif self.event == "crash":
            self._run.kill(self._members[1])
        else:
            self._members[1].signal(signal.SIGSTOP)

    def end(self) -> None:
        """The second half: a crashed static member comes back at once, a zombie wakes when it was given up."""
        if self.event == "crash":
            self._member(2, again="-again")
        elif self.event == "zombie":
            self._until(lambda: self.members() == 1, "the zombie is given up")
            self._members[1].signal(signal.SIGCONT)
            # What was in its hands ends now, behind newer records: the load goes on until it is back.
            self._until(lambda: self.members() == 2, "the zombie comes back")

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < deadline, f"{self.name}, not so: {what}"
            time.sleep(0.2)


@pytest.mark.kip("K253-01", "K253-13", "C-10")
@pytest.mark.parametrize(
    ("change", "cells"),
    ALL if FULL else DIAGONAL,
    ids=lambda value: value if isinstance(value, str) else "+".join(f"{p}-{e}" for p, e in value),
)
def test_groups_keep_order(
    quick_groups: KafkaUnderTest, topic_name: str, tmp_path: Path, change: str, cells: list[tuple[str, str]]
) -> None:
    """0 lost, 0 reordered, 0 illegal duplicates in every group, whatever its protocol and its members' fate."""
    with Workload(quick_groups, tmp_path, topic_name[:40], partitions=3, config=QUICK) as run:
        if change == "shrink":
            assert run.expand(5) == 0
        groups = [Group(run, protocol, event) for protocol, event in cells]
        writer = run.writer("w1", rate=300, keys=60, shared_keys=["hot"])
        second = run.writer("w2", rate=100, keys=20, shared_keys=["hot"])
        writer.expect_progress(run)
        with ThreadPoolExecutor(1) as pool:
            changed = pool.submit(run.resize, CHANGES[change])
            for group in groups:
                group.begin()
            assert changed.result(120) == 0
        for group in groups:
            group.end()
        writer.expect_progress(run, more=1_200)  # some twenty for each key
        second.expect_progress(run, more=400)

        verdict = run.finish()

        assert (verdict.reordered_keys, verdict.lost, verdict.illegal_duplicates) == (0, 0, 0), verdict.summary()
        assert verdict.valid, verdict.summary()
        assert verdict.keys_moved > 0
