"""The Spark job's table in Delta Lake, by a real Spark with Delta's jars."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction.strategy import encode_version
from keyorder.compaction.view import CompactedView
from support.cluster import KafkaUnderTest


@pytest.mark.kip("K280-08")
@pytest.mark.timeout(1200)
def test_a_delta_table_is_the_views_table(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Written as a batch, and merged batch by batch by a stream, over a growth."""
    admin = TopicAdmin(kafka.client_config())
    config = {"compaction.strategy": "header", "compaction.strategy.header": "v", "keyorder.view.age.ms": "200"}
    admin.create(topic_name, 1, config=config)
    chance = random.Random(5)
    for part in range(2):
        with OrderedProducer(kafka.client_config()) as producer:
            for i in range(200):
                value = None if chance.random() < 0.2 else f"{part}-{i}"
                version = [("v", encode_version(chance.randrange(30)))]
                producer.produce(topic_name, value, f"k{chance.randrange(40)}", headers=version)
            assert producer.flush(120) == 0
        if part == 0:
            admin.expand(topic_name, 2)
    with CompactedView(kafka.client_config(), topic_name) as view:
        expected = {key.decode(): value.decode() for key, value in view.load().items()}

    job = subprocess.run(
        [sys.executable, "-m", "support.delta_job", kafka.bootstrap_servers, topic_name, str(tmp_path)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )

    assert job.returncode == 0, job.stderr[-3000:]
    assert json.loads(job.stdout.splitlines()[-1]) == [expected, expected]
