"""A fatal error of the client library is raised as what it is, also while lines of its log are handed to a logger."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic
from keyorder.connector.config import connection_of
from keyorder.connector.guarded_logger import PassingLogger
from support.cluster import KafkaUnderTest
from support.rights import Right, grant_exactly


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


@pytest.mark.parametrize("whose", ["ours", "the application's"])
def test_a_fatal_error_is_not_lost_behind_a_line_of_the_log(
    guarded: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """The broker gives no producer id to who may write no topic. The library tells of that, and goes on to log."""
    cluster = guarded.admin()
    cluster.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    grant_exactly(cluster, "app", [Right("producer", "topic", topic_name, "Describe")], {"TOPIC": topic_name})
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
