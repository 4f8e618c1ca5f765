"""A log that ends below what is to be read: whoever reads up to there says so, and does not wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from keyorder.compaction import silence, table
from keyorder.compaction.errors import LogShorterError
from keyorder.compaction.silence import Silence
from keyorder.compaction.topic_log import TopicLog
from keyorder.compaction.view import CompactedView
from keyorder.connector import clock
from support.cluster import KafkaUnderTest


def test_two_looks_in_a_row_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """After silence alone; a leader that has caught up by the second look, or a partition that is read, is no reason."""
    now, found = [0.0], [{0: 5, 1: 20}]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    looks: list[float] = []

    def look() -> Mapping[int, int]:
        looks.append(now[0])
        return found[0]

    watch = Silence("t", {0: 10, 1: 20}, look)

    def after(seconds: float, positions: Mapping[int, int]) -> None:
        now[0] += seconds
        watch.seen(positions)

    after(9.0, {})
    after(4.0, {})
    assert looks == []
    after(1.0, {})
    found[0] = {0: 10, 1: 20}
    after(5.0, {})
    found[0] = {0: 5, 1: 20}
    after(5.0, {})
    after(5.0, {0: 5})  # something has come: it all begins again
    after(5.0, {0: 5})
    found[0] = {}
    after(5.0, {0: 5})
    found[0] = {0: 5, 1: 19}
    after(5.0, {0: 5, 1: 20})
    after(5.0, {0: 5, 1: 20})
    assert looks == [14.0, 19.0, 24.0, 34.0, 39.0, 49.0]
    with pytest.raises(LogShorterError, match=r"t\[0\] ends at 5, before offset 10"):
        after(5.0, {0: 5, 1: 25})
    after(50.0, {0: 10, 1: 20})
    after(50.0, {0: 10, 1: 20})
    assert len(looks) == 7


@pytest.mark.parametrize("bulk", [1, 1000])
def test_a_view_does_not_wait_for_what_is_lost(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, bulk: int
) -> None:
    """By columns and record by record: as if an unclean election came between the look at the ends and the reading."""
    stock = kafka.admin()
    stock.create_topics([NewTopic(topic_name, 1)])[topic_name].result(60)
    producer = Producer(kafka.client_config())
    for number in range(10):
        producer.produce(topic_name, "v", f"k{number}")
    assert producer.flush(120) == 0
    ends = TopicLog.ends

    def before_the_loss(log: TopicLog, *more: Any) -> dict[int, int]:
        return {p: end + 5 for p, end in ends(log, *more).items()}

    monkeypatch.setattr(TopicLog, "ends", before_the_loss)
    monkeypatch.setattr(table, "_BULK_RECORDS", bulk)
    monkeypatch.setattr(silence, "_SILENCE", 0.0)
    with CompactedView({**kafka.client_config(), "compaction.strategy": "offset"}, topic_name) as view:
        with pytest.raises(LogShorterError, match=r"ends at 10, before offset 15"):
            view.load()
        monkeypatch.setattr(TopicLog, "ends", ends)
        assert len(view.load()) == 10
