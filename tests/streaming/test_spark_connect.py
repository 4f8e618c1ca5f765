"""Spark Connect and declarative pipelines: both run in processes of their own, as their users' do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from confluent_kafka import Consumer, TopicPartition
from keyorder.streaming.java import prepare_java
from keyorder.streaming.process import prepare_python
from support.cluster import KafkaUnderTest
from support.spark_source import create, send

ROOT = Path(__file__).parents[2]
SENT = [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("c", "5")]

PIPELINE = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
at = {{"kafka.bootstrap.servers": "{bootstrap}"}}

@dp.table
def arrived():
    rows = spark.readStream.format("keyorder").options(**at, subscribe="{topic}", startingOffsets="earliest").load()
    return rows.selectExpr("string(key) as key", "string(value) as value")

@dp.materialized_view
def counts():
    return spark.read.table("arrived").groupBy("key").count()

dp.create_sink("copies", "keyorder", {{**at, "topic": "{topic}-out"}})

@dp.append_flow(target="copies")
def copy():
    return spark.readStream.table("arrived")
"""
SPEC = """\
name: keyorder
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where keyorder is found as if it were installed: as a package, and by the name under which Spark looks for sources."""
    packages = tmp_path / "packages"
    packages.mkdir()
    packages.joinpath("keyorder").symlink_to(ROOT)
    packages.joinpath("pyspark_keyorder").symlink_to(ROOT / "pyspark_keyorder")
    found = {**os.environ, "PYTHONPATH": str(packages), "SPARK_LOCAL_IP": "127.0.0.1"}
    prepare_java(found)
    prepare_python(found)
    return found


@pytest.fixture
def topic(kafka: KafkaUnderTest, topic_name: str) -> str:
    """Filled, with another to write to."""
    create(kafka, topic_name, 2)
    create(kafka, f"{topic_name}-out", 2)
    send(kafka, topic_name, [(ord(key) % 2, key, value) for key, value in SENT])
    return topic_name


def written(kafka: KafkaUnderTest, topic: str) -> list[tuple[str, str]]:
    """What the topic holds for a reader of committed records."""
    consumer = Consumer({**kafka.client_config(), "group.id": topic, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in (0, 1)])
    rows, ends = [], 0
    while ends < 2:
        message = consumer.poll(120)
        assert message is not None
        if message.error() is not None:
            ends += 1
        else:
            rows.append((message.key().decode(), message.value().decode()))
    consumer.close()
    return sorted(rows)


@pytest.mark.timeout(900)
def test_a_client_of_spark_connect(
    kafka: KafkaUnderTest, topic: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """A batch, a stream into the sink, foreachBatch, and state by transformWithState."""
    job = [sys.executable, str(ROOT / "tests" / "support" / "spark_connect_job.py")]
    done = subprocess.run(
        [*job, kafka.bootstrap_servers, topic, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    rows = [list(row) for row in SENT]
    assert "connect" in found.pop("session")
    assert found == {"batch": rows, "sink": rows, "foreachBatch": 10, "state": [["a", 2], ["b", 1], ["c", 2]]}
    assert written(kafka, f"{topic}-out") == sorted(SENT * 2)


@pytest.mark.timeout(900)
def test_a_declarative_pipeline(kafka: KafkaUnderTest, topic: str, environment: dict[str, str], tmp_path: Path) -> None:
    """A streaming table from a topic, a materialized view of it, and a sink into another topic."""
    folder = tmp_path / "pipeline"
    (folder / "transformations").mkdir(parents=True)
    folder.joinpath("spark-pipeline.yml").write_text(SPEC.format(folder=folder))
    text = PIPELINE.format(bootstrap=kafka.bootstrap_servers, topic=topic)
    folder.joinpath("transformations", "orders.py").write_text(text)
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert written(kafka, f"{topic}-out") == sorted(SENT)
    # What a view counts, as Spark has stored it: its catalog ends with the run.
    counts = pq.read_table(folder / "spark-warehouse" / "counts").to_pylist()
    assert sorted((row["key"], row["count"]) for row in counts) == [("a", 2), ("b", 1), ("c", 2)]
