"""Asking for others' positions: soon at first, never so late that the wait grows by much, and on after any trouble."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.consuming.gates.positions import GroupPositions, pause_after
from keyorder.connector.group_commits import GroupCommits
from keyorder.partitioner.errors import BrokerUnreachableError, KafkaOperationError
from keyorder.partitioner.gates.starts import Commit
from support.holding import until

PLACE = ("t", 0)
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication failed")


@pytest.mark.kip("K253-46")
@given(st.floats(0, 600), st.floats(0, 600))
def test_the_next_question_is_late_by_a_share_of_the_wait_at_most(quiet: float, before: float) -> None:
    """A commit is noticed within an eighth of what it took, a tenth of a second for as long as the origin is alive."""
    waited = quiet + before
    pause = pause_after(quiet, waited)

    assert 0.002 <= pause <= max(0.002, waited / 8)
    assert pause <= (0.1 if quiet < 60 else 0.25)


@pytest.mark.kip("K253-46")
def test_questions_in_the_first_minute_are_counted() -> None:
    """What the settings' comment promises: 34 in the first second without progress, 10 in each later one."""
    at, times = 0.0, []
    while at < 60:
        times.append(at)
        at += pause_after(at, at) + 0.002  # an answer takes a moment

    assert sum(1 for t in times if t < 1) == 34
    assert 9 <= sum(1 for t in times if 30 <= t < 31) <= 10


class Link:
    """What a member needs of its link. asked: one more after each question."""

    def __init__(self, commits: Any) -> None:
        self.servers, self.commits, self._read = "127.0.0.1:1", self, commits.read
        self.asked = threading.Semaphore(0)

    def read(self, *args: Any, **more: Any) -> Any:
        try:
            return self._read(*args, **more)
        finally:
            self.asked.release()


def test_a_client_that_cannot_be_made_is_made_again(tmp_path: Path) -> None:
    """A file of certificates that is being replaced is not there for a moment. Gates would never open after it."""
    missing = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "ca.pem")}
    link = Link(GroupCommits({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **missing}))
    positions = GroupPositions(link, "g")  # type: ignore[arg-type]
    positions.expect(PLACE)
    assert link.asked.acquire(timeout=60)
    positions.watch([PLACE])
    try:
        for _ in range(3):
            assert link.asked.acquire(timeout=60)
        assert positions.failure is None
    finally:
        positions.stop()


def test_whoever_asks_for_groups_is_told_by_a_typed_error_that_no_client_can_be_made(tmp_path: Path) -> None:
    missing = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "ca.pem")}
    commits = GroupCommits({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **missing})
    with pytest.raises(KafkaOperationError, match=r"offsets of group g: .*ssl.ca.location"):
        commits.read(["g"], [PLACE])


class Raw:
    """A client of the library that a broker refuses, `refusals` times. No broker does so at the moment one asks for."""

    def __init__(self, refusals: int) -> None:
        self.left, self.told = refusals, [REFUSED] * refusals

    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        if self.left:
            self.left -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for place in places:
            place.offset = 7
        return places

    def poll(self, timeout: float) -> Message | None:
        if not self.told:
            return None
        error = self.told.pop()
        return Message(topic=None, partition=-1, offset=-1, key=None, value=None, headers=None, error=error)

    def close(self) -> None: ...


def test_a_login_that_is_refused_for_a_while_opens_gates_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member's own login was good: a password is being changed, or a token has just run out."""
    client = Raw(3)
    monkeypatch.setattr(GroupCommits, "_take", lambda self, group: client)
    positions = GroupPositions(Link(GroupCommits({})), "g")  # type: ignore[arg-type]
    positions.watch([PLACE])
    until(lambda: positions.asked(*PLACE) or positions.failure is not None)
    positions.stop()
    assert positions.failure is None
    assert positions.get(*PLACE) == Commit(7, None)


def test_a_login_that_stays_refused_is_a_broker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupCommits, "_take", lambda self, group: Raw(1000))
    with pytest.raises(BrokerUnreachableError):
        GroupCommits({}).read(["g"], [PLACE], 0.1, known=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_nobody_foresaw_is_told_to_whoever_polls() -> None:
    """The thread ends with it; gates that stayed closed without a word would look like an origin that stands still."""

    class Broken:
        def read(self, *args: Any, **more: Any) -> Any:
            raise LookupError("a defect")

    link = Link(Broken())
    positions = GroupPositions(link, "g")  # type: ignore[arg-type]
    positions.watch([PLACE])
    positions.join(60)
    assert isinstance(positions.failure, KafkaOperationError)
    assert "a defect" in str(positions.failure)
