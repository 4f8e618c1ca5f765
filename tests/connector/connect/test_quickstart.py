"""Kafka's own quickstart of Connect: its property files as they stand, with lines appended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect.runtime.group.state import Target
from support.cluster import KafkaFactory, KafkaUnderTest
from support.connect_rig import MemorySink, alone, running, until, worker_settings

# The settings of the three files in config/ of Kafka's distribution, each line as it stands there.
WORKER = """\
bootstrap.servers=localhost:9092

key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true

offset.storage.file.filename=/tmp/connect.offsets
offset.flush.interval.ms=10000
#plugin.path=
"""
OLDER = """\
internal.key.converter=org.apache.kafka.connect.json.JsonConverter
internal.value.converter=org.apache.kafka.connect.json.JsonConverter
internal.key.converter.schemas.enable=false
internal.value.converter.schemas.enable=false
"""
SOURCE = """\
name=local-file-source
connector.class=FileStreamSource
tasks.max=1
file=test.txt
topic=connect-test"""
SINK = """\
name=local-file-sink
connector.class=FileStreamSink
tasks.max=1
file=test.sink.txt
topics=connect-test"""


def first_value(kafka: KafkaUnderTest, topic: str) -> bytes | None:
    """Of the first record of partition 0, or None."""
    reader = Consumer({**kafka.client_config(), "group.id": "look", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = reader.consume(1, 20.0)
    reader.close()
    if not found or (found[0].error() is not None and found[0].error().code() == KafkaError._PARTITION_EOF):
        return None
    value = found[0].value()
    return value.encode() if isinstance(value, str) else value


def test_the_quickstart_runs_as_its_files_stand(kafka_factory: KafkaFactory, tmp_path: Path) -> None:
    """File to topic to file, on a broker that makes topics by itself; a line that is added later follows.

    As on Kafka's page the files stay as they are, relative paths too, and lines are appended: there the jar of the file
    connectors, here also what a test has of its own, the address and a file of offsets. Settings of older distributions
    change nothing.
    """
    kafka = kafka_factory(properties={"auto.create.topics.enable": "true", "num.partitions": "1"})
    own = f"bootstrap.servers={kafka.client_config()['bootstrap.servers']}\nlisteners=http://127.0.0.1:0\n"
    own += f"offset.storage.file.filename={tmp_path / 'connect.offsets'}\n"
    appended = "plugin.path=libs/connect-file-4.1.2.jar\n"
    config = tmp_path / "config"
    config.mkdir()
    files = []
    for name, text in (("standalone", WORKER + OLDER + appended + own), ("file-source", SOURCE), ("file-sink", SINK)):
        path = config / f"connect-{name}.properties"
        path.write_text(text)
        files.append(str(path.relative_to(tmp_path)))
    (tmp_path / "test.txt").write_text("foo\nbar\n")
    log = (tmp_path / "worker.log").open("wb")
    # With the soft limit of descriptors that shells often have, or less: a worker takes what the hard one allows.
    worker = subprocess.Popen(
        [
            "sh",
            "-c",
            'ulimit -S -n 64 && exec "$@"',
            "sh",
            sys.executable,
            "-Im",
            "keyorder",
            "connect",
            "standalone",
            *files,
        ],
        stdout=log,
        stderr=log,
        cwd=tmp_path,
    )
    target = tmp_path / "test.sink.txt"

    def lines() -> list[str]:
        assert worker.poll() is None, (tmp_path / "worker.log").read_text()
        return target.read_text().splitlines() if target.exists() else []

    try:
        until(lambda: lines() == ["foo", "bar"], lambda: (tmp_path / "worker.log").read_text()[-3000:], 240)
        assert first_value(kafka, "connect-test") == b'{"schema":{"type":"string","optional":false},"payload":"foo"}'
        with (tmp_path / "test.txt").open("a") as file:
            file.write("Another line\n")
        until(lambda: lines()[2:] == ["Another line"], lambda: (tmp_path / "worker.log").read_text()[-3000:], 240)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(120)
        log.close()


def test_a_sink_waits_for_its_topics(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """It runs before there is any, reads what is there, and what comes later."""
    here, later = f"{topic_name}-here", f"{topic_name}-later"
    settings = worker_settings(kafka, tmp_path, consumer_topic_metadata_refresh_interval_ms="500")
    with alone(settings) as worker:
        worker.create(topic_name, {"connector.class": "MemorySink", "topics": f"{here},{later}"})
        running(worker, topic_name)
        for topic, value in ((here, "1"), (later, "2")):
            TopicAdmin(kafka.client_config()).create(topic, 1)
            with OrderedProducer(kafka.client_config()) as producer:
                producer.produce(topic, value, "k")
            until(
                lambda value=value: value in MemorySink.values(topic_name), lambda: str(worker.status(topic_name)), 240
            )
        running(worker, topic_name)


def test_a_source_waits_for_a_topic_that_nobody_may_make(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Brokers that make none by themselves: the task runs, its lines come when the topic does, and it can be stopped before."""
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\n")
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": topic_name}
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create("stopped", {**config, "topic": f"{topic_name}-never"})
        running(worker, "stopped")
        worker.set_target("stopped", Target.STOPPED)
        until(lambda: worker.status("stopped")["connector"]["state"] == "STOPPED", "it stops", 240)
        assert worker.offsets("stopped")["offsets"] == []
        worker.create(topic_name, config)
        running(worker, topic_name)
        TopicAdmin(kafka.client_config()).create(topic_name, 1)
        until(lambda: worker.offsets(topic_name)["offsets"], "the lines are stored", 240)
        assert first_value(kafka, topic_name) == b"one"


def test_topics_are_made_as_the_connector_says(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Groups with what they leave out, a topic's own settings, -1 for the cluster's number of partitions."""
    file = tmp_path / "in.txt"
    file.write_text("k:one\n")
    config = {"connector.class": "FileStreamSource", "file": str(file), "key.delimiter": ":"}
    config |= {
        "topic.creation.groups": "logs",
        "topic.creation.default.partitions": "-1",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.logs.include": ".*logs.*",
        "topic.creation.logs.exclude": ".*plain.*",
        "topic.creation.logs.partitions": "3",
        "topic.creation.logs.cleanup.policy": "compact",
        "topic.creation.logs.retention.ms": "12345",
    }
    admin = AdminClient(kafka.client_config())
    with alone(worker_settings(kafka, tmp_path)) as worker:
        for suffix, count, policy in (("logs", 3, "compact"), ("plainlogs", None, "delete")):
            topic = f"{topic_name}-{suffix}"
            worker.create(topic, {**config, "topic": topic})
            until(
                lambda topic=topic: worker.offsets(topic)["offsets"], lambda topic=topic: str(worker.status(topic)), 240
            )
            resource = ConfigResource(ResourceType.TOPIC, topic)
            found = admin.describe_configs([resource])[resource].result(120)
            assert found["cleanup.policy"].value == policy
            assert (found["retention.ms"].value == "12345") == (suffix == "logs")
            partitions = len(admin.list_topics(topic, timeout=120).topics[topic].partitions)
            assert partitions == (count or partitions)


def test_topics_that_were_used_show_again_after_a_reset(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """And when a connector of that name is made again; a stopped one has no tasks."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    config = {"connector.class": "MemorySink", "topics": topic_name}
    with alone(worker_settings(kafka, tmp_path)) as worker, OrderedProducer(kafka.client_config()) as producer:

        def used() -> list[str]:
            found: list[str] = worker.topics(topic_name)[topic_name]["topics"]
            return found

        def show(value: str) -> None:
            producer.produce(topic_name, value, "k")
            producer.flush(120)
            until(lambda: used() == [topic_name], lambda: f"after {value}: {worker.status(topic_name)}", 240)

        worker.create(topic_name, config)
        show("1")
        worker.reset_topics(topic_name)
        until(lambda: used() == [], "it is reset", 240)
        show("2")
        worker.set_target(topic_name, Target.STOPPED)
        assert (worker.info(topic_name)["tasks"], worker.tasks(topic_name)) == ([], [])
        worker.delete(topic_name)
        worker.create(topic_name, config)
        assert used() == []
        show("3")
