"""What a dead letter queue holds beside Kafka Connect's own: the same records in, the same dead letters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from support.cluster import KafkaUnderTest
from support.connect_jvm_worker import JvmWorker
from support.connect_rig import RestClient, until, worker_settings

PREFIX = "__connect.errors."
CAST = "org.apache.kafka.connect.transforms.Cast$Value"
VALUES = ("1", "no number", "2", "nor this", "3")
# Of these the JVM has Java's classes and words, and the connector's name is each worker's own.
OWN = {
    f"{PREFIX}{name}"
    for name in ("exception.class.name", "exception.message", "exception.stacktrace", "connector.name")
}


def dead_letters(kafka: KafkaUnderTest, topic: str) -> list[Message]:
    """All of them."""
    reader = Consumer({**kafka.client_config(), "group.id": "x", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    while (message := until(lambda: reader.poll(1.0), "the queue is read")).error() is None:
        found.append(message)
    assert message.error().code() == KafkaError._PARTITION_EOF
    reader.close()
    return found


def written(rest: RestClient, name: str, topic: str, tolerance: str, folder: Path, kafka: KafkaUnderTest) -> object:
    """(state of the task, lines of its file, what the dead letter queue has).

    Before a record that ends the task the JVM may have put nothing: it converts all that a poll returned first.
    """
    config = {
        "connector.class": "FileStreamSink",
        "file": str(folder / tolerance),
        "topics": topic,
        "transforms": "number",
        "transforms.number.type": CAST,
        "transforms.number.spec": "int64",
        "errors.tolerance": tolerance,
        "errors.deadletterqueue.policy": "record",
        "errors.deadletterqueue.topic.name": f"{name}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    rest.ok("PUT", f"/connectors/{name}/config", config)
    state, count = ("FAILED", 1) if tolerance == "none" else ("RUNNING", 2)
    until(
        lambda: rest.states(name)[1] == [state], lambda: f"{state}: {rest.ok('GET', f'/connectors/{name}/status')}", 60
    )
    until(lambda: len(dead_letters(kafka, f"{name}-dead")) >= count, f"the dead letters of {name} are written", 60)
    file = folder / tolerance
    if tolerance == "all":
        until(lambda: file.read_text().splitlines()[-1:] == ["3"], "the others are in the file", 60)
    found = []
    for message in dead_letters(kafka, f"{name}-dead"):
        headers = {key: value for key, value in message.headers() if key not in OWN}
        found.append((message.key(), message.value(), headers, {key for key, _ in message.headers()}))
    return rest.states(name)[1], file.read_text().splitlines() if tolerance == "all" else None, found


@pytest.mark.skipif("KEYORDER_CONNECT_CASES" not in os.environ, reason="make connect-parity starts the JVM's worker")
@pytest.mark.timeout(600)
def test_dead_letters_are_those_of_the_jvm(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Tolerated or not, with the headers of Kafka Connect."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        for value in VALUES:
            producer.produce(topic_name, value, "k")
    found = []
    for which in ("jvm", "ours"):
        folder = tmp_path / which
        folder.mkdir()

        def all_of(rest: RestClient, which: str = which, folder: Path = folder) -> list[object]:
            return [
                written(rest, f"{topic_name}-{which}-{tolerance}", topic_name, tolerance, folder, kafka)
                for tolerance in ("none", "all")
            ]

        if which == "jvm":
            worker = JvmWorker(kafka, folder)
            try:
                found.append(all_of(RestClient(worker.url)))
            finally:
                worker.stop()
        else:
            settings = worker_settings(kafka, folder) | {"listeners": "http://127.0.0.1:0"}
            with WorkerProcess(settings, in_group=False) as process:
                found.append(all_of(RestClient(process.url)))
    assert found[1] == found[0]
