"""Writers that die, freeze, share an id or write transactionally, beside a change of layout."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Message
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.verify.events import Kind
from keyorder.connector.verify.history import load
from keyorder.partitioner.errors import IneligibleWriterError, WriterLateError
from support.cluster import KafkaUnderTest
from support.holding import until
from support.workload import Workload, assert_in_order

QUICK = {"keyorder.view.age.ms": "400"}
SHORT_LEASE = {
    "keyorder.lease.ms": 6_000,
    "keyorder.lease.renew.interval.ms": 1_000,
    "keyorder.lease.margin.ms": 500,
    "delivery.timeout.ms": 3_000,
}


@pytest.mark.kip("K253-26", "C-20")
def test_a_killed_writer_is_expelled_when_its_lease_is_over(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """The change waits for the dead writer's lease, holds nobody's records meanwhile, and then goes through."""
    with Workload(kafka, tmp_path, topic_name, config=QUICK) as run:
        run.consumer("c1", "g")
        doomed = run.writer("w1", rate=300, config=SHORT_LEASE)
        run.writer("w2", rate=300, config=SHORT_LEASE)
        doomed.expect_progress(run)
        run.kill(doomed)

        change = TopicAdmin(kafka.client_config()).expand(topic_name, 6)

        assert any(step.name.startswith("expelled ") for step in change.steps), change.steps
        assert change.attempts == 1
        assert_in_order(run.finish())


@pytest.mark.kip("K253-36")
def test_a_frozen_writer_that_wakes_up_after_the_change_writes_nothing_stale(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """SIGSTOP past the lease, growth, SIGCONT: the writer finds itself expelled, joins anew and goes on in order."""
    with Workload(kafka, tmp_path, topic_name, config=QUICK) as run:
        run.consumer("c1", "g")
        frozen = run.writer("w1", rate=200, config=SHORT_LEASE)
        run.writer("w2", rate=200, config=SHORT_LEASE)
        frozen.expect_progress(run)
        # Only a queue that is empty at the freeze keeps an idempotent writer exact; its pace leaves gaps enough.
        frozen.signal(signal.SIGSTOP)
        assert run.expand(6) == 0
        frozen.signal(signal.SIGCONT)

        verdict = run.finish()

        assert (verdict.reordered_keys, verdict.lost, verdict.illegal_duplicates) == (0, 0, 0), verdict.summary()


@pytest.mark.kip("K253-26", "K903-07", "C-20")
def test_a_silent_writer_makes_the_change_give_up_with_its_name(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Within --timeout, and the layout stays as it was."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    with OrderedProducer({**kafka.client_config(), "keyorder.writer.id": "sleeper"}) as producer:
        producer.produce(topic_name, b"v", b"k")
        producer.flush()
        producer._session._stopping.set()  # its thread answers nothing any more; the lease runs on
        producer._session.join(120)
        # Leaving was its last word: put a live lease back, as a hung process would have.
        _haunt(kafka, "sleeper", topic_name)

        with pytest.raises(WriterLateError, match="sleeper"):
            admin.expand(topic_name, 3, timeout=3)

    assert admin.describe(topic_name).layout.count == 2
    assert admin.describe(topic_name).change is None


@pytest.mark.kip("K253-26", "K253-36", "C-20")
def test_an_expelled_transactional_writer_is_fenced_by_the_broker(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It hangs with records in an open transaction; the change fences it, and when it wakes up nothing of them shows."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    hung = OrderedProducer({**kafka.client_config(), "transactional.id": topic_name, "keyorder.writer.id": topic_name})
    hung.init_transactions(20)
    hung.begin_transaction()
    hung.produce(topic_name, b"never seen", b"k")
    assert hung.flush(120) == 0
    hung._session._stopping.set()
    hung._session.join(120)
    _haunt(kafka, topic_name, topic_name, lease_ms=1_500, transactional_id=topic_name)

    change = admin.expand(topic_name, 3)

    assert f"expelled {topic_name}" in [step.name for step in change.steps]
    with pytest.raises(KafkaException, match=r"_FENCED|INVALID_PRODUCER_EPOCH|fenced"):
        hung.commit_transaction(20)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, b"seen", b"k")
    with OrderedConsumer({**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}) as reader:
        reader.subscribe([topic_name])
        assert [m.value() for m in _until(reader, 1)] == [b"seen"]


def _haunt(
    kafka: KafkaUnderTest, writer: str, topic: str, lease_ms: int = 45_000, transactional_id: str | None = None
) -> None:
    from confluent_kafka import Producer
    from keyorder.connector.control.control_topics import writer_slot
    from keyorder.partitioner.records.control_records import Lease, LeaseState, encode_lease, lease_key

    name, partition = writer_slot(writer)
    producer = Producer(kafka.client_config())
    lease = Lease(writer, f"hung-{topic}", LeaseState.JOIN, None, lease_ms, 1, (topic,), transactional_id)
    producer.produce(name, encode_lease(lease), lease_key(writer, f"hung-{topic}"), partition)
    assert producer.flush(120) == 0


@pytest.mark.kip("K903-01", "K903-08")
def test_an_older_process_with_the_same_writer_id_is_ineligible(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The newest join counts; the older process hears of it and sends nothing more."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    config = {**kafka.client_config(), "keyorder.writer.id": "twin"}
    old = OrderedProducer(config)
    old.produce(topic_name, b"1", b"k")
    assert old.flush(120) == 0
    new = OrderedProducer(config)
    new.produce(topic_name, b"2", b"k")
    assert new.flush(120) == 0

    deadline = time.monotonic() + 120
    while old._writer.failure is None and time.monotonic() < deadline:
        old._session.join(0.05)
    with pytest.raises(IneligibleWriterError, match="twin"):
        old.produce(topic_name, b"3", b"k")
    new.produce(topic_name, b"4", b"k")
    assert new.flush(120) == 0
    new.close()


@pytest.mark.kip("C-10")
def test_transactional_records_and_aborted_tails_pass_a_growth(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Markers and aborted records take offsets that no record shows; the gates open all the same, in order."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    producer = OrderedProducer({**kafka.client_config(), "transactional.id": topic_name})
    producer.init_transactions(20)
    expected: dict[str, list[int]] = {}

    def transaction(number: int, commit: bool) -> None:
        producer.begin_transaction()
        for i in range(20):
            producer.produce(topic_name, str(number), f"k{i}")
        if commit:
            producer.commit_transaction(20)
            for i in range(20):
                expected.setdefault(f"k{i}", []).append(number)
        else:
            producer.flush(120)
            producer.abort_transaction(20)

    transaction(1, commit=True)
    transaction(2, commit=False)
    admin.expand(topic_name, 4)
    transaction(3, commit=True)
    transaction(4, commit=False)
    admin.expand(topic_name, 5)
    transaction(5, commit=True)
    producer.close()

    group = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
    seen: dict[str, list[int]] = {}
    with OrderedConsumer(group) as consumer:
        consumer.subscribe([topic_name])
        for message in _until(consumer, 60):
            seen.setdefault((message.key() or b"").decode(), []).append(int(message.value() or b""))
    assert seen == expected


def _until(consumer: OrderedConsumer, count: int, timeout: float = 120.0) -> list[Message]:
    deadline = time.monotonic() + timeout
    messages: list[Message] = []
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count}; gates: {consumer.gates()}"
        messages.extend(consumer.consume(count - len(messages), 0.2))
    return messages


@pytest.mark.kip("K253-08", "K253-51")
def test_what_stock_producers_wrote_before_the_adoption_comes_first(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Adopted on first use, grown at once: each key's records come in order across adoption and growth."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewTopic

    stock = kafka.admin()
    stock.create_topics([NewTopic(topic_name, 3)])[topic_name].result(120)
    keys = [f"k{n}" for n in range(30)]
    before = Producer({**kafka.client_config(), "partitioner": "murmur2_random"})
    for key in keys:
        before.produce(topic_name, b"0", key)
    assert before.flush(120) == 0
    admin = TopicAdmin(kafka.client_config())
    assert admin.managed(topic_name) is None
    with OrderedProducer(kafka.client_config()) as producer:
        for round_ in (1, 2):
            for key in keys:
                producer.produce(topic_name, str(round_), key)
            assert producer.flush(120) == 0
            if round_ == 1:
                admin.expand(topic_name, 5)

    seen: dict[str, list[str]] = {}
    with OrderedConsumer({**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}) as reader:
        reader.subscribe([topic_name])
        for message in _until(reader, 90):
            seen.setdefault((message.key() or b"").decode(), []).append((message.value() or b"").decode())
    assert seen == {key: ["0", "1", "2"] for key in keys}


@pytest.mark.kip("K253-08")
def test_two_adopters_at_once_agree(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Producers that meet an unmanaged topic together adopt it once."""
    from confluent_kafka.admin import NewTopic

    stock = kafka.admin()
    stock.create_topics([NewTopic(topic_name, 3)])[topic_name].result(120)
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            with OrderedProducer(kafka.client_config()) as producer:
                producer.produce(topic_name, b"v", b"k")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=produce) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    description = TopicAdmin(kafka.client_config()).describe(topic_name)
    assert len(description.epochs) == 1
    assert description.layout.initial == description.layout.count == 3


def test_a_history_tells_when_the_client_library_begins_a_new_producer_epoch(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """It does so when a record is refused, here as too large. What it may write twice is known by that."""
    with Workload(kafka, tmp_path, topic_name, 1, config={**QUICK, "max.message.bytes": "50"}) as run:
        run.writer("w1", rate=100, config=SHORT_LEASE)

        until(lambda: b',"ne"]' in (tmp_path / "w1.jsonl").read_bytes(), "a new epoch")

        history = load([tmp_path / "w1.jsonl"])
        assert Kind.SEND_OK not in {event.kind for event in history.events()}
