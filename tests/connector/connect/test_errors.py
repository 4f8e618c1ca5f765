"""errors.retry.*, and the policy that starts failed tasks again."""

from __future__ import annotations

import pickle
import threading
from collections import Counter, deque
from collections.abc import Callable
from copy import deepcopy as copy_of
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.connect import DataError, RetriableError, SinkRecord
from keyorder.connector.connect.api.records import Original
from keyorder.connector.connect.runtime.group.state import Target
from keyorder.connector.connect.runtime.metrics import TaskMetrics
from keyorder.connector.connect.runtime.offsets import SubmittedRecords
from keyorder.connector.connect.runtime.settings import connector_definition
from keyorder.connector.connect.runtime.tasks.parking import Parked, ReleaseMode
from keyorder.connector.connect.runtime.tasks.sink_errors import ErrorRouting
from keyorder.connector.connect.runtime.tasks.sink_records import Entry
from keyorder.connector.connect.runtime.tasks.standstill import Standstill
from keyorder.connector.connect.runtime.tasks.tolerance import FailedOperation, Stage, StoppedError, Tolerance
from keyorder.partitioner.layout import Layout
from support.cluster import KafkaUnderTest
from support.connect_plugins import ListedTask
from support.connect_rig import MemorySink, alone, committed_values, running, until, worker_settings


def tolerance(**settings: str) -> Tolerance:
    given = {"name": "x", "connector.class": "x", **{n.replace("_", "."): v for n, v in settings.items()}}
    return Tolerance.of(connector_definition("sink").parse(given), threading.Event(), TaskMetrics())


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, failures: int, error: type[Exception] = RetriableError) -> None:
        self.left, self.error, self.calls = failures, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.left:
            raise self.error("not yet")
        return "done"


def test_a_retriable_error_is_tried_again_while_there_is_time() -> None:
    """With -1 without end; each try is counted."""
    made, call = tolerance(errors_retry_timeout="-1", errors_retry_delay_max_ms="1"), Flaky(4)
    assert made.run(Stage.VALUE_CONVERTER, "c", "t[0]@1", call) == "done"
    assert (call.calls, made.metrics.snapshot()["total_retries"]) == (5, 4)


@pytest.mark.parametrize(("settings", "error"), [({}, RetriableError), ({"errors_retry_timeout": "-1"}, DataError)])
def test_without_time_or_for_another_error_the_first_failure_stands(
    settings: dict[str, str], error: type[Exception]
) -> None:
    """And says the stage and the place."""
    made, call = tolerance(**settings), Flaky(9, error)
    with pytest.raises(FailedOperation, match=r"TRANSFORMATION failed on t\[0\]@1: not yet") as raised:
        made.run(Stage.TRANSFORMATION, "c", "t[0]@1", call)
    assert (call.calls, type(raised.value.error)) == (1, error)


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_a_task_that_is_to_stop_tries_no_more_and_judges_nothing(tries: int) -> None:
    """However long it may: that the record has failed is not known, and not counted."""
    made = tolerance(errors_retry_timeout="-1", errors_retry_delay_max_ms="1")
    call = Flaky(10**9)

    def stops() -> str:
        if call.calls == tries - 1:
            made.stopping.set()
        return call()

    with pytest.raises(StoppedError):
        made.run(Stage.VALUE_CONVERTER, "c", "x", stops)
    assert call.calls == tries
    assert "total_record_errors" not in made.metrics.snapshot()


def test_a_failure_for_good_is_judged_also_when_the_task_is_to_stop() -> None:
    """Trying again would change nothing."""
    made, call = tolerance(errors_retry_timeout="-1"), Flaky(9, DataError)
    made.stopping.set()
    with pytest.raises(FailedOperation):
        made.run(Stage.VALUE_CONVERTER, "c", "x", call)


def test_a_record_can_be_copied_and_pickled_with_what_it_was_read_from() -> None:
    """A copy can still be reported; a pickle cannot hold a message of the client library, and goes without it."""
    record = SinkRecord(topic="t", value="v", original=Original(threading.Lock()))  # which cannot be copied either
    for copy in (copy_of(record), record.new(value="v")):
        assert copy.original is not None
        assert copy.original.message is record.original.message  # type: ignore[union-attr]
    pickled = pickle.loads(pickle.dumps(record))
    assert pickled.original.message is None
    assert pickled == record


def test_only_an_unbroken_run_of_acknowledged_records_moves_an_offset() -> None:
    """A record that is still on its way holds back those behind it, of its own source partition alone."""
    submitted = SubmittedRecords()
    records = [submitted.submit({"p": p}, {"o": o}) for p, o in ((1, 1), (1, 2), (1, 3), (2, 1))]
    records[1].done = records[3].done = True
    assert submitted.take_due() == {'{"p":2}': {"o": 1}}
    records[0].done = True
    assert submitted.take_due() == {'{"p":1}': {"o": 2}}
    assert submitted.take_due() == {}


def test_the_reason_of_a_parked_key_hides_what_came_from_a_placeholder() -> None:
    """When it is parked, and when it fails again as it is released: everybody who lists parked keys reads it."""
    reasons: list[str] = []
    place = {"topic": lambda: "t", "partition": lambda: 0, "offset": lambda: 1, "key": lambda: b"k"}
    message: Any = SimpleNamespace(**place)
    failure = FailedOperation(Stage.TASK_PUT, "task", "t[0]@1", ValueError("cannot log in with old-secret"))
    parking: Any = SimpleNamespace(holds=lambda *_: False, park=lambda entry: reasons.append(entry.reason))
    dead: Any = SimpleNamespace(send_and_locate=lambda *_: (0, 5), flush=lambda: None)
    records: Any = SimpleNamespace(of=lambda entry: [message])
    task: Any = SimpleNamespace(flush=lambda offsets: None)
    reader: Any = SimpleNamespace(parked=lambda message: Entry(message, None, failure, owned=False))
    all_tolerated = tolerance(errors_tolerance="all")
    routing = ErrorRouting(
        ("c", 0), all_tolerated, dead, parking, records, lambda text: text.replace("old-secret", "[hidden]")
    )
    routing.next_batch(deque([Entry(message, None, failure)]))
    entry = Parked("c", "t", b"k", "1", 0, 0, 5, 0, "before")
    routing.release(entry, ReleaseMode.REPLAY, reader, task, {})
    assert reasons == ["TASK_PUT failed on t[0]@1: cannot log in with [hidden]"] * 2


def test_failed_tasks_start_again_by_policy_and_no_more_often(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Twice, then it stays FAILED; what fixes the cause meanwhile is found by a start."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "bad-x", "k")
    settings = worker_settings(kafka, tmp_path, restart_failed_tasks_max="2", restart_failed_tasks_delay_ms="50")
    with alone(settings) as worker:
        worker.create(topic_name, {"connector.class": "MemorySink", "topics": topic_name})
        herder = worker.herder
        until(lambda: herder.known.tasks.get((topic_name, 0)) is not None, "it has run")
        until(
            lambda: (s := herder.known.tasks[topic_name, 0]).state == "FAILED" and s.run == 3,
            lambda: f"its third run has failed: {herder.known.tasks[topic_name, 0]}",
        )
        MemorySink.good.add("bad-x")
        worker.restart_task(topic_name, 0)  # by hand: the count begins anew
        until(lambda: MemorySink.values(topic_name) == ["bad-x"], "it is put")
        assert herder.known.tasks[topic_name, 0].run == 4


def test_a_partition_that_was_away_while_records_were_put_again_is_read_on(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """It leaves while the task holds its partitions, and comes back when the task holds them no more."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    layout = Layout(2, 2)
    keys = [next(k for k in map(str, range(100)) if layout.home(k) == p) for p in (0, 1)]
    marks = [f"later-{topic_name}-{key}" for key in keys]

    def produce(values: list[str]) -> None:
        with OrderedProducer(kafka.client_config()) as producer:
            for key, value in zip(keys, values, strict=True):
                producer.produce(topic_name, value, key)

    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, {"connector.class": "MemorySink", "topics": topic_name})
        running(worker, topic_name)
        produce(["before", "before"])
        until(lambda: MemorySink.values(topic_name) == ["before"] * 2, "both partitions are read")
        produce(marks)
        until(lambda: MemorySink.tried.intersection(marks), "the task holds its partitions")

        def put() -> set[str]:
            return set(MemorySink.values(topic_name))

        member = OrderedConsumer(
            {**kafka.client_config(), "group.id": f"connect-{topic_name}", "enable.auto.commit": False}
        )
        with member:
            member.subscribe([topic_name])

            def joined() -> bool:
                member.poll(0.1)
                return len(member.assignment()) == 1

            until(joined, "another member has one of them", 300)
            MemorySink.good.update(marks)

            def others_put() -> bool:
                member.poll(0.1)  # it stays in the group, and commits nothing
                return bool(set(marks) & put())

            until(others_put, "what the task still has is put", 300)
        produce(["after", "after"])
        until(
            lambda: set(marks) <= put() and MemorySink.values(topic_name).count("after") == 2,
            lambda: f"both are read on: {MemorySink.values(topic_name)}",
            300,
        )


@pytest.fixture
def some_turns(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns when the only task has had time to do what it must not do."""
    turns, turn = Counter[str](), Standstill.turn

    def counted(self: Standstill) -> None:
        turns["all"] += 1
        turn(self)

    def wait() -> None:
        enough = turns["all"] + 20
        until(lambda: turns["all"] >= enough, "it has had its turns")

    monkeypatch.setattr(Standstill, "turn", counted)
    return wait


def test_a_task_that_starts_paused_reads_nothing_until_it_is_resumed(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, some_turns: Callable[[], None]
) -> None:
    """What it read would stay in memory, since nothing is put: all of the topic in the end."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, {"connector.class": "MemorySink", "topics": topic_name})
        running(worker, topic_name)
        worker.set_target(topic_name, Target.PAUSED)
        until(lambda: worker.task_status(topic_name, 0)["state"] == "PAUSED", "it is paused")
        worker.restart_task(topic_name, 0)
        tasks = worker.herder.worker._tasks
        until(lambda: (key := (topic_name, 0)) in tasks and tasks[key].spec.paused, "it has started paused")
        task = tasks[topic_name, 0]
        with OrderedProducer(kafka.client_config()) as producer:
            producer.produce(topic_name, "1", "k")
        until(lambda: task.metrics.snapshot().get("partition_count") == 1, "it has the partition")
        some_turns()
        assert task.metrics.snapshot().get("sink_record_read_total", 0) == 0
        worker.set_target(topic_name, Target.STARTED)
        until(lambda: MemorySink.values(topic_name) == ["1"], "it is put")


def test_a_parked_key_is_released_when_its_connector_is_paused_no_more(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, some_turns: Callable[[], None]
) -> None:
    """A paused task puts nothing."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    bad = f"bad-{topic_name}"
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, bad, "k")
    config = {
        "connector.class": "MemorySink",
        "topics": topic_name,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{topic_name}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, config)
        until(lambda: worker.parked(topic_name), "the key is parked")
        worker.set_target(topic_name, Target.PAUSED)
        until(lambda: worker.task_status(topic_name, 0)["state"] == "PAUSED", "it is paused")
        MemorySink.good.add(bad)
        worker.release(topic_name, topic_name, b"k", "replay")
        some_turns()
        assert MemorySink.values(topic_name) == []
        worker.set_target(topic_name, Target.STARTED)
        until(lambda: MemorySink.values(topic_name) == [bad], "it is put")


def test_a_source_skips_a_record_that_its_producer_refuses_where_errors_are_tolerated(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """As in Kafka Connect (KIP-779): the source's offset passes it, and the next record of its key comes."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    large = "large" * 1000
    config = {
        "connector.class": "ListedSource",
        "topic": topic_name,
        "errors.tolerance": "all",
        "producer.override.message.max.bytes": "1000",
    }
    with alone(worker_settings(kafka, tmp_path, plugin_classes="support.connect_plugins:ListedSource")) as worker:
        ListedTask.values, ListedTask.committed = ["before", large, "after"], []
        worker.create(topic_name, config)
        until(
            lambda: [each["offset"] for each in worker.offsets(topic_name)["offsets"]] == [{"next": 3}],
            lambda: f"all are passed: {worker.status(topic_name)}",
            60,
        )
        running(worker, topic_name)
        assert worker.herder.worker.metrics()[topic_name, 0].snapshot()["total_records_skipped"] == 1
    assert ListedTask.committed == [("before", True), (large, False), ("after", True)]
    assert committed_values(kafka, topic_name) == ["before", "after"]
