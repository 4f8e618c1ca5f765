"""A reader's view of timelines when clients cannot be made, or are refused: at first that is final, later it passes."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder.connector import clock
from keyorder.connector.consuming import view
from keyorder.connector.consuming.view import ViewKeeper
from keyorder.connector.kafka_errors import translate
from keyorder.partitioner.errors import NotAuthorizedError

NO_TOKEN = KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "OAuth token not set within 10 seconds"))
REFUSED = translate(NO_TOKEN.args[0], "describe", "topic _keyorder")
REFUSED.__cause__ = NO_TOKEN


class Link:
    """Of a cluster without control topics. No broker refuses a login at the moment one asks for: `troubles` are raised."""

    servers = "localhost:1"

    def __init__(self, *troubles: Exception) -> None:
        self.admin, self.troubles = self, list(troubles)

    @property
    def client(self) -> Any:
        if self.troubles:
            raise self.troubles.pop(0)
        return None


def keeper(monkeypatch: pytest.MonkeyPatch, link: Link) -> ViewKeeper:
    monkeypatch.setattr(view, "has_topic", lambda *asked, **more: False)
    found = ViewKeeper(link, "g", lambda topic: None)  # type: ignore[arg-type]
    found.follow("t")
    found.start()
    return found


@pytest.mark.parametrize("trouble", [NO_TOKEN, REFUSED], ids=["no client can be made", "a login is refused"])
def test_what_refuses_a_later_look_passes(monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> None:
    """A reader that took it for final would never read again, though the next token is there."""
    link = Link()
    views = keeper(monkeypatch, link)
    try:
        assert views.await_look("t", clock.now(), 60)
        link.troubles += [trouble, trouble]
        assert views.await_look("t", clock.now(), 60)
        assert views.await_look("t", clock.now(), 60)
        assert link.troubles == []
    finally:
        views.stop()


@pytest.mark.parametrize("trouble", [NO_TOKEN, REFUSED], ids=["no client can be made", "a login is refused"])
def test_what_refuses_the_first_look_is_told_at_once(monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> None:
    views = keeper(monkeypatch, Link(trouble))
    with pytest.raises(NotAuthorizedError, match="log in"):
        views.await_look("t", clock.now(), 60)
    views.join(60)
    assert not views.is_alive()
