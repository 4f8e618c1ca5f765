"""Which failures of a controller are counted as failed changes, turn by turn as the command takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from keyorder.connector.cli import controller
from keyorder.connector.monitoring.controller_metrics import ControllerMetrics
from keyorder.connector.topology.results import Change
from keyorder.connector.topology.scaling_policy import ScalingPolicies
from keyorder.connector.topology.supervisor import Result, Supervisor
from keyorder.partitioner.changes.scaling_policy import Load, Policy
from keyorder.partitioner.epochs import ChangePhase, Epoch, OpenChange
from keyorder.partitioner.errors import BrokerUnreachableError, KeyorderError, OrderError, WriterLateError
from keyorder.partitioner.timeline import Timeline
from prometheus_client import CollectorRegistry

STEADY = Timeline("t", "id", "cluster", 2, (Epoch(0, 2),))
OPEN = STEADY.opened(4, ChangePhase.PLAN)
UNCHANGED = Change("t", 2, 2, 0, changed=False, attempts=1)


class Paper:
    """A cluster whose load cannot be measured. looks: what each look at the topic finds, the last one for ever."""

    def __init__(self, looks: list[Timeline], outcome: Change | KeyorderError) -> None:
        self._looks, self._outcome = looks, outcome
        self.measured = 0
        self.unreadable: dict[str, OrderError] = {}

    def timelines(self) -> Mapping[str, Timeline]:
        return {"t": self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]}

    def measure(self, timeline: Timeline, policy: Policy) -> Load | None:
        self.measured += 1
        raise BrokerUnreachableError("127.0.0.1:1", "measure the load")

    def forget(self, topic: str) -> None:
        pass

    def resume(self, topic: str, change: OpenChange) -> Change:
        if isinstance(self._outcome, KeyorderError):
            raise self._outcome
        return self._outcome

    def resize(self, topic: str, current: int, count: int, policy: Policy) -> Change:
        raise AssertionError("nothing was measured")


class After(threading.Event):
    """Set after so many waits, which take no time."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._left = waits

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        if not self._left:
            self.set()
        return self.is_set()


def at_once(work: Callable[[], Result]) -> Future[Result]:
    future: Future[Result] = Future()
    try:
        future.set_result(work())
    except KeyorderError as error:
        future.set_exception(error)
    return future


def counted(paper: Paper, turns: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The changes that a controller has counted after some turns, by result; those that are 0 left out."""
    now = [1000.0]

    def later() -> float:
        now[0] += 15
        return now[0]

    monkeypatch.setattr(controller.clock, "now", later)
    registry = CollectorRegistry()
    monitor: Any = SimpleNamespace(counts=ControllerMetrics(registry))
    supervisor = Supervisor(paper, takeover_s=0, policies=ScalingPolicies(Policy()), submit=at_once)
    assert controller._turns(supervisor, After(turns), 1.0, False, "json", monitor) == 0
    (family,) = [each for each in registry.collect() if each.name == "keyorder_changes"]
    return {s.labels["result"]: s.value for s in family.samples if s.name == "keyorder_changes_total" and s.value}


def test_a_load_that_cannot_be_measured_is_no_failed_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alert on failed changes would fire for a controller that only tells what it would do."""
    paper = Paper([STEADY], UNCHANGED)
    assert counted(paper, 20, monkeypatch) == {}
    assert paper.measured > 2


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (WriterLateError("t", ("w-1",), 20.0), {"failed": 1}),
        (UNCHANGED, {"unchanged": 1}),
    ],
)
def test_a_change_is_counted_once_whatever_fails_after_it(
    outcome: Change | KeyorderError, found: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change's end and a load that cannot be measured may come in one turn: the change alone is counted."""
    paper = Paper([OPEN, OPEN, STEADY], outcome)
    assert counted(paper, 3, monkeypatch) == found
    assert paper.measured == 1
