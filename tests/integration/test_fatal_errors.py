"""A fatal error of the client library is raised as what it is, by the client that it belongs to and by no other one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.config import connection_of
from keyorder.connector.consuming.records.strays import StrayPolicy, Strays
from keyorder.connector.guarded_logger import PassingLogger
from keyorder.connector.link import control_writer
from keyorder.errors import NotAuthorizedError
from support.cluster import KafkaUnderTest
from support.groups import group_config, read
from support.rights import Right, grant_exactly, rights


class Lines(logging.Handler):
    """Counts what it is given, and does what handlers do: it calls, and catches what comes of that."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            self.format(record)
            self.count += 1
        except Exception:
            self.handleError(record)


def describes_only(guarded: KafkaUnderTest, topic: str) -> None:
    """A topic that "app" may not write, like any other: the broker gives it no producer id."""
    cluster = guarded.admin()
    cluster.create_topics([NewTopic(topic, 1)])[topic].result(120)
    grant_exactly(cluster, "app", [Right("producer", "topic", topic, "Describe")], {"TOPIC": topic})


@pytest.mark.parametrize("whose", ["ours", "the application's"])
def test_a_fatal_error_is_not_lost_behind_a_line_of_the_log(
    guarded: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """The broker gives no producer id to who may write no topic. The library tells of that, and goes on to log."""
    describes_only(guarded, topic_name)
    logger, lines = logging.getLogger("keyorder.librdkafka"), Lines()
    monkeypatch.setattr(logger, "handlers", [lines])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "level", logging.DEBUG)
    logger.manager._clear_cache()  # type: ignore[attr-defined]  # of which levels are enabled
    settings: dict[str, Any] = connection_of(guarded.client_config("app"))
    if whose != "ours":
        settings["logger"] = PassingLogger(logger)
    raised = []
    for _ in range(10):
        producer = Producer({**settings, "enable.idempotence": True, "debug": "broker,msg,eos"})
        producer.produce(topic_name, b"v", b"k")
        with pytest.raises(KafkaException) as caught:
            producer.flush(60)
        raised.append(caught.value.args[0].fatal())
    assert raised == [True] * 10
    assert lines.count > 0


@contextmanager
def changing(of: type) -> Iterator[None]:
    """Meanwhile the interpreter looks each attribute of this class up anew, and forgets an exception that it meets there.

    It does so where its cache holds another name in that place, too, which is what happens in a large program.
    """
    done = threading.Event()
    of.changed = True  # type: ignore[attr-defined]  # what it surrounds may be over before the thread has begun

    def change() -> None:
        while not done.wait(0.0001):
            of.changed = True  # type: ignore[attr-defined]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        del of.changed  # type: ignore[attr-defined]


def test_a_fatal_error_is_not_lost_behind_a_delivery_report(guarded: KafkaUnderTest, topic_name: str) -> None:
    """The report of what the error has ended comes in the same call."""
    describes_only(guarded, topic_name)
    for _ in range(10):
        strays = Strays(guarded.client_config("app"), "g", StrayPolicy.DEAD_LETTER, topic_name)
        strays.check()
        strays.found(Message(topic="t", partition=1, offset=7, key=b"k", value=b"v"), 0, 1)
        with changing(Strays), pytest.raises(NotAuthorizedError, match=topic_name):
            strays.settle()
        assert strays.pending
        strays.close()


def test_a_producer_that_may_write_nothing_stops_no_consumer_of_its_process(
    guarded: KafkaUnderTest, topic_name: str
) -> None:
    """Both share the client that writes control records, which gets no producer id and has failed for good."""
    TopicAdmin(guarded.client_config()).create(topic_name, 1)
    may = [right for right in rights() if right.role == "consumer"]
    may += [right for right in rights() if right.role == "producer" and right.operation != "Write"]
    grant_exactly(guarded.admin(), "app", may, {"TOPIC": topic_name, "GROUP": topic_name})
    config = {**group_config(guarded, topic_name), **guarded.client_config("app")}
    with OrderedConsumer(config) as consumer, OrderedProducer(guarded.client_config()) as allowed:
        consumer.subscribe([topic_name])
        allowed.produce(topic_name, b"1", b"k")
        read(consumer, 1)
        for _ in range(2):
            refused = OrderedProducer(guarded.client_config("app"))
            with changing(control_writer._Client), pytest.raises(NotAuthorizedError, match="_keyorder_writers"):
                refused.produce(topic_name, b"v", b"k")
            refused.close()
        allowed.produce(topic_name, b"2", b"k")
        read(consumer, 1)
