"""Reading logs through clients whose login is refused: at first that is final, later it passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from keyorder.connector.log_offsets import LogOffsets
from keyorder.partitioner.errors import (
    BrokerUnreachableError,
    KafkaOperationError,
    NotAuthorizedError,
    PeerError,
)

PLACE = ("t", 0)
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "FindCoordinator response error: Local: Authentication failure")


class Raw:
    """A client of the library that is told what it hands over. No broker refuses a login at the moment one asks for."""

    def __init__(self, *events: Message) -> None:
        self.events = list(events)

    def list_topics(self, topic: str, timeout: float) -> None: ...

    def assign(self, places: list[Any]) -> None: ...

    def unassign(self) -> None: ...

    def poll(self, timeout: float) -> Message | None:
        return self.events.pop(0) if self.events else None

    def consume(self, most: int, timeout: float) -> list[Message]:
        return []


def reading(monkeypatch: pytest.MonkeyPatch, *events: Message) -> LogOffsets:
    """Lists offsets through such a client."""
    raw = Raw(*events)
    monkeypatch.setattr(LogOffsets, "_open", lambda self, isolation: raw)
    return LogOffsets({"bootstrap.servers": "localhost:1"})


def refused() -> Message:
    return Message(topic=None, partition=-1, offset=-1, key=None, value=None, headers=None, error=REFUSED)


def record() -> Message:
    return Message(topic="t", partition=0, offset=0, key=b"k", value=b"v", headers=None, error=None)


def test_a_token_that_has_just_run_out_stops_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library logs in again with the next one. A reader of control topics that took this for final never read again."""
    logs = reading(monkeypatch, refused(), record())
    logs.listed("t", 1.0)

    found = logs.read({PLACE: (0, 1)})

    assert [message.value() for message in found[PLACE]] == [b"v"]


def test_a_login_that_stays_refused_is_a_broker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = reading(monkeypatch, refused(), refused())
    logs.listed("t", 1.0)

    with pytest.raises(BrokerUnreachableError) as raised:
        logs.read({PLACE: (0, 1)}, timeout=0.0)

    assert raised.value.retriable


def test_a_login_that_was_never_good_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotAuthorizedError, match="log in"):
        reading(monkeypatch, refused(), record()).read({PLACE: (0, 1)})


def test_a_client_that_cannot_be_made_any_more_passes(tmp_path: Path) -> None:
    """A file of certificates is being replaced. At first such an error tells that a setting is wrong."""
    missing = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "ca.pem")}
    logs = LogOffsets({"bootstrap.servers": "localhost:1", **missing})
    with pytest.raises(KafkaOperationError, match=r"ssl.ca.location") as raised:
        logs.stable_ends([PLACE], 0.1)
    assert not raised.value.retriable

    logs._served = True
    for ask in (
        lambda: logs.stable_ends([PLACE], 0.1),
        lambda: logs.read({PLACE: (0, 1)}),
        lambda: logs.passed(PLACE, 0),
    ):
        with pytest.raises(PeerError, match=r"ssl.ca.location") as later:
            ask()
        assert later.value.retriable
