"""Statistics are told when they have the partitions that were assigned."""

from __future__ import annotations

import json
from typing import Any

import pytest
from keyorder.connector import clock
from keyorder.connector.consuming.statistics import Statistics


def text(**partitions: list[int]) -> str:
    """As the client library writes them."""
    topics = {topic: {"partitions": {str(p): {} for p in numbers}} for topic, numbers in partitions.items()}
    return json.dumps({"topics": topics})


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that stands, and goes on by what it is called with."""
    now = [1000.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    def go(seconds: float) -> None:
        now[0] += seconds

    return go


def test_they_are_kept_back_until_each_assigned_partition_is_in_them(told: list[str], later: Any) -> None:
    """Once it was there, they are not looked at any more."""
    statistics = Statistics({("t", 0), ("u", 3)})
    statistics.tell(told.append, text())
    statistics.assigned(("t", 0))
    statistics.assigned(("u", 3))
    for early in (text(), text(t=[1]), text(t=[0]), text(u=[1])):
        statistics.tell(told.append, early)
    assert told == [text()]
    later(1)
    statistics.tell(told.append, text(t=[0], u=[3]))
    statistics.tell(told.append, "no JSON")
    assert told == [text(), text(t=[0], u=[3]), "no JSON"]


def test_a_partition_that_does_not_come_is_awaited_for_a_moment(told: list[str], later: Any) -> None:
    """A broker is away, or a gate is closed."""
    statistics = Statistics({("t", 0)})
    statistics.assigned(("t", 0))
    later(4.9)
    statistics.tell(told.append, text())
    assert told == []
    later(0.2)
    statistics.tell(told.append, text())
    assert told == [text()]


def test_a_partition_that_is_given_up_is_not_awaited(told: list[str], later: Any) -> None:
    """It went before it was there."""
    owned = {("t", 0)}
    statistics = Statistics(owned)
    statistics.assigned(("t", 0))
    owned.clear()
    statistics.tell(told.append, text())
    assert told == [text()]
