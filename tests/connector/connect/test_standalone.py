"""A standalone worker against a real broker."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect.runtime.tasks.parking import ParkingList
from keyorder.streaming.sink.markers import Marker, encode_marker, ensure_marker_topic, marker_slot
from support.cluster import KafkaFactory, KafkaUnderTest
from support.connect_plugins import HandingOverTask
from support.connect_rig import MemorySink, alone, running, until, worker_settings


def produce(kafka: KafkaUnderTest, topic: str, records: list[tuple[str, str]]) -> None:
    """Write (key, value) pairs."""
    with OrderedProducer(kafka.client_config()) as producer:
        for key, value in records:
            producer.produce(topic, value, key)


def test_lines_of_a_file_go_to_a_topic_and_into_another_file(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Source and sink in one worker; a restarted worker goes on where the last one ended, without repeating a line."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"k{i % 3}:{i}\n" for i in range(30)))
    settings = worker_settings(kafka, tmp_path)
    reading = {"connector.class": "FileStreamSource", "file": str(source), "topic": topic_name, "key.delimiter": ":"}
    writing = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": topic_name,
        "file": str(target),
        "key.delimiter": ":",
    }

    def lines() -> list[str]:
        return target.read_text().splitlines() if target.exists() else []

    with alone(settings) as worker:
        worker.create(f"in-{topic_name}", reading)
        worker.create(f"out-{topic_name}", writing)
        until(lambda: len(lines()) == 30, "30 lines are there")
    with source.open("a") as file:
        file.writelines(f"k{i % 3}:{i}\n" for i in range(30, 60))
    with alone(settings) as worker:
        worker.create(f"in-{topic_name}", reading)
        worker.create(f"out-{topic_name}", writing)
        until(lambda: len(lines()) >= 60, "60 lines are there")

    for k in range(3):
        assert [line for line in lines() if line.startswith(f"k{k}:")] == [f"k{k}:{i}" for i in range(k, 60, 3)]


def test_what_a_task_has_flushed_is_stored_for_the_task_that_takes_over(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """`context.flush()` does not leave the offsets to the next interval: the other task would copy the records again."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    settings = worker_settings(kafka, tmp_path, offset_flush_interval_ms="600000")
    HandingOverTask.stored.clear()
    with alone({**settings, "plugin.classes": "support.connect_plugins:HandingOverSource"}) as worker:
        worker.create(topic_name, {"connector.class": "HandingOverSource", "topic": topic_name})
        until(lambda: len(HandingOverTask.stored) >= 3, "three polls")
    assert HandingOverTask.stored[:3] == [None, {"next": 5}, {"next": 10}]


def committed(worker: Any, connector: str) -> int:
    """The position of a sink of one partition: 0 from its start on, until it commits."""
    return sum(int(each["offset"]["kafka_offset"]) for each in worker.offsets(connector)["offsets"])


def test_a_failed_record_fails_the_task_and_what_came_before_it_is_committed_once(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """errors.tolerance=none: FAILED with a trace, nothing behind the record is put; a restart begins with it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    produce(kafka, topic_name, [("a", "1"), ("a", "2")])
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, {"connector.class": "MemorySink", "topics": topic_name})
        until(lambda: committed(worker, topic_name) == 2, "two values are put, and committed at the next interval")
        produce(kafka, topic_name, [("a", "bad"), ("a", "4")])
        until(lambda: worker.task_status(topic_name, 0)["state"] == "FAILED", "the task fails")

        assert "no bad here" in worker.task_status(topic_name, 0)["trace"]
        assert MemorySink.values(topic_name) == ["1", "2"]
        MemorySink.good.add("bad")
        worker.restart_task(topic_name, 0)
        until(lambda: len(MemorySink.values(topic_name)) >= 4, "the rest is put")
        MemorySink.good.discard("bad")
        assert MemorySink.values(topic_name) == ["1", "2", "bad", "4"]


def test_park_key_keeps_order_around_a_failed_record_and_releases_it(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Other keys flow; the failed key's later records follow it to the queue, and come back in order when released."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2)
    name = topic_name
    config = {
        "connector.class": "MemorySink",
        "topics": topic_name,
        "tasks.max": "2",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{topic_name}-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    produce(kafka, topic_name, [("a", "1"), ("b", "1"), ("a", "bad-2"), ("a", "3"), ("b", "2"), ("a", "4")])
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(name, config)
        until(lambda: MemorySink.values(name, "b") == ["1", "2"], "b flows")
        until(lambda: len(worker.parked(name)) == 1, "a is parked")
        assert admin.expand(topic_name, 5).after == 5  # a parked key that moves stays parked
        produce(kafka, topic_name, [("a", "5"), ("b", "3")])
        until(lambda: MemorySink.values(name, "b") == ["1", "2", "3"], "b flows on")
        assert MemorySink.values(name, "a") == ["1"]

        worker.release(name, topic_name, b"a", "replay")  # it fails again: still parked
        first = worker.parked(name)[0]
        until(lambda: [p.id for p in worker.parked(name)] != [first.id], "it was tried")
        assert MemorySink.values(name, "a") == ["1"]
        MemorySink.good.add("bad-2")
        worker.release(name, topic_name, b"a", "replay")
        until(lambda: worker.parked(name) == [], "a is free")
        produce(kafka, topic_name, [("a", "6")])
        until(lambda: len(MemorySink.values(name, "a")) >= 6, "a flows")
        running(worker, name, 2)

    assert MemorySink.values(name, "a") == ["1", "bad-2", "3", "4", "5", "6"]
    versions = [record.version for record in MemorySink.seen[name] if record.key == "a"]
    assert versions == sorted(versions)


@pytest.mark.parametrize(
    ("mode", "before", "start"),
    [("replay", 1, 1), ("skip", 1, 1), ("replay", -1, 3)],
    ids=["the first, replay", "the first, skip", "all"],
)
def test_a_key_whose_parked_records_are_gone_stays_parked_until_it_is_discarded(
    kafka: KafkaUnderTest,
    topic_name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    before: int,
    start: int,
) -> None:
    """Retention has deleted some, or all. What is left would pass for everything, and `skip` would leave out a wrong one."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    dead, bad = f"{topic_name}-dlq", f"bad-{topic_name}"
    config = {
        "connector.class": "MemorySink",
        "topics": topic_name,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    produce(kafka, topic_name, [("a", bad), ("a", "2"), ("a", "3"), ("b", "1")])
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, config)
        until(lambda: committed(worker, topic_name) == 4, "a is parked")
        admin, place = AdminClient(kafka.client_config()), TopicPartition(dead, 0, before)
        admin.delete_records([place])[place].result(120)
        MemorySink.good.add(bad)

        parked = worker.parked(topic_name)
        worker.release(topic_name, topic_name, b"a", mode)
        until(lambda: f"{dead}[0] begins at offset {start}" in caplog.text, "the release is refused")
        assert "mode discard" in caplog.text
        assert worker.parked(topic_name) == parked
        worker.restart_task(topic_name, 0)  # the request is gone: it is not refused once more
        produce(kafka, topic_name, [("a", "4"), ("b", "2")])
        until(lambda: MemorySink.values(topic_name, "b") == ["1", "2"], "the task goes on")
        with closing(ParkingList(kafka.client_config(), "connect-parked", 1, topic_name)) as listed:
            assert list(listed.releases()) == []
        assert caplog.text.count("begins at offset") == 1

        worker.release(topic_name, topic_name, b"a", "discard")
        until(lambda: worker.parked(topic_name) == [], "a is free")
        produce(kafka, topic_name, [("a", "5")])
        until(lambda: "5" in MemorySink.values(topic_name, "a"), "a flows")
        running(worker, topic_name)
    assert MemorySink.values(topic_name, "a") == ["5"]


def test_the_queue_that_keeps_parked_records_is_made_to_keep_them(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Whatever the broker's default retention: they wait for a release. With the policy `record` the default applies."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    config = {
        "connector.class": "MemorySink",
        "topics": topic_name,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    admin, kept = AdminClient(kafka.client_config()), {}
    with alone(worker_settings(kafka, tmp_path)) as worker:
        for policy in ("park-key", "record"):
            name = f"{topic_name}-{policy}"
            queue = {"errors.deadletterqueue.topic.name": name, "errors.deadletterqueue.policy": policy}
            worker.create(name, {**config, **queue})
            tasks = worker.herder.worker._tasks
            until(lambda: (task := tasks.get((name, 0))) and task.metrics.snapshot().get("partition_count"), "it runs")  # noqa: B023
            resource = ConfigResource(ResourceType.TOPIC, name)
            entries = admin.describe_configs([resource])[resource].result(120).values()
            own = [each for each in entries if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value]
            kept[policy] = {each.name: each.value for each in own}
    assert kept == {"park-key": {"retention.ms": "-1", "retention.bytes": "-1"}, "record": {}}


def test_the_dead_letter_queue_says_what_happened(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Connect's headers, the record's own headers and bytes; a conversion that fails is dead-lettered too."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    stock = Producer(kafka.client_config())
    stock.produce(topic_name, b"\xff", "a", headers=[("own", b"1"), ("keyorder-epoch", b"0")])
    stock.produce(topic_name, b"fine", "a")
    assert stock.flush(120) == 0
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(
            topic_name,
            {
                "connector.class": "MemorySink",
                "topics": topic_name,
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": f"{topic_name}-dlq",
                "errors.deadletterqueue.topic.replication.factor": "1",
                "errors.deadletterqueue.context.headers.enable": "true",
                "errors.deadletterqueue.policy": "record",
            },
        )
        until(lambda: MemorySink.values(topic_name) == ["fine"], "the other one is put")
    reader = Consumer({**kafka.client_config(), "group.id": "dlq", "auto.offset.reset": "earliest"})
    reader.subscribe([f"{topic_name}-dlq"])
    message = until(lambda: reader.poll(1.0), "a dead letter")
    reader.close()
    headers = dict(message.headers())

    assert (message.key(), message.value(), headers["own"]) == (b"a", b"\xff", b"1")
    assert "keyorder-epoch" not in headers  # an epoch of the topic that was read, not of this one
    assert {
        name: headers[f"__connect.errors.{name}"] for name in ("topic", "partition", "offset", "stage", "task.id")
    } == {
        "topic": topic_name.encode(),
        "partition": b"0",
        "offset": b"0",
        "stage": b"VALUE_CONVERTER",
        "task.id": b"0",
    }
    assert headers["__connect.errors.connector.name"] == topic_name.encode()
    assert b"DataError" in headers["__connect.errors.exception.class.name"]
    assert b"Traceback" in headers["__connect.errors.exception.stacktrace"]


def test_without_a_queue_failed_records_are_skipped(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """As in Kafka Connect; the others stay in order. Who asks for parked keys needs a queue for them."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    produce(kafka, topic_name, [("a", "1"), ("a", "bad-1"), ("a", "2"), ("a", "3")])
    config = {"connector.class": "MemorySink", "topics": topic_name, "errors.tolerance": "all"}
    with alone(worker_settings(kafka, tmp_path)) as worker:
        with pytest.raises(ValueError, match=r"errors\.deadletterqueue\.topic\.name"):
            worker.create(topic_name, {**config, "errors.deadletterqueue.policy": "park-key"})
        worker.create(topic_name, config)
        until(lambda: MemorySink.values(topic_name) == ["1", "2", "3"], "the others are put")
        task = worker.herder.worker.metrics()[topic_name, 0].snapshot()
    assert (task["total_records_skipped"], task["total_record_failures"]) == (1, 1)


@pytest.mark.parametrize("setting", ["errors.deadletterqueue.topic.name", "topics"])
def test_contradicting_settings_are_refused_with_the_setting_s_name(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, setting: str
) -> None:
    """A queue among the topics that are read, and no topics at all."""
    config = {"connector.class": "MemorySink", "topics": topic_name, "errors.deadletterqueue.topic.name": topic_name}
    if setting == "topics":
        config = {"connector.class": "MemorySink"}
    with alone(worker_settings(kafka, tmp_path)) as worker, pytest.raises(ValueError, match=setting):
        worker.create(topic_name, config)


def test_a_pattern_of_topics_is_matched_as_a_whole(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Also one with alternatives: no topic is read that only begins, or only ends, as one of them."""
    wanted, others = (f"{topic_name}-a", f"{topic_name}-b"), (f"{topic_name}-ax", f"x-{topic_name}-b")
    for topic in (*others, *wanted):
        TopicAdmin(kafka.client_config()).create(topic, 1)
        produce(kafka, topic, [("k", topic)])
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, {"connector.class": "MemorySink", "topics.regex": "|".join(wanted)})
        running(worker, topic_name)
        until(lambda: set(MemorySink.values(topic_name)) >= set(wanted), "both are read", 240)
        for topic in (*others, *wanted):
            produce(kafka, topic, [("k", f"{topic}-again")])
        again = {f"{topic}-again" for topic in wanted}
        until(lambda: set(MemorySink.values(topic_name)) >= again, "both are read on", 240)
        assert set(MemorySink.values(topic_name)) == again | set(wanted)
        assert set(worker.topics(topic_name)[topic_name]["topics"]) == set(wanted)


def test_a_pattern_of_topics_is_java_s(kafka_factory: KafkaFactory, topic_name: str, tmp_path: Path) -> None:
    """Also what the client library's own patterns do not have; none of Kafka's and keyorder's own topics is meant."""
    kafka = kafka_factory()  # of its own: others leave topics that stop whoever reads them
    wanted, other = f"{topic_name}-7", f"{topic_name}-d"
    for topic in (other, wanted):
        TopicAdmin(kafka.client_config()).create(topic, 1)
        produce(kafka, topic, [("k", topic)])
    ensure_marker_topic(kafka.client_config())
    slot = marker_slot(topic_name)
    marks = Producer(kafka.client_config())
    marks.produce(slot[0], encode_marker(Marker(1, 1, "a")), topic_name.encode(), slot[1])
    assert marks.flush(120) == 0
    raw = {"key.converter": "ByteArrayConverter", "value.converter": "ByteArrayConverter"}
    digits, every = f"{topic_name}-digits", f"{topic_name}-every"
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(digits, {"connector.class": "MemorySink", "topics.regex": rf"(?:{topic_name})-\d+?"})
        until(lambda: MemorySink.values(digits) == [wanted], "the one topic is read", 240)
        worker.create(every, {"connector.class": "MemorySink", "topics.regex": ".*", **raw})
        until(lambda: {wanted.encode(), other.encode()} <= set(MemorySink.values(every)), "both are read", 240)
        read = {record.topic for record in MemorySink.seen[every]}
        assert [topic for topic in read if topic.startswith("_")] == []
        assert MemorySink.values(digits) == [wanted]


@pytest.mark.parametrize("pattern", ["(?!x).*", "a++", r"\bx", "[a&&b]", "(", r"(a)\1"])
def test_a_pattern_that_cannot_be_matched_is_refused(kafka: KafkaUnderTest, tmp_path: Path, pattern: str) -> None:
    """Rather than matched otherwise, or not at all."""
    config = {"connector.class": "MemorySink", "topics.regex": pattern}
    with alone(worker_settings(kafka, tmp_path)) as worker, pytest.raises(ValueError, match=r"topics\.regex"):
        worker.create("x", config)
