"""A new client asks until it is connected to the brokers themselves, and no longer than it may."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder.connector import clock
from keyorder.connector.metadata import prefetch_metadata, take_id


class _Client:
    """Answers after `seconds` each, or fails at question number `fails`."""

    def __init__(self, now: list[float], seconds: float = 0.0, fails: int = 99) -> None:
        self.now, self._seconds, self._fails = now, seconds, fails
        self.asked: list[float] = []
        self.took: list[float] = []

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append(timeout)
        self.now[0] += min(self._seconds, timeout)
        if len(self.asked) == self._fails or self._seconds > timeout:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def init_transactions(self, timeout: float) -> None:
        self.took.append(timeout)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still but for what is waited."""
    time = [100.0]
    monkeypatch.setattr(clock, "now", lambda: time[0])
    return time


def test_it_asks_three_times_within_its_time(now: list[float]) -> None:
    """The first answer comes from the address that was given, the next ones from brokers."""
    client: Any = _Client(now, 0.5)
    prefetch_metadata(client, "t", 2.0, questions=3)
    assert client.asked == [2.0, 1.5, 1.0]


@pytest.mark.parametrize(("seconds", "fails", "asked"), [(0.0, 1, 1), (5.0, 99, 1), (1.5, 99, 2)])
def test_it_stops_at_the_first_question_without_an_answer(
    now: list[float], seconds: float, fails: int, asked: int
) -> None:
    """What is wrong is for the use to say."""
    client: Any = _Client(now, seconds, fails)
    prefetch_metadata(client, "t", 2.0, questions=3)
    assert len(client.asked) == asked


@pytest.mark.parametrize(("timeout", "left"), [(-1, -1), (30, 28.5), (1, 0.0), (0, 0.0)])
def test_taking_an_id_keeps_to_the_time_it_was_given(now: list[float], timeout: float, left: float) -> None:
    """The questions count; -1 is for ever, 0 asks nothing."""
    client: Any = _Client(now, 0.5)
    take_id(client, "t", timeout)
    assert client.took == [left]
