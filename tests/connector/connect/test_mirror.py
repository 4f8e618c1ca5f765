"""The mirror: many topics by a pattern, and positions of groups translated to the copies."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic  # type: ignore[attr-defined]  # not re-exported
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.connect.connectors.mirror import MirrorConnector
from keyorder.connector.connect.connectors.mirror_groups import Marks
from keyorder.connector.connect.connectors.mirror_settings import PLACE_HEADER
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.runtime.offsets import KafkaOffsetStore, OffsetReader, canonical
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, alone, committed_values, group_settings, running, until, worker_settings

BYTES = {f"{kind}.converter": "ByteArrayConverter" for kind in ("key", "value", "header")}


@pytest.mark.parametrize("seed", range(30))
def test_a_translated_group_misses_nothing_and_a_group_that_read_all_gets_nothing_again(seed: int) -> None:
    """Random copying with runs that fail and copy again; every group position that is translated is judged by the logs."""
    rng = random.Random(seed)
    partitions, targets = rng.randint(1, 4), rng.randint(1, 5)
    source = dict.fromkeys(range(partitions), 0)
    logs: dict[int, list[tuple[int, int]]] = {q: [] for q in range(targets)}  # (source partition, offset)
    handed_out, stored = dict(source), dict(source)
    marks = Marks()
    for _ in range(300):
        step = rng.random()
        if step < 0.5:
            marks.take(handed_out, {q: len(log) for q, log in logs.items()})
            for p in range(partitions):
                for _ in range(rng.randint(0, 3)):
                    logs[rng.randrange(len(logs))].append((p, handed_out[p]))
                    handed_out[p] += 1
        elif step < 0.6:
            stored = {p: rng.randint(stored[p], handed_out[p]) for p in stored}
        elif step < 0.63:  # a crash: a new run begins where offsets were stored
            handed_out, marks = dict(stored), Marks()
        elif step < 0.65 and len(logs) < 8:
            logs[len(logs)] = []
        committed = {p: rng.randint(0, handed_out[p]) for p in range(partitions) if rng.random() < 0.9}
        found = marks.translated(committed, partitions)
        if found is not None:
            for p in range(partitions):
                unread = set(range(committed.get(p, 0), handed_out[p]))
                assert unread <= {o for q, log in logs.items() for r, o in log[found.get(q, 0) :] if r == p}
    marks.take(handed_out, {q: len(log) for q, log in logs.items()})
    assert marks.translated(handed_out, partitions) == {q: len(log) for q, log in logs.items()}


def test_what_is_not_known_is_not_translated() -> None:
    """A partition without a mark, one that went to another task, a position before the first mark."""
    marks = Marks()
    marks.take({0: 5}, {0: 7})
    assert marks.translated({0: 5}, 1) == {0: 7}
    assert marks.translated({0: 4}, 1) is None
    assert marks.translated({0: 5}, 2) is None
    marks.take({1: 0}, {0: 9})
    assert marks.translated({0: 5}, 2) == {0: 7}
    marks.forget(1)
    assert marks.translated({0: 5}, 2) is None


def test_marks_stay_few_and_keep_the_first() -> None:
    """However long the mirror runs; newer ones are closer together."""
    marks = Marks()
    for offset in range(5000):
        marks.take({0: offset}, {0: offset})
    assert marks.translated({0: 0}, 1) == {0: 0}
    assert marks.translated({0: 4999}, 1) == {0: 4999}
    for committed in range(0, 5000, 50):
        found = marks.translated({0: committed}, 1)
        assert found is not None
        assert found[0] <= committed
    assert sum(map(len, marks._marks.values())) <= 64


GOOD = {"source.topic": "a", "target.topic": "b", "source.bootstrap.servers": "x:1"}


@pytest.mark.parametrize(
    ("changes", "blamed"),
    [
        ({}, None),
        ({"source.topic": None}, "source.topic"),
        ({"source.topics.regex": "a.*"}, "source.topic"),
        ({"source.topic": None, "source.topics.regex": "a.*", "target.bootstrap.servers": "y:1"}, "target.topic"),
        (
            {"source.topic": None, "source.topics.regex": "a.*", "target.topic": "${topic}-b"},
            "target.bootstrap.servers",
        ),
        ({"source.topic": None, "source.topics.regex": "(", "target.topic": "${topic}"}, "source.topics.regex"),
        ({"target.topic": "a"}, "target.bootstrap.servers"),
        ({"target.topic": "${topic}"}, "target.bootstrap.servers"),
        ({"groups.regex": "g"}, "target.bootstrap.servers"),
        ({"groups.regex": "g", "target.bootstrap.servers": "y:1", "groups.name": "one"}, "groups.name"),
        ({"groups.regex": "g", "target.bootstrap.servers": "y:1", "tasks.max": "2"}, "groups.regex"),
        ({"groups.regex": "g", "target.bootstrap.servers": "y:1", "tasks.max": "1"}, None),
        ({"source.keyorder.gate": "key"}, "source.keyorder.gate"),
        ({"source.keyorder.gate.early.release": "true"}, "source.keyorder.gate.early.release"),
        ({"groups.interval.ms": "0"}, "groups.interval.ms"),
    ],
)
def test_settings_are_judged_together(changes: dict[str, str | None], blamed: str | None) -> None:
    """The right one is blamed, before anything is copied."""
    config = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    wrong = [value.name for value in MirrorConnector.validate(config) if value.errors]
    assert (blamed in wrong) if blamed else (wrong == [])


def test_stored_offsets_are_those_of_now(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What another worker's task has stored since is seen: a partition that comes from there is not copied again."""
    ours, theirs = (KafkaOffsetStore(kafka.client_config(), topic_name, 1, 1) for _ in range(2))
    try:
        reader = OffsetReader(ours, "m")
        place = {"topic": "t", "partition": 0}
        assert reader.offset(place) is None
        for offset in (5, 9):
            theirs.write("m", {canonical(place): {"offset": offset}})
            assert reader.offset(place) == {"offset": offset}
            assert reader.offsets([place]) == [{"offset": offset}]
    finally:
        ours.close()
        theirs.close()


def committed(kafka: KafkaUnderTest, group: str, topic: str, count: int) -> dict[int, int]:
    reader = Consumer({**kafka.client_config(), "group.id": group})
    try:
        found = reader.committed([TopicPartition(topic, p) for p in range(count)], timeout=120)
        return {place.partition: place.offset for place in found if place.offset >= 0}
    finally:
        reader.close()


def values_from(reader: Consumer | OrderedConsumer, count: int) -> dict[str, list[int]]:
    """What it gets, by key, until it has had the last of `count` values of each of ten keys."""
    got: dict[str, list[int]] = defaultdict(list)

    def whole() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            got[text(message.key())].append(int(text(message.value())))
        return sum(values[-1] >= count - 10 for values in got.values()) == 10

    until(whole, lambda: f"the last value of each key: {dict(got)}", 240)
    return dict(got)


def text(data: Any) -> str:
    return data if isinstance(data, str) else data.decode()


def test_topics_by_a_pattern_with_the_offsets_of_groups(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """A managed topic and a plain one, into a managed target that grows meanwhile and a plain one. A group goes on in the copies
    where it was: nothing is missing, each key comes in order; one that has read all gets nothing again.
    """
    admin, copy = TopicAdmin(kafka.client_config()), f"copy-{topic_name}"
    admin.create(f"{topic_name}-a", 2)
    admin.create(f"{copy}-a", 2, config={"keyorder.view.age.ms": "400"})
    plain = kafka.admin()
    for made in plain.create_topics([NewTopic(f"{topic_name}-b", 2), NewTopic(f"{copy}-b", 3)]).values():
        made.result(120)
    config = {
        "connector.class": "Mirror",
        "source.topics.regex": f"{topic_name}-a|{topic_name}-b",
        "target.topic": "copy-${topic}",
        "source.bootstrap.servers": kafka.bootstrap_servers,
        "target.bootstrap.servers": kafka.bootstrap_servers,
        "groups.regex": f"{topic_name}-.*",
        "groups.name": "new-${group}",
        "groups.interval.ms": "300",
        **BYTES,
    }

    def write(first: int, last: int) -> None:
        with OrderedProducer(kafka.client_config()) as producer:
            for topic in ("a", "b"):
                for i in range(first, last):
                    producer.produce(f"{topic_name}-{topic}", str(i), f"k{i % 10}")

    def process(group: str, topic: str) -> None:
        """What is there now, as a group commits it that has processed all of it."""
        reader = Consumer({**kafka.client_config(), "group.id": group, "enable.auto.commit": False})
        ends = [reader.get_watermark_offsets(TopicPartition(topic, p), timeout=120)[1] for p in range(2)]
        reader.commit(offsets=[TopicPartition(topic, p, end) for p, end in enumerate(ends)], asynchronous=False)
        reader.close()

    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, config)
        running(worker, topic_name)
        write(0, 100)
        for topic in ("a", "b"):
            process(f"{topic_name}-half-{topic}", f"{topic_name}-{topic}")
        until(
            lambda: sum(committed(kafka, f"new-{topic_name}-half-a", f"{copy}-a", 2).values()) >= 100,
            "the position is known before the target grows",
            240,
        )
        admin.expand(f"{copy}-a", 5)
        write(100, 200)
        for topic in ("a", "b"):
            process(f"{topic_name}-all-{topic}", f"{topic_name}-{topic}")
        ends = {"a": 5, "b": 3}
        for topic, count in ends.items():
            until(
                lambda topic=topic, count=count: (
                    sum(committed(kafka, f"new-{topic_name}-all-{topic}", f"{copy}-{topic}", count).values()) >= 200
                ),
                lambda: str(worker.status(topic_name)),
                240,
            )
        running(worker, topic_name)
    half = f"new-{topic_name}-half"
    with OrderedConsumer({**kafka.client_config(), "group.id": f"{half}-a", "auto.offset.reset": "error"}) as ordered:
        ordered.subscribe([f"{copy}-a"])
        read = {"a": values_from(ordered, 200)}
    plain_reader = Consumer({**kafka.client_config(), "group.id": "look", "auto.offset.reset": "error"})
    places = committed(kafka, f"{half}-b", f"{copy}-b", 3)
    plain_reader.assign([TopicPartition(f"{copy}-b", p, offset) for p, offset in places.items()])
    read["b"] = values_from(plain_reader, 200)
    for got in read.values():
        for k in range(10):
            tail = got[f"k{k}"]
            assert tail == list(range(tail[0], 200, 10))
            assert tail[0] <= 100 + k
    plain_reader.assign([TopicPartition(f"{copy}-b", p, 0) for p in range(3)])
    first = until(lambda: plain_reader.poll(0.5), "a copy")
    assert text(dict(first.headers())[PLACE_HEADER]).startswith(f"{topic_name}-b/")
    plain_reader.close()


def test_copies_are_not_copied_again(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """A pattern that matches its own targets, on one cluster: the task stops before it writes one record."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "1", "k")
    config = {
        "connector.class": "Mirror",
        "source.topics.regex": f"{topic_name}.*",
        "target.topic": "${topic}-copy",
        "source.bootstrap.servers": kafka.bootstrap_servers,
        "target.bootstrap.servers": kafka.bootstrap_servers,
        **BYTES,
    }
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, config)
        until(lambda: "FAILED" in str(worker.status(topic_name)["tasks"]), "the task stops", 240)
        assert "without end" in str(worker.status(topic_name)["tasks"])
    assert f"{topic_name}-copy" not in kafka.admin().list_topics(timeout=120).topics


def test_a_task_that_fails_in_its_transaction_has_copied_nothing(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The group of the source stays before records whose transaction is aborted: the next run copies them."""
    admin, copy = TopicAdmin(kafka.client_config()), f"{topic_name}-copy"
    admin.create(topic_name, 1)
    admin.create(copy, 1, config={"max.message.bytes": "2000"})

    def write(value: str) -> None:
        with OrderedProducer(kafka.client_config()) as producer:
            producer.produce(topic_name, value, "k")

    config = {
        "connector.class": "Mirror",
        "source.topic": topic_name,
        "target.topic": copy,
        "source.bootstrap.servers": kafka.bootstrap_servers,
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "600000",
        **BYTES,
    }
    settings = group_settings(kafka, topic_name) | {"exactly.once.source.support": "enabled"}
    with WorkerProcess(settings, in_group=True) as process:
        rest = RestClient(process.url)
        rest.ok("POST", "/connectors", {"name": topic_name, "config": config})
        rest.running(topic_name, 1)
        metrics = process.operations.herder.worker.metrics
        write("small")
        until(lambda: metrics()[topic_name, 0].snapshot().get("source_record_write_total"), "one is acknowledged")
        write("large" * 1000)
        until(lambda: rest.states(topic_name)[1] == ["FAILED"], "the task fails: its target does not take the other")
        assert committed_values(kafka, copy) == []
        larger = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, copy, incremental_configs=[larger])
        plain = kafka.admin()
        for changed in plain.incremental_alter_configs([resource]).values():
            changed.result(120)
        rest.ok("POST", f"/connectors/{topic_name}/tasks/0/restart")
        rest.running(topic_name, 1)
        until(
            lambda: metrics()[topic_name, 0].snapshot().get("source_record_write_total") == 2,
            lambda: f"the next run copies both: {metrics()[topic_name, 0].snapshot()}",
            60,
        )
        rest.ok("PUT", f"/connectors/{topic_name}/stop")
        until(lambda: rest.states(topic_name) == ("STOPPED", []), "it is stopped")
    assert committed_values(kafka, copy) == ["small", "large" * 1000]
