"""What a Spark worker keeps between tasks leaves the writer set when it is done: no change waits for it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from keyorder import TopicAdmin
from keyorder.streaming.sink.warm import Warm
from support.cluster import KafkaUnderTest
from support.groups import QUICK
from support.holding import until


def expelled(kafka: KafkaUnderTest, topic: str) -> list[str]:
    """Whom a growth had to expel."""
    change = TopicAdmin(kafka.client_config()).expand(topic, 4)
    return [step.name for step in change.steps if step.name.startswith("expelled")]


def test_an_idle_producer_leaves(kafka: KafkaUnderTest, topic_name: str) -> None:
    """And a task that comes later makes a new one; one that is in use stays."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    warm = Warm(idle=0.5)
    config: dict[str, Any] = dict(kafka.client_config())
    busy, _ = warm.producer({**config, "client.id": "busy"})
    producer, _ = warm.producer(config)
    producer.produce(topic_name, "v", "k")
    assert producer.flush(120) == 0
    warm.done(config)
    assert warm.producer(config) == (producer, False)
    warm.done(config)
    until(lambda: not producer._session.is_alive())
    assert expelled(kafka, topic_name) == []
    again, fresh = warm.producer(config)
    assert fresh
    assert again is not producer
    assert busy._session.is_alive()
    warm.close()


WORKER = """
import json, signal, sys
signal.signal(int(sys.argv[3]), signal.SIG_DFL)  # whoever runs this may ignore it, as nohup does
from keyorder.streaming.sink.warm import WARM

producer, _ = WARM.producer(json.loads(sys.argv[1]))
producer.produce(sys.argv[2], "v", "k")
assert producer.flush(120) == 0
WARM.done(json.loads(sys.argv[1]))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_worker_that_is_ended_leaves_first(kafka: KafkaUnderTest, topic_name: str, number: signal.Signals) -> None:
    """As Spark ends its workers: by a signal, which still ends it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    words = [sys.executable, "-c", WORKER, json.dumps(kafka.client_config()), topic_name, str(int(number))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "written\n"
        worker.send_signal(number)
        assert worker.wait(120) == -number
    assert expelled(kafka, topic_name) == []


APPLICATION = """
import json, sys
from pyspark.sql import SparkSession
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.java import prepare_java
from keyorder.streaming.process import prepare_python

prepare_java()
prepare_python()
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(KeyorderDataSource)
options = {f"kafka.{name}": str(value) for name, value in json.loads(sys.argv[1]).items()}
rows = spark.createDataFrame([(str(n), "v") for n in range(20)], "key string, value string").repartition(2)
rows.write.format("keyorder").mode("append").options(**options).option("topic", sys.argv[2]).save()
spark.stop()
"""


@pytest.mark.nightly
def test_the_workers_of_an_application_that_ends_leave(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A job that writes and stops at once: Spark resets its workers' signals after each task, then closes their sockets."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    words = [sys.executable, "-c", APPLICATION, json.dumps(kafka.client_config()), topic_name]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert expelled(kafka, topic_name) == []
