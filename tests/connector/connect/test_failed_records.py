"""Where failed records go, on a real broker: a stop in the middle of a retry, the dead letter queue, reported records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from support.cluster import KafkaUnderTest
from support.connect_flaky import AwayConverter, BatchTask
from support.connect_rig import (
    MemorySink,
    RestClient,
    alone,
    await_leader,
    committed_values,
    group_settings,
    running,
    until,
    worker_settings,
)

PLUGINS = ",".join(
    (
        "support.connect_rig:MemorySink",
        *(f"support.connect_flaky:{name}" for name in ("AwayConverter", "BatchSource", "LateSink", "StubbornSink")),
    )
)
RETRIED = {"errors.tolerance": "all", "errors.retry.timeout": "-1", "value.converter": "AwayConverter"}


def queue(topic: str, **more: str) -> dict[str, str]:
    """A sink's settings with a dead letter queue that says what happened."""
    return {
        "connector.class": "MemorySink",
        "topics": topic,
        "errors.deadletterqueue.topic.name": f"{topic}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def facts(message: Message) -> dict[str, str]:
    """The headers that say what happened."""
    prefix = "__connect.errors."
    return {name.removeprefix(prefix): value.decode() for name, value in message.headers() if name.startswith(prefix)}


def failed(worker: Any, name: str) -> str:
    """The trace of the only task, when it has failed."""
    until(
        lambda: [task["state"] for task in worker.status(name)["tasks"]] == ["FAILED"],
        lambda: f"its task fails: {worker.status(name)}",
        60,
    )
    trace: str = worker.status(name)["tasks"][0]["trace"]
    return trace


def produce(kafka: KafkaUnderTest, topic: str, *values: Any, key: str = "k") -> None:
    """Records of one key."""
    with OrderedProducer({**kafka.client_config(), "message.max.bytes": 2_000_000}) as producer:
        for value in values:
            producer.produce(topic, value, key)


def letters(kafka: KafkaUnderTest, topic: str) -> list[Message]:
    """All that a dead letter queue of one partition has."""
    reader = Consumer(
        {**kafka.client_config(), "group.id": "x", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    while True:
        message = until(lambda: reader.poll(1.0), "the queue is read")
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            reader.close()
            return found
        found.append(message)


def interrupted_batch(kafka: KafkaUnderTest, topic: str) -> tuple[str, dict[str, str]]:
    """A source that polls three records at once. Returns the second, which cannot be converted yet, and the settings."""
    TopicAdmin(kafka.client_config()).create(topic, 1)
    late = f"away-{topic}"
    BatchTask.values = ["1", late, "2"]
    return late, {"connector.class": "BatchSource", "topic": topic, **RETRIED}


def stopped_run(worker: Any, name: str) -> None:
    """Start the task anew, and wait for the end of the run before."""
    before = worker.herder.worker._tasks[name, 0]
    worker.restart_task(name, 0)
    until(lambda: not before.is_alive(), "the stopped run has ended")
    assert not before.failed


@pytest.mark.parametrize("policy", ["park-key", "record", "none"])
def test_a_sink_that_is_stopped_while_a_record_is_tried_again_judges_no_record(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, policy: str
) -> None:
    """It is neither skipped nor dead-lettered, nor is anything behind it, and no key is parked: the next run puts it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    late = [f"away-{topic_name}-{n}" for n in range(2)]
    produce(kafka, topic_name, "1", late[0], "2", late[1], "3")
    config = {"connector.class": "MemorySink", "topics": topic_name, **RETRIED}
    if policy != "none":
        config |= {
            "errors.deadletterqueue.topic.name": f"{topic_name}-dead",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.policy": policy,
        }
    with alone(worker_settings(kafka, tmp_path, plugin_classes=PLUGINS)) as worker:
        worker.create(topic_name, config)
        until(lambda: late[0] in AwayConverter.tried, "the first is tried again")
        stopped_run(worker, topic_name)
        AwayConverter.known.update(late)
        until(lambda: "3" in MemorySink.values(topic_name), lambda: f"all is put: {worker.status(topic_name)}")
        running(worker, topic_name)
        assert worker.parked(topic_name) == []
        assert "total_records_skipped" not in worker.herder.worker.metrics()[topic_name, 0].snapshot()
    assert MemorySink.values(topic_name) == ["1", late[0], "2", late[1], "3"]
    if policy != "none":
        assert letters(kafka, f"{topic_name}-dead") == []


def test_a_key_whose_release_is_stopped_while_a_record_is_tried_again_is_released_later(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """The record did not fail again: it is not parked anew, and the request stands."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    late, bad = f"away-{topic_name}", f"bad-{topic_name}"
    AwayConverter.known.add(late)
    produce(kafka, topic_name, bad, late, "3")
    config = {
        "connector.class": "MemorySink",
        "topics": topic_name,
        **RETRIED,
        "errors.deadletterqueue.topic.name": f"{topic_name}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    with alone(worker_settings(kafka, tmp_path, plugin_classes=PLUGINS)) as worker:
        worker.create(topic_name, config)
        until(lambda: len(letters(kafka, f"{topic_name}-dead")) == 3 if worker.parked(topic_name) else None, "parked")
        parked = worker.parked(topic_name)
        AwayConverter.known.discard(late)
        AwayConverter.tried.discard(late)
        MemorySink.good.add(bad)
        worker.release(topic_name, topic_name, b"k", "replay")
        until(lambda: late in AwayConverter.tried, "it is tried again")
        stopped_run(worker, topic_name)
        assert [entry.id for entry in worker.parked(topic_name)] == [entry.id for entry in parked]
        AwayConverter.known.add(late)
        until(lambda: worker.parked(topic_name) == [], "the key is free")
    assert MemorySink.values(topic_name) == [bad, bad, late, "3"]  # the first was put by the run that was stopped, too


def test_a_source_that_is_stopped_while_a_record_is_tried_again_skips_none(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """What was sent before it keeps its offset; the record and what is behind it are polled again."""
    late, config = interrupted_batch(kafka, topic_name)
    with alone(worker_settings(kafka, tmp_path, plugin_classes=PLUGINS)) as worker:
        worker.create(topic_name, config)
        until(lambda: late in AwayConverter.tried, "it is tried again")
        stopped_run(worker, topic_name)
        assert [each["offset"] for each in worker.offsets(topic_name)["offsets"]] == [{"next": 1}]
        AwayConverter.known.add(late)
        until(
            lambda: [each["offset"] for each in worker.offsets(topic_name)["offsets"]] == [{"next": 3}],
            lambda: f"all is sent: {worker.status(topic_name)}",
        )
    assert committed_values(kafka, topic_name) == ["1", late, "2"]


@pytest.mark.parametrize("boundary", ["poll", "interval"])
def test_a_transaction_that_is_stopped_while_a_record_is_tried_again_is_aborted(
    kafka: KafkaUnderTest, topic_name: str, boundary: str
) -> None:
    """A batch is not torn in two: it is polled again as a whole."""
    late, config = interrupted_batch(kafka, topic_name)
    config["transaction.boundary"] = boundary
    settings = group_settings(kafka, f"g-{topic_name}", exactly_once_source_support="enabled", plugin_classes=PLUGINS)
    with WorkerProcess(settings, in_group=True) as one:
        await_leader(one.url)
        rest = RestClient(one.url)
        rest.ok("PUT", f"/connectors/{topic_name}/config", config)
        until(lambda: late in AwayConverter.tried, "it is tried again")
        rest.ok("PUT", f"/connectors/{topic_name}/stop")
        until(lambda: rest.states(topic_name) == ("STOPPED", []), "it is stopped")
        until(lambda: (topic_name, 0) not in one.operations.herder.worker._tasks, "its task has ended")
        assert rest.ok("GET", f"/connectors/{topic_name}/offsets")["offsets"] == []
        assert committed_values(kafka, topic_name) == []
        AwayConverter.known.add(late)
        rest.ok("PUT", f"/connectors/{topic_name}/resume")
        until(lambda: len(committed_values(kafka, topic_name)) >= 3, lambda: f"all is sent: {rest.states(topic_name)}")
    assert committed_values(kafka, topic_name) == ["1", late, "2"]


# -- the dead letter queue -----------------------------------------------------------------------------------------


def test_a_dead_letter_may_be_as_large_as_a_topic_takes(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """More than what the client library allows by default: the broker judges, which took it in the first topic."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    large = "bad" + "x" * 1_030_000
    produce(kafka, topic_name, large, "after")
    config = queue(topic_name, errors_tolerance="all", errors_deadletterqueue_policy="record")
    config["errors.deadletterqueue.context.headers.enable"] = "false"
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, config)
        until(
            lambda: MemorySink.values(topic_name) == ["after"], lambda: f"it goes on: {worker.status(topic_name)}", 60
        )
        running(worker, topic_name)
    assert [len(message.value()) for message in letters(kafka, f"{topic_name}-dead")] == [len(large)]


@pytest.mark.parametrize("where", ["the connector", "the worker"])
def test_a_dead_letter_queue_s_producer_is_set_as_any_producer(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, where: str
) -> None:
    """By producer.override.* of the connector, else by producer.* of the worker; the error says what to raise."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    produce(kafka, topic_name, "bad" + "x" * 5000)
    config = queue(topic_name, errors_tolerance="all")
    settings = worker_settings(kafka, tmp_path)
    if where == "the connector":
        config["producer.override.max.request.size"] = "1000"
    else:
        settings["producer.max.request.size"] = "1000"
    with alone(settings) as worker:
        worker.create(topic_name, config)
        trace = failed(worker, topic_name)
    assert f"the dead letter queue {topic_name}-dead does not take a record of that size" in trace
    assert "producer.override.max.request.size" in trace


@pytest.mark.parametrize("value", ["bad", "away"])
def test_a_record_that_fails_its_task_is_dead_lettered_where_a_queue_is_named(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, value: str
) -> None:
    """As in Kafka Connect: errors.tolerance=none says that the task ends. What is behind the record is not put."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    mark = f"{value}-{topic_name}"
    produce(kafka, topic_name, mark, "after")
    config = queue(topic_name, value_converter="AwayConverter")
    with alone(worker_settings(kafka, tmp_path, plugin_classes=PLUGINS)) as worker:
        worker.create(topic_name, config)
        trace = failed(worker, topic_name)
        assert worker.parked(topic_name) == []
    stage, said = ("TASK_PUT", f"no {mark} here") if value == "bad" else ("VALUE_CONVERTER", "the registry is away")
    assert f"{stage} failed on {topic_name}[0]@0: {said}" in trace
    found = letters(kafka, f"{topic_name}-dead")
    assert [(message.value().decode(), facts(message)["stage"]) for message in found] == [(mark, stage)]
    assert facts(found[0])["exception.message"] == said


def test_a_report_ends_a_task_that_goes_on_as_if_it_would_pass(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """It would put the batch again without end, and write the record to the queue each time."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    bad = f"bad-{topic_name}"
    produce(kafka, topic_name, bad)
    with alone(worker_settings(kafka, tmp_path, plugin_classes=PLUGINS)) as worker:
        worker.create(topic_name, queue(topic_name, connector_class="StubbornSink"))
        assert f"no {bad} here" in failed(worker, topic_name)
    assert [message.value().decode() for message in letters(kafka, f"{topic_name}-dead")] == [bad]


def test_a_dead_letter_names_the_class_that_failed(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """A transform as the settings name it, and the sink task of Kafka Connect for a record that the task has reported."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    bad = f"bad-{topic_name}"
    produce(kafka, topic_name, "no number", "1" * 30, bad, key="1")
    config = queue(
        topic_name,
        errors_tolerance="all",
        errors_deadletterqueue_policy="record",
        transforms="first,second",
        transforms_first_type="org.apache.kafka.connect.transforms.InsertHeader",
        transforms_first_header="h",
        transforms_first_value_literal="v",
        transforms_second_type="Cast$Value",
        transforms_second_spec="int64",
        transforms_second_predicate="number",
        predicates="number",
        predicates_number_type="HasHeaderKey",
        predicates_number_name="h",
    )
    reported = queue(f"{topic_name}-2", errors_tolerance="all")
    TopicAdmin(kafka.client_config()).create(f"{topic_name}-2", 1)
    produce(kafka, f"{topic_name}-2", bad)
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, {**config, "transforms.first.value.literal": "v"})
        worker.create(f"{topic_name}-2", reported)
        until(lambda: worker.parked(f"{topic_name}-2"), "the reported one is there")
        until(
            lambda: worker.herder.worker.metrics()[topic_name, 0].snapshot().get("total_records_skipped") == 3,
            lambda: f"all have failed: {worker.status(topic_name)}",
        )
        until(lambda: len(letters(kafka, f"{topic_name}-dead")) == 3, "they are written")
    assert {facts(message)["class.name"] for message in letters(kafka, f"{topic_name}-dead")} == {"Cast$Value"}
    found = letters(kafka, f"{topic_name}-2-dead")
    assert [facts(message)["class.name"] for message in found] == ["org.apache.kafka.connect.sink.SinkTask"]


# -- records that a task reports -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["record", "none", "park-key"])
def test_a_record_may_be_reported_after_put_where_nothing_is_parked(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, policy: str
) -> None:
    """The queue has its bytes before its offset is committed; without a queue it is skipped. Unkeyed ones park nothing."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    bad = f"bad-{topic_name}"
    produce(kafka, topic_name, "1", bad, "2", key="" if policy != "park-key" else None)  # type: ignore[arg-type]
    config = queue(topic_name, connector_class="LateSink", errors_tolerance="all")
    config["errors.deadletterqueue.policy"] = policy
    if policy == "none":
        config = {name: value for name, value in config.items() if "deadletterqueue" not in name}
    with alone(worker_settings(kafka, tmp_path, plugin_classes=PLUGINS)) as worker:
        worker.create(topic_name, config)
        until(
            lambda: [each["offset"]["kafka_offset"] for each in worker.offsets(topic_name)["offsets"]] == [3],
            lambda: f"all is committed: {worker.status(topic_name)}",
            60,
        )
        if policy != "none":
            assert [message.value().decode() for message in letters(kafka, f"{topic_name}-dead")] == [bad]
        running(worker, topic_name)
        counted = worker.herder.worker.metrics()[topic_name, 0].snapshot()
    assert (counted["total_record_failures"], counted["total_records_skipped"]) == (1, 1)
    assert MemorySink.values(topic_name) == ["1", "2"]


def test_a_key_s_record_that_is_reported_after_put_ends_the_task_that_parks_keys(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Later records of its key may have gone on."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    produce(kafka, topic_name, f"bad-{topic_name}", "2")
    config = queue(topic_name, connector_class="LateSink", errors_tolerance="all")
    with alone(worker_settings(kafka, tmp_path, plugin_classes=PLUGINS)) as worker:
        worker.create(topic_name, config)
        assert "Report records inside put, or set errors.deadletterqueue.policy=record" in failed(worker, topic_name)


def test_a_reported_record_is_logged_and_counted_as_any_that_fails(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With errors.log.enable; errors.log.include.messages adds its place."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    produce(kafka, topic_name, f"bad-{topic_name}", "2")
    config = {
        "connector.class": "MemorySink",
        "topics": topic_name,
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        "errors.log.include.messages": "true",
    }
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, config)
        until(lambda: MemorySink.values(topic_name) == ["2"], "the other one is put")
        counted = worker.herder.worker.metrics()[topic_name, 0].snapshot()
    assert (counted["total_record_errors"], counted["total_errors_logged"]) == (1, 1)
    assert counted["last_error_timestamp"] > 0
    said = f"TASK_PUT failed on {topic_name}[0]@0 in org.apache.kafka.connect.sink.SinkTask: ValueError"
    assert [r.getMessage() for r in caplog.records if r.name == "keyorder.connect.errors"] == [said]
