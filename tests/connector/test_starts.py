"""Starts of many topics: one request of each kind for all of them, and one topic's trouble is that topic's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from keyorder.connector import clock
from keyorder.connector.config import consumer_settings
from keyorder.connector.consuming.assignment import Assignment
from keyorder.connector.consuming.partition_state import PartitionState
from keyorder.connector.consuming.starts import Starts
from keyorder.connector.consuming.view import View, unmanaged
from keyorder.connector.messages import Place
from keyorder.partitioner.errors import (
    BrokerUnreachableError,
    GroupResetError,
    IdentityMismatchError,
    KeyorderError,
    NotAuthorizedError,
    TopicNotFoundError,
)
from keyorder.partitioner.gates.starts import Commit
from keyorder.partitioner.timeline import TopicIdentity

SETTINGS, _ = consumer_settings({"bootstrap.servers": "localhost:1", "group.id": "g", "auto.offset.reset": "earliest"})
TOPICS = [f"t{n}" for n in range(40)]


class _Starter:
    """The cluster's answers. calls: how often each question was asked. bad: by topic, what a question of it raises."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bad: dict[str, KeyorderError] = {}
        self.missing: set[str] = set()
        self.foreign: set[str] = set()
        self.commits: dict[str, dict[int, Commit]] = {}

    def _asked(self, what: str, topics: Iterable[str]) -> None:
        self.calls.append(what)
        for topic in topics:
            if topic in self.bad:
                raise self.bad[topic]

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        self._asked("identities", ())
        seen = {topic: unmanaged(topic, 1) for topic in topics if topic not in self.missing}
        return {
            t: TopicIdentity("another" if t in self.foreign else of.topic_id, of.cluster_id, 1)
            for t, of in seen.items()
        }

    def committed(self, places: Iterable[Place]) -> dict[str, dict[int, Commit]]:
        topics = {topic for topic, _ in places}
        self._asked("committed", topics)
        return {topic: dict(self.commits.get(topic, {})) for topic in topics}

    def logs_reaching(self, at_least: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
        self._asked("logs", [topic for topic, _ in at_least])
        return dict.fromkeys(at_least, (3, 9))

    def commit(self, made: Mapping[str, Mapping[int, Commit]], alone: bool) -> None:
        self._asked("commit", made)
        self.commits.update({topic: dict(commits) for topic, commits in made.items()})


class _Stopped:
    """Notes which topics cannot be started."""

    def __init__(self) -> None:
        self.errors: dict[str, KeyorderError] = {}

    def begins_anew(self, _: str) -> bool:
        return False

    def failed(self, topic: str, error: KeyorderError) -> None:
        self.errors[topic] = error

    def goes_on(self, topic: str) -> None:
        self.errors.pop(topic, None)


def starts(managed: bool = True) -> tuple[Starts, _Starter, _Stopped, dict[Place, PartitionState]]:
    starter, stopped = _Starter(), _Stopped()
    owned = {(topic, 0): PartitionState(topic, 0) for topic in TOPICS}
    views: Any = SimpleNamespace(
        view=lambda topic, _: View(unmanaged(topic, 1), managed),
        await_look=lambda *_: True,
        follow=lambda *_, **__: None,
        failures={},
        waived=lambda _: set(),
    )
    nothing: Any = None  # is fetched here
    assignment = Assignment(nothing, SETTINGS, views)
    assignment.owned.update(owned)
    gates: Any = SimpleNamespace(assigned=lambda _: None, changed=lambda _: None)
    found = Starts(SETTINGS, assignment, starter, stopped, gates)  # type: ignore[arg-type]
    for place in owned:
        found.add(place[0])
    return found, starter, stopped, owned


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that stands, and goes on by what it is called with."""
    now = [clock.now()]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    def go(seconds: float) -> None:
        now[0] += seconds

    return go


def started(owned: Mapping[Place, PartitionState]) -> set[str]:
    return {topic for (topic, _), each in owned.items() if each.started}


def test_all_topics_are_asked_for_together() -> None:
    found, starter, stopped, owned = starts()
    found.find()
    assert starter.calls == ["identities", "committed", "logs", "commit"]
    assert started(owned) == set(TOPICS)
    assert {(each.fetched, each.commits.offset) for each in owned.values()} == {(3, 3)}
    assert not found.waiting
    assert not stopped.errors


def test_what_is_wrong_with_one_topic_leaves_the_others_alone(later: Any) -> None:
    found, starter, stopped, owned = starts()
    starter.missing = {"t1"}
    later(SETTINGS.propagation)
    starter.foreign = {"t2"}
    starter.commits = {"t3": {0: Commit(99, 0)}}  # its log ends at 9
    found.find()
    assert started(owned) == set(TOPICS) - {"t1", "t2", "t3"}
    assert {topic: type(error) for topic, error in stopped.errors.items()} == {
        "t1": TopicNotFoundError,
        "t2": IdentityMismatchError,
        "t3": GroupResetError,
    }
    # The logs of new groups, and of the one that has a commit: no topic was asked for by itself.
    assert starter.calls == ["identities", "committed", "logs", "commit", "logs"]


def test_a_topic_of_which_the_broker_has_not_heard_is_waited_for(later: Any) -> None:
    """It may have been made just now. The others start meanwhile."""
    found, starter, stopped, owned = starts()
    starter.missing = {"t1", "t2"}
    found.find()
    assert started(owned) == set(TOPICS) - {"t1", "t2"}
    assert not stopped.errors
    later(SETTINGS.propagation / 2)
    starter.missing = {"t2"}
    found.find()
    assert started(owned) == set(TOPICS) - {"t2"}
    assert not stopped.errors
    later(SETTINGS.propagation / 2)
    found.find()
    assert {topic: type(error) for topic, error in stopped.errors.items()} == {"t2": TopicNotFoundError}


@pytest.mark.parametrize(
    ("error", "told"),
    [(NotAuthorizedError("read", "topic t5", "denied"), True), (BrokerUnreachableError("localhost:1", "away"), False)],
)
def test_where_the_question_for_all_fails_each_is_asked_for_by_itself(
    error: KeyorderError, told: bool, later: Any
) -> None:
    found, starter, stopped, owned = starts()
    starter.bad = {"t5": error}
    found.find()
    assert started(owned) == set(TOPICS) - {"t5"}
    assert stopped.errors == ({"t5": error} if told else {})
    starter.bad = {}
    later(1.0)
    found.find()
    assert started(owned) == set(TOPICS)
    assert not stopped.errors


def test_a_broker_that_is_away_for_long_is_waited_for(later: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The application is told nothing, as by a stock consumer; the log says it once in a while."""
    found, starter, stopped, owned = starts()
    starter.bad = {"t5": BrokerUnreachableError("localhost:1", "its leader is away")}
    for _ in range(100):
        found.find()
        later(1.0)
    assert started(owned) == set(TOPICS) - {"t5"}
    assert not stopped.errors
    assert [record.levelname for record in caplog.records if "t5" in record.getMessage()] == ["WARNING"] * 3
    starter.bad = {}
    found.find()
    assert started(owned) == set(TOPICS)


def test_a_turn_ends_where_asking_takes_long_and_the_next_one_begins_with_others(later: Any) -> None:
    found, starter, _, owned = starts()
    starter.bad = {"t0": BrokerUnreachableError("localhost:1", "away")}
    ask = starter.committed

    def slowly(places: Iterable[Place]) -> dict[str, dict[int, Commit]]:
        later(0.4)
        return ask(places)

    starter.committed = slowly  # type: ignore[method-assign]
    turns = 0
    while started(owned) != set(TOPICS) - {"t0"}:
        before = len(starter.calls)
        found.find()
        assert len(starter.calls) - before <= 5 * 4
        later(0.1)
        turns += 1
        assert turns < 2 * len(TOPICS)
