"""What a task, a store or a worker has opened ends with it, wherever it fails: seen by the threads of this process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from keyorder import TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.runtime.kafka_log import KafkaLog
from keyorder.connector.connect.runtime.offsets import KafkaOffsetStore
from keyorder.partitioner.errors import ConfigError, KeyorderError
from support.cluster import KafkaUnderTest
from support.connect_failing import Failing
from support.connect_rig import alone, group_settings, until, worker_settings

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system does not list threads")


def threads() -> int:
    """Of this process, those of the client library among them; without those of connectors, which are still there."""
    connectors = sum(each.name.startswith("connect-connector-") for each in threading.enumerate())
    return len(os.listdir("/proc/self/task")) - connectors


@pytest.mark.parametrize("kind", ["WrongSink", "WrongSource"])
@pytest.mark.parametrize("where", ["constructor", "initialize", "start"])
def test_a_task_that_cannot_start_leaves_nothing_open(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, where: str
) -> None:
    """A sink's consumer, its dead letter queue and list of parked keys; a source's producer."""
    monkeypatch.setattr(Failing, "fails", where)
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    settings = worker_settings(
        kafka, tmp_path, plugin_classes="support.connect_failing:WrongSink,support.connect_failing:WrongSource"
    )
    config = {"connector.class": kind}
    if kind == "WrongSink":
        config |= {
            "topics": topic_name,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{topic_name}-dead",
            "errors.deadletterqueue.topic.replication.factor": "1",
        }
    with alone(settings) as worker:
        worker.connectors()
        before = threads()
        worker.create(topic_name, config)
        until(
            lambda: [t["state"] for t in worker.status(topic_name)["tasks"]] == ["FAILED"],
            lambda: f"its task fails: {worker.status(topic_name)}",
            60,
        )
        assert f"no {where}" in worker.status(topic_name)["tasks"][0]["trace"]
        until(lambda: threads() <= before, lambda: f"{threads()} threads, {before} before: clients are open", 60)


def test_a_dead_letter_queue_ends_when_the_list_of_parked_keys_cannot_be_read(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """The topic of parked keys is not compacted: the task fails before it reads."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1)
    admin.create(f"{topic_name}-parked", 1, config={"cleanup.policy": "delete"})
    with alone(worker_settings(kafka, tmp_path, parking_storage_topic=f"{topic_name}-parked")) as worker:
        worker.connectors()
        before = threads()
        config = {
            "connector.class": "MemorySink",
            "topics": topic_name,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{topic_name}-dead",
            "errors.deadletterqueue.topic.replication.factor": "1",
        }
        worker.create(topic_name, config)
        until(
            lambda: [t["state"] for t in worker.status(topic_name)["tasks"]] == ["FAILED"],
            lambda: f"its task fails: {worker.status(topic_name)}",
            60,
        )
        assert "compact" in worker.status(topic_name)["tasks"][0]["trace"]
        until(lambda: threads() <= before, lambda: f"{threads()} threads, {before} before: clients are open", 60)


def test_a_closed_store_opens_nothing_again(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A source task that outlives its worker is told so."""
    before = threads()
    store = KafkaOffsetStore(kafka.client_config(), topic_name, 1, 1)
    store.write("c", {"{}": {"position": 1}})
    store.close()
    with pytest.raises(KeyorderError, match="closed"):
        store.write("c", {"{}": {"position": 2}})
    with pytest.raises(KeyorderError, match="closed"):
        store.refresh()
    until(lambda: threads() <= before, lambda: f"{threads()} threads, {before} before: clients are open", 60)


def test_a_log_that_cannot_be_opened_leaves_nothing_open(kafka: KafkaUnderTest, topic_name: str) -> None:
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config={"cleanup.policy": "delete"})
    before = threads()
    log = KafkaLog(kafka.client_config(), topic_name, 1, 1, lambda key, value: None)
    with pytest.raises(ConfigError, match="compact"):
        log.open()
    until(lambda: threads() <= before, lambda: f"{threads()} threads, {before} before: clients are open", 60)


def test_a_worker_whose_last_topic_is_wrong_leaves_nothing_open(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The topics of configurations and states were opened before that of offsets."""
    TopicAdmin(kafka.client_config()).create(f"{topic_name}-offsets", 1, config={"cleanup.policy": "delete"})
    before = threads()
    said = ""
    try:
        WorkerProcess(group_settings(kafka, topic_name), in_group=True)
    except ConfigError as error:
        said = str(error)  # the error itself has the frames, with what was open in them
    assert "compact" in said
    until(lambda: threads() <= before, lambda: f"{threads()} threads, {before} before: clients are open", 60)


def test_a_worker_that_never_starts_leaves_nothing_open(kafka: KafkaUnderTest, topic_name: str) -> None:
    before = threads()
    worker = WorkerProcess(group_settings(kafka, topic_name), in_group=True)
    worker.stop()
    until(lambda: threads() <= before, lambda: f"{threads()} threads, {before} before: clients are open", 60)
