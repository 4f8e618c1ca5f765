"""What an operator does around a change, on a real broker: plan, look, give up, empty by force."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import admin as admin_module
from keyorder.connector.control.timeline_edit import ChangeOpenError, edit
from keyorder.connector.control.timeline_writer import TimelineWriter
from keyorder.connector.group_gates import GateNeed
from keyorder.connector.metadata import TopicIdentity
from keyorder.connector.operations.change_status import Answer
from keyorder.connector.operations.description import TopicDescription
from keyorder.connector.operations.notices import Code
from keyorder.connector.operations.outcomes import DeletePartitions, PartitionStatus
from keyorder.connector.topology.results import Change
from keyorder.partitioner.epochs import ChangePhase, DrainState, Epoch
from keyorder.partitioner.errors import ConfigError, ControllerFencedError, TopicNotFoundError
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.timeline import Timeline
from support.cluster import KafkaUnderTest
from support.silent_writer import SilentWriter

QUICK = {"keyorder.view.age.ms": "300"}
SWITCHED_ON = {"delete.topic.partition.enable": "true"}


def log(kafka: KafkaUnderTest, topic: str, partition: int, upto: int) -> list[bytes | None]:
    """The values of one partition, as a plain reader sees them."""
    consumer = Consumer({**kafka.client_config(), "group.id": "log"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes | None] = []
    while len(values) < upto:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        values.append(message.value())
    consumer.close()
    return values


def policy(kafka: KafkaUnderTest, topic: str, value: str) -> None:
    """Set the topic's cleanup.policy."""
    entry = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
    client = kafka.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(120)


@pytest.mark.kip("K694-19")
def test_an_attempt_with_a_stuck_writer_is_seen_and_given_up(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Status names who is late, another count is refused, and an abort lets held records go to their old home in order."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    grown = admin.describe(topic_name).layout.resized(2)
    key = next(k for k in (f"k{i}" for i in range(100)) if grown.home(k) == 1)
    collecting = threading.Event()

    def grow() -> Change:
        steps = TopicAdmin(config, lambda step: collecting.set() if step == "collecting" else None)
        return steps.expand(topic_name, 2)

    with (
        OrderedProducer({**config, "keyorder.writer.id": f"good of {topic_name}"}) as producer,
        SilentWriter(config, topic_name) as silent,
        ThreadPoolExecutor(1) as pool,
    ):
        producer.produce(topic_name, "0", key)
        assert producer.flush(120) == 0
        growing: Future[Change] = pool.submit(grow)
        assert collecting.wait(120)
        while not (status := admin.change_status(topic_name)).change:
            pass  # between two attempts
        answers = {w.writer: w.answer for w in status.writers}
        assert set(answers) == {f"good of {topic_name}", silent.writer}
        assert silent.writer in status.late
        if status.change.phase is ChangePhase.PREPARE:
            assert answers[silent.writer] is Answer.HOLDING
            assert status.deadline_at_ms is not None
            assert status.since_ms is not None
            assert status.deadline_at_ms - status.since_ms in (5_000, 10_000, 20_000)
        assert silent.writer in status.next_step
        with pytest.raises(ChangeOpenError, match="to 2 partitions"):
            admin.expand(topic_name, 3)
        (warning, *_) = admin.plan(topic_name, 3, groups=[]).warnings
        assert warning.code is Code.CHANGE_OPEN
        for number in range(1, 20):
            producer.produce(topic_name, str(number), key)

        done = admin.abort(topic_name)

        assert done.aborted
        assert done.change is not None
        assert (done.change.count, done.count, done.epoch) == (2, 1, 0)
        with pytest.raises(ControllerFencedError):
            growing.result(120)
        assert producer.flush(120) == 0
        again = admin.abort(topic_name)
        assert (again.aborted, again.change, again.count) == (False, None, 1)
    assert log(kafka, topic_name, 0, 20) == [str(n).encode() for n in range(20)]
    settled = admin.change_status(topic_name)
    assert (settled.change, settled.late, settled.next_step, settled.drains) == (None, (), "", ())


def test_a_controller_that_was_replaced_in_its_transaction_ends_without_a_warning(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """It has raised its error. Its client's close() would try to abort, and say in a RuntimeWarning that it cannot."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    first = TimelineWriter(kafka.client_config(), topic_name)
    first.start()
    second = TimelineWriter(kafka.client_config(), topic_name)
    second.start()
    timeline = Timeline(topic_name, "another", "another", 1, (Epoch(0, 1),))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(ControllerFencedError):
            first.write(timeline)
        first.close()
        second.close()
    assert [str(warning.message) for warning in heard] == []


@pytest.mark.kip("K253-17", "K694-12")
def test_a_description_shows_modes_writers_and_the_gates_of_a_lagging_group(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """A group that stopped early stands before the newest gate with what it lacks; one that read all does not."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    with OrderedProducer({**config, "keyorder.writer.id": topic_name}) as producer:
        for number in range(30):
            producer.produce(topic_name, b"v", f"k{number}")
        assert producer.flush(120) == 0
        for group, count in (("slow", 10), ("done", 30)):
            reading = {**config, "group.id": f"{group}-{topic_name}", "auto.offset.reset": "earliest"}
            with OrderedConsumer({**reading, "enable.auto.commit": False}) as consumer:
                consumer.subscribe([topic_name])
                messages = consumer.consume(count, 60)
                assert len(messages) == count
                consumer.commit(message=messages[-1], asynchronous=False)
        planned = {group.group: group for group in admin.plan(topic_name, 2, sample_s=0.1).groups}
        admin.expand(topic_name, 2)
        admin.shrink(topic_name, 1)
        found = admin.describe(topic_name)
        (writer,) = found.writers

    assert planned[f"slow-{topic_name}"].lag == 20
    assert planned[f"slow-{topic_name}"].gate_s is None
    assert "committed nothing" in planned[f"slow-{topic_name}"].why
    assert planned[f"done-{topic_name}"].gate_s == 0
    assert found.modes == {0: Mode.READ_WRITE, 1: Mode.READ_ONLY}
    assert (writer.writer, writer.topics, writer.unmanaged, writer.lease_ms) == (topic_name, (topic_name,), (), 45_000)
    assert writer.renewed_at_ms is not None
    groups = {group.group: group for group in found.groups}
    slow = groups[f"slow-{topic_name}"]
    assert [(gate.epoch, gate.partition) for gate in slow.closed] == [(2, 0), (1, 1)]
    assert {gate.blockers for gate in slow.closed} == {(GateNeed(0, 30, 10),)}
    assert groups[f"done-{topic_name}"].closed == ()
    assert found.epochs[1].held_ms > 0
    assert admin.plan(topic_name, 2, groups=[]).hold.seconds == max(e.held_ms for e in found.epochs) / 1000


@pytest.mark.kip("K694-08", "K694-10", "K694-16", "K694-23")
def test_each_retired_partition_has_an_outcome_and_a_failed_purge_is_tried_again(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """Immediate empties at once what no group is waited for; what the broker refuses is kept as failed, then done."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 3, initial_partition_count=1, config={**QUICK, **SWITCHED_ON})
    with OrderedProducer(kafka.client_config()) as producer:
        for number in range(60):
            producer.produce(topic_name, b"v", f"k{number}")
        assert producer.flush(120) == 0
    waiting = admin.delete_partitions(topic_name, 2, delay_ms=3_600_000)
    (outcome,) = waiting.partitions
    assert (outcome.partition_index, outcome.status_code, outcome.error_code) == (2, PartitionStatus.WAITING, 0)
    assert "of its delay" in outcome.waits_for
    (drain,) = admin.change_status(topic_name).drains
    retired_at = admin.timeline(topic_name).newest.committed_at_ms
    assert (drain.due_at_ms, drain.delay_ms) == (retired_at + 3_600_000, 3_600_000)

    edit(kafka.client_config(), topic_name, lambda t: t.drained(2, Mode.NONE))
    policy(kafka, topic_name, "compact")
    try:
        (failed,) = admin.drain(topic_name)
        assert (failed.done, failed.state) == (False, DrainState.PURGE_FAILED)
        (retired,) = admin.describe(topic_name, groups=()).retired
        assert (retired.state, retired.tries) == (DrainState.PURGE_FAILED, 1)
        assert "POLICY_VIOLATION" in retired.error
        (shown,) = admin.change_status(topic_name).drains
        assert shown.waits_for.startswith("another try")
        (refused,) = admin.delete_partitions(topic_name, 2).partitions
        assert (refused.status_code, refused.error_code) == (PartitionStatus.PURGE_FAILED, 44)
        assert "POLICY_VIOLATION" in (refused.error_message or "")
    finally:
        policy(kafka, topic_name, "delete")

    done = admin.delete_partitions(topic_name, 1, immediate=True)

    assert done.change is not None
    assert done.change.changed
    codes = [(p.partition_index, p.status_code, p.error_code, p.error_message) for p in done.partitions]
    assert codes == [(1, PartitionStatus.PURGED, 0, None), (2, PartitionStatus.PURGED, 0, None)]
    assert [d.tries for d in admin.timeline(topic_name).drains] == [0, 2]


@pytest.mark.kip("K694-03", "K694-16", "C-14")
def test_a_delay_of_none_still_waits_for_groups_until_it_is_forced(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The losses of a group are told before; the same shrink with force empties what waited."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 2, initial_partition_count=1, config=QUICK)
    with OrderedProducer({**config, "keyorder.allow.explicit.partition": True}) as producer:
        for _ in range(10):
            producer.produce(topic_name, b"v", partition=1)
        assert producer.flush(120) == 0
    group = f"slow-{topic_name}"
    with OrderedConsumer({**config, "group.id": group, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic_name])
        assert len(consumer.consume(4, 30)) == 4
    forecast = admin.plan(topic_name, 1, wait_for_groups=["billing"])
    assert forecast.not_waited_for == {group: 6}
    assert {warning.code for warning in forecast.warnings} >= {Code.GROUPS_LAG, Code.SWITCH_OFF, Code.KEYS_MOVE}
    for wish in ({"delay_ms": 0}, {"immediate": True}, {"force": True}):
        with pytest.raises(ConfigError, match="topics alter"):
            admin.shrink(topic_name, 1, **wish)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="topics alter"):
        admin.delete_partitions(topic_name, 1, immediate=True)
    assert admin.timeline(topic_name).newest.count == 2
    admin.alter(topic_name, SWITCHED_ON)
    admin.shrink(topic_name, 1, delay_ms=0, wait_for_groups=[group])
    (waiting,) = admin.drain(topic_name)
    assert (waiting.done, waiting.what) == (False, f"group {group} to reach 10")

    lost = admin.forced_drain(topic_name, 1)
    assert lost.records == {1: 10}
    assert [(loss.group, loss.partition, loss.records) for loss in lost.losses] == [(group, 1, 6)]
    assert not admin.shrink(topic_name, 1, delay_ms=0, force=True).changed
    (emptied,) = admin.drain(topic_name)
    assert (emptied.done, emptied.what) == (True, "emptied below 10")


def test_a_topic_that_is_made_while_it_is_adopted_is_waited_for(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A broker hears of a new topic late: adoption right after a stock create asks again, and does not say "not there"."""
    client = kafka.admin()
    begun = threading.Event()

    def adopt() -> TopicDescription:
        begun.set()
        return TopicAdmin(kafka.client_config()).adopt(topic_name)

    with ThreadPoolExecutor(1) as pool:
        adopting = pool.submit(adopt)
        assert begun.wait(120)
        with pytest.raises(FutureTimeout):
            adopting.result(1.0)  # nobody has made it yet: it is being asked for
        client.create_topics([NewTopic(topic_name, 3, 1)])[topic_name].result(120)
        assert adopting.result(120).layout.count == 3


@pytest.mark.kip("K694-08", "K694-10")
def test_several_topics_are_asked_for_at_once(kafka: KafkaUnderTest, topic_name: str) -> None:
    """KIP-694's map: each topic has an answer; one that cannot be shrunk says why, by Kafka's code, and stops no other."""
    admin = TopicAdmin(kafka.client_config())
    first, second, off = (f"{topic_name}-{n}" for n in range(3))
    for name in (first, second):
        admin.create(name, 4, initial_partition_count=1, config={**QUICK, **SWITCHED_ON})
    admin.create(off, 2, initial_partition_count=1, config=QUICK)
    with OrderedProducer(kafka.client_config()) as producer:
        for name in (first, second):
            for number in range(60):
                producer.produce(name, b"v", f"k{number}")
        assert producer.flush(120) == 0

    answers = admin.delete_partitions(
        {
            first: DeletePartitions(2, immediate_delete=True),
            off: DeletePartitions(1, immediate_delete=True),
            f"{topic_name}-none": DeletePartitions(1),
            second: DeletePartitions(3),
        }
    )

    assert {name: answer.error_code for name, answer in answers.items()} == {
        first: 0, off: 44, f"{topic_name}-none": 3, second: 0,
    }  # fmt: skip
    assert "topics alter" in (answers[off].error_message or "")
    codes = {name: [(p.partition_index, p.status_code) for p in answer.partitions] for name, answer in answers.items()}
    assert codes[first] == [(2, PartitionStatus.PURGED), (3, PartitionStatus.PURGED)]
    assert codes[second] == [(3, PartitionStatus.WAITING)]
    assert [admin.timeline(name).newest.count for name in (first, second, off)] == [2, 3, 2]


def test_a_topic_that_a_broker_does_not_know_yet_is_described_all_the_same(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after a creation the broker that is asked may not have heard of it: `create` asks again, as `adopt` does."""
    late = [TopicNotFoundError(topic_name), TopicNotFoundError(topic_name)]
    known = admin_module.identify

    def identify(*arguments: Any, **more: Any) -> TopicIdentity:
        if late:
            raise late.pop()
        return known(*arguments, **more)

    monkeypatch.setattr(admin_module, "identify", identify)

    made = TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)

    assert (made.layout.count, late) == (2, [])
