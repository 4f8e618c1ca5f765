"""Starts of one member, event by event: what was not answered has not happened, and each answer leads to the next request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END
from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.errors import AssignmentError, BrokerUnreachableError, NoOffsetError, StaleViewError
from keyorder.partitioner.gates.gate_state import Place
from keyorder.partitioner.gates.start_events import (
    Action,
    Assigned,
    Begin,
    Begun,
    CommitsRead,
    CommitStarts,
    Committed,
    Event,
    Failed,
    Follow,
    Identified,
    Identify,
    Kept,
    LogsRead,
    Look,
    Looked,
    NoteCount,
    ReadCommits,
    ReadLogs,
    Stop,
    Turn,
    Warn,
)
from keyorder.partitioner.gates.start_machine import StartMachine, StartTerms
from keyorder.partitioner.gates.starts import Commit, Start, resolved
from keyorder.partitioner.timeline import Timeline, TopicIdentity
from support.dumb import timeline_of

AWAY = BrokerUnreachableError("localhost:1", "away")


@dataclass
class Owned:
    """A partition of this member."""

    topic: str
    partition: int
    started: bool = False
    fetch: Any = field(default_factory=lambda: SimpleNamespace(wanted=None))


@dataclass
class Known:
    """What is known of a topic."""

    timeline: Timeline
    managed: bool = True


class World:
    """The cluster's and the group's answers, which a test may change. asked: the requests, by name, in their order."""

    def __init__(self, timeline: Timeline, *partitions: int, from_latest: bool | None = False) -> None:
        self.topic, self.known = timeline.topic, Known(timeline)
        self.owned: dict[Place, Owned] = {(self.topic, p): Owned(self.topic, p) for p in partitions}
        self.commits: dict[int, Commit] = {}
        self.log = (3, 9)
        self.looks, self.manual = True, False
        self.asked: list[str] = []
        self.noticed: list[Action[Owned]] = []
        self.begun: list[Start] = []
        self.machine: StartMachine[Owned] = StartMachine(StartTerms("g", True, from_latest, 30.0, 10.0), self.owned)
        self.step(Assigned(self.topic), 0.0)

    def step(self, event: Event, now: float) -> list[Action[Owned]]:
        """The requests among what is to be done; the rest is noticed."""
        actions = self.machine.step(event, now)
        self.noticed += [a for a in actions if isinstance(a, Follow | NoteCount | Stop | Warn)]
        return [a for a in actions if not isinstance(a, Follow | NoteCount | Stop | Warn)]

    def turn(self, now: float, until: type[Any] | None = None) -> Action[Owned] | None:
        """A turn at `now`, up to the first request of this kind, which is not answered; None: all are."""
        requests = self.step(Turn(self.manual, frozenset(), frozenset()), now)
        while requests:
            (request,) = requests
            if until is not None and isinstance(request, until):
                return request
            self.asked.append(type(request).__name__)
            requests = self.step(self.answer(request), now)
        return None

    def answer(self, request: Action[Owned]) -> Event:
        """What the world says."""
        views: Mapping[str, Known] = {self.topic: self.known}
        match request:
            case Look():
                return Looked(views if self.looks else {})
            case Identify():
                timeline = self.known.timeline
                topic = TopicIdentity(timeline.topic_id, timeline.cluster_id, timeline.highest_count)
                return Identified({self.topic: topic}, views)
            case ReadCommits():
                return CommitsRead({self.topic: self.commits}, views, {self.topic: set()})
            case ReadLogs(at_least):
                return LogsRead(dict.fromkeys(at_least, self.log))
            case CommitStarts(made):
                self.commits.update(made[self.topic])
                return Committed()
            case Begin(_, starts):
                for owned, start in starts:
                    owned.started = True
                    self.begun.append(start)
                return Begun()
        raise AssertionError(request)


def plain(count: int = 2) -> Timeline:
    return timeline_of(count, [])


def test_a_new_group_is_made_by_one_commit_for_all_partitions() -> None:
    """By the owner of partition 0; the look behind its logs comes before the offsets are worked out."""
    world = World(plain(), 0)
    world.turn(1.0)
    expected = ["Look", "Identify", "ReadCommits", "ReadLogs", "Look", "CommitStarts", "Begin"]
    assert world.asked == expected
    assert world.commits == {0: Commit(3, 0), 1: Commit(3, 0)}
    assert [(start.partition, start.offset) for start in world.begun] == [(0, 3)]
    assert not world.machine.waiting


def test_who_does_not_own_partition_0_waits_for_the_group_to_be_made() -> None:
    """Nothing is committed, and it is tried again soon."""
    world = World(plain(), 1)
    world.turn(1.0)
    assert world.asked == ["Look", "Identify", "ReadCommits"]
    assert not world.machine.due(1.0)
    assert world.machine.due(1.1)
    world.commits = {0: Commit(5, 0), 1: Commit(7, 0)}
    world.turn(1.1)
    assert [(start.partition, start.offset) for start in world.begun] == [(1, 7)]


@pytest.mark.parametrize("request_", [Look, Identify, ReadCommits, ReadLogs, CommitStarts, Begin])
def test_an_attempt_that_is_cut_short_is_made_again(request_: type[Any]) -> None:
    """Whatever it was waiting for: nothing counts as started before its Begin was answered."""
    world = World(plain(), 0)
    assert world.turn(1.0, until=request_) is not None
    assert list(world.machine.waiting) == [world.topic]
    world.turn(2.0)
    assert [(start.partition, start.offset) for start in world.begun] == [(0, 3)]
    assert not world.machine.waiting


@pytest.mark.parametrize("request_", [Look, Identify, ReadCommits, ReadLogs, CommitStarts, Begin])
def test_a_request_that_fails_for_a_moment_is_made_again(request_: type[Any]) -> None:
    """The application is told nothing."""
    world = World(plain(), 0)
    assert world.turn(1.0, until=request_) is not None
    assert world.step(Failed(AWAY), 1.0) == []
    assert not [action for action in world.noticed if isinstance(action, Stop | Warn)]
    world.turn(2.0)
    assert not world.machine.waiting


def test_without_a_look_nothing_starts_and_people_are_told_when_that_lasts() -> None:
    """A warning after the control topic's patience, and one more each time it has passed again."""
    world = World(plain(), 0)
    world.looks = False
    for now in range(1, 100):
        world.turn(float(now))
    assert {*world.asked} == {"Look"}
    warned = [action for action in world.noticed if isinstance(action, Warn)]
    assert [round(action.seconds) for action in warned] == [31, 62, 93]
    assert {type(action.error) for action in warned} == {StaleViewError}


def test_what_is_owned_no_more_is_not_waited_for() -> None:
    """A look that was under way leads to nothing."""
    world = World(plain(), 0)
    world.step(Kept(frozenset()), 1.0)
    assert not world.machine.waiting
    assert not world.machine.due(2.0)


def test_by_hand_a_partition_is_not_read_without_its_origins() -> None:
    """Its gate would stay closed for ever; the group's own commits may have opened it already."""
    grown = timeline_of(1, [(2, {0: 5}, {1: 0})])
    world = World(grown, 1)
    world.manual = True
    world.turn(1.0)
    (stopped,) = [action for action in world.noticed if isinstance(action, Stop)]
    assert isinstance(stopped.error, AssignmentError)
    world = World(grown, 1)
    world.manual, world.commits = True, {0: Commit(5, 1), 1: Commit(3, 1)}
    world.turn(1.0)
    assert [(start.partition, start.offset) for start in world.begun] == [(1, 3)]


@pytest.mark.parametrize(("wanted", "offset"), [(4, 4), (OFFSET_BEGINNING, 3), (OFFSET_END, 9), (-2002, 7)])
def test_the_application_says_where(wanted: int, offset: int) -> None:
    """With auto.offset.reset=error as well; nothing is committed for it then."""
    world = World(plain(), 0, from_latest=None)
    world.owned[world.topic, 0].fetch.wanted = wanted
    world.turn(1.0)
    assert [start.offset for start in world.begun] == [offset]
    assert not world.commits


def test_without_an_offset_auto_offset_reset_error_names_the_partitions() -> None:
    """Those of a new group, and one whose committed record was deleted."""
    world = World(plain(), 0, 1, from_latest=None)
    world.turn(1.0)
    world.commits = {0: Commit(1, 0), 1: Commit(5, 0)}
    world.turn(9.0)
    stopped = [action.error for action in world.noticed if isinstance(action, Stop)]
    assert [(type(error), getattr(error, "partitions", ())) for error in stopped] == [
        (NoOffsetError, (0, 1)),
        (NoOffsetError, (0,)),
    ]
    assert not world.begun


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 300))
def test_a_tail_begins_so_many_records_before_the_end(low: int, size: int, tail: int) -> None:
    """And never before the log does; other numbers are offsets."""
    assert resolved(-2000 - tail, low, low + size) == max(low, low + size - tail)
    assert resolved(tail, low, low + size) == tail
