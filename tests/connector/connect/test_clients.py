"""Tools of Kafka Connect, unchanged, against our worker: two Python clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_connect import KafkaConnect
from kafka_connect_api.errors import GenericNotFound
from kafka_connect_api.kafka_connect_api import Api, Cluster, Connector
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from support.cluster import KafkaUnderTest
from support.connect_rig import MemorySink, RestClient, await_leader, group_settings, until

TOKEN = "0123456789abcdef"


@pytest.fixture
def worker(kafka: KafkaUnderTest, topic_name: str) -> Iterator[WorkerProcess]:
    """One that asks for a token, and a topic with three records of one key."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        for value in ("1", "2", "3"):
            producer.produce(topic_name, value, "k")
    with WorkerProcess(group_settings(kafka, f"g-{topic_name}") | {"rest.token": TOKEN}, in_group=True) as one:
        await_leader(one.url, auth=("admin", TOKEN))
        yield one


def test_kafka_connect_py(worker: WorkerProcess, topic_name: str) -> None:
    """The life of a connector, with Basic."""
    client = KafkaConnect(worker.url, auth=f"admin:{TOKEN}")
    config = {"connector.class": "MemorySink", "topics": topic_name, "tasks.max": "1"}
    assert client.get_cluster_info()["version"].startswith("4.")
    assert any(p["class"].endswith("FileStreamSourceConnector") for p in client.list_connector_plugins())
    named = {"name": topic_name, **config}
    assert client.validate_connector_config("MemorySink", named)["error_count"] == 0
    assert client.create_connector({"name": topic_name, "config": config})["name"] == topic_name

    def task() -> str:
        tasks = client.get_connector_status(topic_name)["tasks"]
        return tasks[0]["state"] if tasks else ""

    until(lambda: MemorySink.values(topic_name) == ["1", "2", "3"], "its records")
    until(lambda: client.list_connector_topics(topic_name)[topic_name]["topics"] == [topic_name], "its topic")
    assert client.get_connector_config(topic_name) == named
    assert client.list_connectors(expand="status")[topic_name]["status"]["type"] == "sink"
    assert client.list_connectors(pattern=topic_name, state="RUNNING") == [topic_name]
    assert client.get_connector_task_status(topic_name, 0)["state"] == "RUNNING"
    client.pause_connector(topic_name)
    until(lambda: task() == "PAUSED", "paused")
    client.resume_connector(topic_name)
    until(lambda: task() == "RUNNING", "running")
    client.restart_connector_task(topic_name, 0)
    client.restart_connector(topic_name, include_tasks=True)
    until(lambda: task() == "RUNNING", "running")
    client.update_connector(topic_name, {**named, "errors.log.enable": "true"})
    client.reset_connector_topics(topic_name)
    client.stop_connector(topic_name)
    until(lambda: client.get_connector_status(topic_name)["connector"]["state"] == "STOPPED", "stopped")
    client.delete_connector(topic_name)
    assert client.list_connectors() == []


def test_kafka_connect_api(worker: WorkerProcess, topic_name: str) -> None:
    """Connectors as objects, and loggers."""
    rest = RestClient(worker.url, headers={"Authorization": f"Bearer {TOKEN}"})
    rest.ok("PUT", f"/connectors/{topic_name}/config", {"connector.class": "MemorySink", "topics": topic_name})
    rest.running(topic_name, 1)
    cluster = Cluster(Api(url=worker.url, username="admin", password=TOKEN))
    assert cluster.version == "4.1.2"
    assert cluster.kafka_cluster
    assert list(cluster.connectors) == [topic_name]
    found: Connector = cluster.connectors[topic_name]
    assert found.exists()
    assert found.state == "RUNNING"
    assert found.config["topics"] == topic_name
    assert [task.is_running() for task in found.tasks] == [True]
    found.config = {**found.config, "errors.log.enable": "true"}
    assert found.config["errors.log.enable"] == "true"
    assert "level" in cluster.root_logger
    assert cluster.set_logger_log_level("org.apache.kafka.connect", "INFO")
    found.pause()
    until(lambda: found.state == "PAUSED", "paused")
    found.resume()
    until(lambda: found.state == "RUNNING", "running")
    found.delete()
    with pytest.raises(GenericNotFound):
        found.exists()
