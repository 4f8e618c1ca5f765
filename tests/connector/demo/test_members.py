"""The demonstration's consumer processes on a real broker, one of each side."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from keyorder import TopicAdmin
from keyorder.connector.demo.crew import Crew
from keyorder.connector.verify.events import encode_value
from support.cluster import KafkaUnderTest


@pytest.mark.parametrize("side", ["stock", "keyorder"])
def test_a_member_works_records_off_and_ends_when_told(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, side: str
) -> None:
    """Each side's loop is one for both clients, so what only one of them takes must go to that one."""
    config = kafka.client_config()
    TopicAdmin(config).create(topic_name, 2)
    producer = Producer(config)
    for n in range(20):
        key = f"customer {n}"
        producer.produce(topic_name, encode_value("r", "writer-1", key, 1), key)
    assert producer.flush(120) == 0
    spec = {
        "bootstrap_servers": kafka.bootstrap_servers, "topic": topic_name, "group": f"{topic_name}-g",
        "run": "r", "side": side, "file": str(tmp_path / "member.jsonl"), "work_ms": 0.1,
    }  # fmt: skip
    with Crew(tmp_path) as crew:
        member = crew.start("reader-1", "reader", spec)
        crew.await_all("the records", lambda: member.facts.get("delivered") == 20, 300, lambda: None)
        crew.stop([member], 300)
