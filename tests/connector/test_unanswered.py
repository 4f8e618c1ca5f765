"""Questions that no broker answers."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from keyorder.connector.metadata import answered, has_topic
from keyorder.partitioner.errors import BrokerUnreachableError

NOWHERE = "localhost:1"


def test_nobody_waits_for_an_answer_that_nobody_needs() -> None:
    """close() of a consumer would: the thread that asks is one of its own. An hour is longer than a test may take."""
    ended, asked = threading.Event(), threading.Event()

    def request(_: float) -> Future[Any]:
        asked.set()
        return Future()

    def end() -> None:
        asked.wait()
        ended.set()

    threading.Thread(target=end).start()
    admin = AdminClient({"bootstrap.servers": NOWHERE, "log_level": 0})
    with pytest.raises(BrokerUnreachableError):
        answered(admin, request, "describe", "topic t", NOWHERE, 3600, ended.is_set)


def test_who_asks_again_asks_another_broker() -> None:
    """The client goes on to ask the one that it knows, a dead one too, until it looks: also after a short question's last try."""
    looked = threading.Event()

    class Admin(AdminClient):
        def list_topics(self, *args: Any, **named: Any) -> Any:
            looked.set()

    def request(_: float) -> Future[Any]:
        future: Future[Any] = Future()
        if looked.is_set():
            future.set_result("an answer")
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return future

    admin = Admin({"bootstrap.servers": NOWHERE, "log_level": 0})
    with pytest.raises(BrokerUnreachableError):
        answered(admin, request, "describe", "the cluster", NOWHERE, 0.0)
    assert answered(admin, request, "describe", "the cluster", NOWHERE, 0.0) == "an answer"


def test_a_topic_is_not_asked_for_again_once_nobody_needs_the_answer() -> None:
    """Each further try would begin with seconds of looking for another broker."""
    admin = AdminClient({"bootstrap.servers": NOWHERE, "log_level": 0})
    with pytest.raises(BrokerUnreachableError):
        has_topic(admin, "t", NOWHERE, 3600, lambda: True)
