"""Programs for confluent_kafka, run on its classes and on ours: what they see is the same."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    aio,
)
from confluent_kafka.admin import NewTopic
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.aio import AIOConsumer, AIOProducer
from keyorder.connector.metadata import wait_for_partitions
from support.cluster import KafkaUnderTest

APIS: dict[str, Any] = {
    "confluent": SimpleNamespace(
        Producer=confluent_kafka.Producer, Consumer=confluent_kafka.Consumer,
        AIOProducer=aio.AIOProducer, AIOConsumer=aio.AIOConsumer,
    ),
    "keyorder": SimpleNamespace(
        Producer=OrderedProducer, Consumer=OrderedConsumer, AIOProducer=AIOProducer, AIOConsumer=AIOConsumer
    ),
}  # fmt: skip


class Api:
    """One of the two libraries on the test's broker and topic."""

    def __init__(self, kafka: KafkaUnderTest, topic: str, name: str) -> None:
        self.name, self.kafka, self.topic = name, kafka, topic
        self.classes = APIS[name]
        self._open: list[Any] = []

    def config(self, **more: Any) -> dict[str, Any]:
        settings = {name.replace("_", "."): value for name, value in more.items()}
        return {**self.kafka.client_config(), "log_level": 0, **settings}

    def group_config(self, **more: Any) -> dict[str, Any]:
        return {
            **self.config(), "group.id": self.topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50,
            **{k.replace("__", "@").replace("_", ".").replace("@", "_"): v for k, v in more.items()},
        }  # fmt: skip

    def producer(self, **more: Any) -> Any:
        self._open.append(self.classes.Producer(self.config(**more)))
        return self._open[-1]

    def consumer(self, *topics: str, **more: Any) -> Any:
        consumer = self.classes.Consumer(self.group_config(**more))
        self._open.append(consumer)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    def send(self, count: int, partition: Callable[[int], int] | None = None) -> None:
        """Records v0, v1, ... with the keys k0, k1, ..."""
        producer = self.producer()
        for i in range(count):
            producer.produce(self.topic, f"v{i}", f"k{i}")
        assert producer.flush(120) == 0

    def close(self) -> None:
        for client in self._open:
            client.close()


@pytest.fixture(params=sorted(APIS))
def api(request: pytest.FixtureRequest, kafka: KafkaUnderTest, topic_name: str) -> Any:
    """Both libraries, one after the other, each with a topic of two partitions."""
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 2)])[topic_name].result(120)
    wait_for_partitions(admin, topic_name, 2, kafka.bootstrap_servers, 120.0)
    made = Api(kafka, topic_name, request.param)
    yield made
    made.close()


def records(consumer: Any, count: int, timeout: float = 120.0) -> list[Message]:
    """That many records by poll()."""
    deadline = time.monotonic() + timeout
    found: list[Message] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def until(consumer: Any, condition: Callable[[], object], timeout: float = 120.0) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        consumer.poll(0.05)


def test_a_record_comes_back_as_it_was_sent(api: Api) -> None:
    """Key, value, headers, timestamp; delivery reports by either name, len(), poll() and flush()."""
    reports: list[tuple[Any, Message]] = []
    producer = api.producer(linger_ms=120_000, delivery_timeout_ms=240_000)  # a report that waits counts as well
    producer.produce(api.topic, b"v", "k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123,
                     on_delivery=lambda e, m: reports.append((e, m)))  # fmt: skip
    producer.produce(api.topic, value="w", key=b"k", callback=lambda e, m: reports.append((e, m)), headers={"d": b"2"})
    assert len(producer) == 2
    assert bool(producer)
    assert producer.flush(120) == 0
    assert [e for e, _ in reports] == [None, None]
    assert len({m.partition() for _, m in reports}) == 1
    assert reports[0][1].offset() == 0

    first, second = records(api.consumer(api.topic), 2)

    assert (first.key(), first.value(), first.timestamp()) == (b"k", b"v", (1, 1_700_000_000_123))
    assert first.headers() == [("h", b"1"), ("h", None)]
    assert (second.key(), second.value(), second.headers()) == (b"k", b"w", [("d", b"2")])


def test_a_full_queue_and_wrong_types(api: Api) -> None:
    """BufferError, TypeError; purge() fails what waits."""
    failed: list[Any] = []
    producer = api.producer(queue_buffering_max_messages=3, linger_ms=10_000)
    for i in range(3):
        producer.produce(api.topic, f"v{i}", "k", on_delivery=lambda e, _: failed.append(e))
    with pytest.raises(BufferError):
        producer.produce(api.topic, "v", "k")
    producer.purge()
    producer.flush(120)
    assert {e.code() for e in failed} <= {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
    assert len(failed) == 3
    for wrong in ({"value": 1}, {"key": 1.5}, {"headers": "no"}):
        with pytest.raises(TypeError):
            producer.produce(api.topic, **{"value": "v", **wrong})


def test_what_is_produced_after_a_purge_is_delivered(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The client library's own drops it with the others, and sends later records of its key."""
    before: list[Any] = []
    after: list[Any] = []
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    with OrderedProducer({**kafka.client_config(), "linger.ms": 2}) as producer:
        for _ in range(50):
            for number in range(20):
                producer.produce(topic_name, b"before", str(number), on_delivery=lambda e, _: before.append(e))
            producer.purge()
            for number in range(5):
                producer.produce(topic_name, b"after", str(number), on_delivery=lambda e, _: after.append(e))
            assert producer.flush(120) == 0

    assert len(before) == 1000
    assert [error for error in after if error is not None] == []
    assert len(after) == 250


def test_a_batch_of_dicts(api: Api) -> None:
    """produce_batch() with callbacks of their own and a common one."""
    own: list[Any] = []
    common: list[Any] = []
    producer = api.producer()
    batch = [{"value": "a", "key": "k", "callback": lambda e, m: own.append(m.value())}, {"value": "b", "key": "k"}]
    assert producer.produce_batch(api.topic, batch, on_delivery=lambda e, m: common.append(m.value())) == 2
    assert producer.flush(120) == 0
    assert (own, common) == ([b"a"], [b"b"])
    with pytest.raises(TypeError):
        producer.produce_batch(api.topic, "no list")
    assert sorted(m.value() or b"" for m in records(api.consumer(api.topic), 2)) == [b"a", b"b"]


def test_what_a_batch_keeps_back_of_a_key(kafka: KafkaUnderTest, topic_name: str) -> None:
    """All behind the one that was not taken, whether the key is bytes or their text."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    large = {"key": "a", "value": b"v" * 2_000}
    batch: list[dict[str, Any]] = [large, {"key": b"a", "value": b"1"}, {"key": "a"}, {"key": b"b", "timestamp": None}]
    with OrderedProducer({**kafka.client_config(), "message.max.bytes": 1_000}) as producer:
        assert producer.produce_batch(topic_name, batch) == 1
    errors = [message["_error"].code() if "_error" in message else None for message in batch]
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE] * 3 + [None]


class Reports(list[Any]):
    """A callback that is false until it has heard of a record."""

    def __call__(self, error: Any, message: Any) -> None:
        """Of a delivery report."""
        self.append(message.value())


def test_a_callback_that_is_false_is_called(api: Api) -> None:
    """Of a record, of the client, of a batch and of a record within it."""
    heard = {name: Reports() for name in ("client", "on_delivery", "callback", "batch", "message")}
    with api.classes.Producer({**api.config(), "on_delivery": heard["client"]}) as producer:
        producer.produce(api.topic, "client")
        producer.produce(api.topic, "on_delivery", on_delivery=heard["on_delivery"])
        producer.produce(api.topic, "callback", callback=heard["callback"])
        batch = [{"value": "batch"}, {"value": "message", "callback": heard["message"]}]
        assert producer.produce_batch(api.topic, batch, on_delivery=heard["batch"]) == 2
        assert producer.flush(120) == 0
    assert heard == {name: [name.encode()] for name in heard}


def test_what_is_closed_says_so(api: Api) -> None:
    """RuntimeError from every call; closing twice is fine; `with` closes."""
    with api.classes.Producer(api.config()) as producer:
        producer.produce(api.topic, "v", "k")
    with pytest.raises(RuntimeError):
        producer.produce(api.topic, "v", "k")
    with api.classes.Consumer(api.group_config()) as consumer:
        consumer.subscribe([api.topic])
    place = TopicPartition(api.topic, 0)
    calls: list[Callable[[], Any]] = [
        lambda: consumer.poll(0), lambda: consumer.consume(1, 0), lambda: consumer.subscribe([api.topic]),
        lambda: consumer.commit(), lambda: consumer.assignment(), lambda: consumer.position([place]),
        lambda: consumer.committed([place]), lambda: consumer.pause([place]), lambda: consumer.resume([place]),
        lambda: consumer.seek(TopicPartition(api.topic, 0, 0)), lambda: consumer.assign([place]),
        lambda: consumer.unassign(), lambda: consumer.unsubscribe(), lambda: consumer.list_topics(),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError):
            call()


def test_callbacks_of_a_rebalance_and_starts_that_they_give(api: Api) -> None:
    """on_assign may say by assign() where to start; on_revoke comes with close(); a callback's error leaves poll()."""
    api.send(10)
    heard: list[tuple[str, list[int]]] = []

    def assigned(consumer: Any, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = consumer.get_watermark_offsets(partition, 120)[1] - 1
        consumer.assign(partitions)
        heard.append(("assign", sorted(p.partition for p in partitions)))

    consumer = api.consumer()
    consumer.subscribe([api.topic], on_assign=assigned,
                       on_revoke=lambda _, ps: heard.append(("revoke", sorted(p.partition for p in ps))))  # fmt: skip
    found = records(consumer, 2)
    assert {m.partition() for m in found} == {0, 1}
    assert consumer.poll(0.5) is None
    assert [p.partition for p in sorted(consumer.assignment())] == [0, 1]
    consumer.close()
    assert heard == [("assign", [0, 1]), ("revoke", [0, 1])]

    def failing(consumer: Any, partitions: list[TopicPartition]) -> None:
        raise LookupError("mine")

    other = api.consumer(group_id=f"{api.topic}-2")
    other.subscribe([api.topic], on_assign=failing)
    with pytest.raises(LookupError, match="mine"):
        until(other, lambda: False)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_members_share_and_give_up(api: Api, strategy: str) -> None:
    """A second member takes a partition; when it leaves the first has both again; nothing comes twice."""
    api.send(20)
    first = api.consumer(api.topic, partition_assignment_strategy=strategy, session_timeout_ms=6000)
    values = {m.value() for m in records(first, 20)}
    first.commit(asynchronous=False)
    second = api.consumer(api.topic, partition_assignment_strategy=strategy, session_timeout_ms=6000)
    deadline = time.monotonic() + 120
    while (len(first.assignment()), len(second.assignment())) != (1, 1):
        assert time.monotonic() < deadline
        assert first.poll(0.1) is None
        assert second.poll(0.1) is None
    second.close()
    until(first, lambda: len(first.assignment()) == 2)
    assert len(values) == 20


def test_commits(api: Api) -> None:
    """Synchronous, asynchronous with on_commit, by message, by offsets with metadata, and with nothing to commit."""
    api.send(6)
    heard: list[tuple[Any, list[int]]] = []
    consumer = api.consumer(
        api.topic, enable_auto_commit=False, on__commit=lambda e, ps: heard.append((e, [p.offset for p in ps]))
    )
    with pytest.raises(KafkaException) as raised:
        consumer.commit(asynchronous=False)
    assert raised.value.args[0].code() == KafkaError._NO_OFFSET
    found = records(consumer, 6)
    last = {m.partition(): m for m in found}

    message = last[0]
    (done,) = consumer.commit(message=message, asynchronous=False)
    assert (done.partition, done.offset, done.error) == (0, message.offset() + 1, None)
    assert consumer.commit(offsets=[TopicPartition(api.topic, 1, 1, "mine")], asynchronous=True) is None
    until(consumer, lambda: any(offsets == [1] for _, offsets in heard))
    assert all(error is None for error, _ in heard)
    places = consumer.committed([TopicPartition(api.topic, p) for p in range(2)], 120)
    assert [p.offset for p in places] == [message.offset() + 1, 1]
    assert places[1].metadata == "mine"
    assert consumer.commit() is None
    consumer.poll(0)
    consumer.close()
    again = api.consumer(api.topic)
    assert again.poll(1.0) is None
    with pytest.raises(ValueError, match="mutually exclusive"):
        again.commit(message=message, offsets=[])


def test_stored_offsets(api: Api) -> None:
    """Only what was stored is committed; storing beside automatic storing is an error."""
    api.send(8)
    consumer = api.consumer(api.topic, enable_auto_offset_store=False)
    found = records(consumer, 8)
    by_partition = {p: [m for m in found if m.partition() == p] for p in (0, 1)}
    consumer.store_offsets(message=by_partition[0][0])
    consumer.store_offsets(offsets=[TopicPartition(api.topic, 1, len(by_partition[1]))])
    consumer.close()
    again = api.consumer(api.topic)
    left = records(again, len(by_partition[0]) - 1)
    assert {m.partition() for m in left} == {0}
    with pytest.raises(KafkaException):
        again.store_offsets(message=found[0])


def test_automatic_commits_at_the_end(api: Api) -> None:
    """A group goes on where its last member stopped."""
    api.send(5)
    with api.classes.Consumer(api.group_config()) as consumer:
        consumer.subscribe([api.topic])
        records(consumer, 5)
    again = api.consumer(api.topic)
    assert again.poll(1.0) is None
    api.send(3)
    assert {m.value() for m in records(again, 3)} == {b"v0", b"v1", b"v2"}


def test_seek_position_pause_resume(api: Api) -> None:
    """A position is behind the last record returned; what is paused is silent; a seek goes back."""
    api.send(10)
    consumer = api.consumer(api.topic)
    places = [TopicPartition(api.topic, p) for p in range(2)]
    assert [p.offset for p in consumer.position(places)] == [OFFSET_INVALID, OFFSET_INVALID]
    found = records(consumer, 10)
    counts = [sum(1 for m in found if m.partition() == p) for p in (0, 1)]
    assert [p.offset for p in consumer.position(places)] == counts

    consumer.pause([places[0]])
    api.send(10)
    later = records(consumer, counts[1])
    assert {m.partition() for m in later} == {1}
    assert consumer.poll(0.3) is None
    consumer.resume([places[0]])
    assert {m.partition() for m in records(consumer, counts[0])} == {0}
    consumer.seek(TopicPartition(api.topic, 1, 0))
    assert [m.offset() for m in records(consumer, 2 * counts[1])] == list(range(2 * counts[1]))
    with pytest.raises(KafkaException):
        consumer.seek(TopicPartition(f"{api.topic}-other", 0, 0))
    consumer.pause([TopicPartition(f"{api.topic}-other", 0)])


def test_assignment_by_hand(api: Api) -> None:
    """Offsets by number and by name; more and fewer partitions; no group protocol."""
    api.send(12)
    consumer = api.consumer()
    low, high = consumer.get_watermark_offsets(TopicPartition(api.topic, 0), 120)
    assert low == 0
    consumer.assign([TopicPartition(api.topic, 0, OFFSET_BEGINNING)])
    assert [m.offset() for m in records(consumer, high)] == list(range(high))
    consumer.assign([TopicPartition(api.topic, 0, high - 1), TopicPartition(api.topic, 1, OFFSET_END)])
    assert [m.offset() for m in records(consumer, 1)] == [high - 1]
    assert consumer.poll(0.3) is None
    consumer.unassign()
    assert consumer.assignment() == []
    assert consumer.poll(0.2) is None


def test_questions_to_the_cluster(api: Api) -> None:
    """list_topics, offsets_for_times, cluster_id, memberid, group metadata."""
    api.send(4)
    consumer = api.consumer(api.topic)
    found = records(consumer, 4)
    assert len(consumer.list_topics(api.topic, timeout=120).topics[api.topic].partitions) == 2
    assert api.topic in consumer.list_topics(timeout=120).topics
    when = found[0].timestamp()[1]
    (place,) = consumer.offsets_for_times([TopicPartition(api.topic, found[0].partition(), when)], timeout=120)
    assert place.offset == 0
    assert consumer.cluster_id(timeout=120) == api.producer().cluster_id(timeout=120)
    assert consumer.memberid()
    assert consumer.consumer_group_metadata() is not None


def test_consume_and_its_limits(api: Api) -> None:
    """Up to so many, as few as none, and no nonsense."""
    api.send(30)
    consumer = api.consumer(api.topic)
    got: list[Message] = []
    deadline = time.monotonic() + 120
    while len(got) < 30:
        assert time.monotonic() < deadline
        batch = consumer.consume(num_messages=7, timeout=1.0)
        assert len(batch) <= 7
        got += batch
    assert consumer.consume(5, 0.1) == []
    for wrong in (-1, 1_000_001):
        with pytest.raises(ValueError, match="num_messages"):
            consumer.consume(wrong, 0)
    with pytest.raises(TypeError):
        consumer.subscribe(api.topic)
    with pytest.raises(TypeError):
        consumer.subscribe([api.topic], on_assign="no")


def test_events_of_the_library(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """stats_cb and error_cb are called on the thread that polls; the end of a partition is an event when asked for."""
    api.send(2)
    stats: list[Any] = []
    consumer = api.consumer(
        api.topic,
        statistics_interval_ms=100,
        stats__cb=lambda text: stats.append(json.loads(text)),
        enable_partition_eof=True,
    )
    ends: set[int] = set()
    deadline = time.monotonic() + 120
    while len(ends) < 2 or not stats:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        if message is not None and message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ends.add(message.partition())
    assert stats[0]["type"] == "consumer"

    errors: list[KafkaError] = []
    lost = api.classes.Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "error_cb": errors.append}, logger=logging.getLogger("x")
    )
    until(lost, lambda: errors)
    assert errors[0].code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    lost.close()


def test_a_pattern_finds_topics_that_are_made_later(api: Api) -> None:
    """Topics that match are read, whenever they appear."""
    consumer = api.consumer(f"^{api.topic}.*", topic_metadata_refresh_interval_ms=500)
    api.send(3)
    records(consumer, 3)
    later = f"{api.topic}-later"
    admin = api.kafka.admin()
    admin.create_topics([NewTopic(later, 1)])[later].result(120)
    producer = api.producer()
    producer.produce(later, "new", "k")
    assert producer.flush(120) == 0
    assert [(m.topic(), m.value()) for m in records(consumer, 1)] == [(later, b"new")]


def test_a_transaction_is_seen_whole_or_not_at_all(api: Api) -> None:
    """Aborted records are never returned; offsets move with the transaction."""
    api.send(2)
    consumer = api.consumer(api.topic, enable_auto_commit=False)
    found = records(consumer, 2)
    out = f"{api.topic}-out"
    admin = api.kafka.admin()
    admin.create_topics([NewTopic(out, 1)])[out].result(120)
    producer = api.producer(transactional_id=api.topic)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(out, "aborted", "k")
    producer.flush(120)
    producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce(out, "kept", "k")
    ends = [TopicPartition(api.topic, p, sum(m.partition() == p for m in found)) for p in (0, 1)]
    producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), 20)
    producer.commit_transaction(20)
    places = consumer.committed(ends, 120)
    assert [p.offset for p in places] == [p.offset for p in ends]
    assert [m.value() for m in records(api.consumer(out, group_id=out), 1)] == [b"kept"]


def test_the_asyncio_classes(api: Api) -> None:
    """Futures of delivered records, callbacks that are coroutines, a commit while a poll waits."""

    async def run() -> None:
        assigned: list[int] = []

        async def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            assigned.extend(p.partition for p in partitions)

        async with api.classes.AIOProducer(api.config()) as producer:
            futures = [await producer.produce(api.topic, value=f"v{i}", key=f"k{i}") for i in range(10)]
            await producer.flush()
            delivered = await asyncio.gather(*futures)
            assert {m.value() for m in delivered} == {f"v{i}".encode() for i in range(10)}
        consumer = api.classes.AIOConsumer(api.group_config(enable_auto_commit=False))
        await consumer.subscribe([api.topic], on_assign=on_assign)
        got: list[Message] = []
        while len(got) < 10:
            message = await asyncio.wait_for(consumer.poll(timeout=1.0), 30)
            if message is not None:
                got.append(message)
        assert sorted(assigned) == [0, 1]
        waiting = asyncio.ensure_future(consumer.poll(timeout=2.0))
        await asyncio.sleep(0)
        await consumer.commit(**{"async": False})
        assert await waiting is None
        places = await consumer.committed([TopicPartition(api.topic, p) for p in (0, 1)], timeout=120)
        assert sum(p.offset for p in places) == 10
        await consumer.close()

    asyncio.run(asyncio.wait_for(run(), 90))


@pytest.mark.parametrize("library", sorted(APIS))
def test_a_program_runs_with_only_its_import_changed(kafka: KafkaUnderTest, topic_name: str, library: str) -> None:
    """examples/orders.py is written for confluent_kafka; two words of it are all that changes."""
    admin = kafka.admin()
    orders, totals = f"{topic_name}-orders", f"{topic_name}-totals"
    for topic, made in admin.create_topics([NewTopic(topic, 2) for topic in (orders, totals)]).items():
        made.result(120)
        wait_for_partitions(admin, topic, 2, kafka.bootstrap_servers, 120.0)
    text = (Path(__file__).parents[2] / "examples" / "orders.py").read_text()
    if library == "keyorder":
        line = "from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition\n"
        assert line in text
        ours = "from keyorder import OrderedConsumer as Consumer, OrderedProducer as Producer\n"
        text = text.replace(
            line, "from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition\n" + ours
        )
    program: dict[str, Any] = {"__name__": "orders"}
    exec(compile(text, "orders.py", "exec"), program)
    sent = [(f"customer-{n % 5}", n // 5, n) for n in range(60)]

    program["send"](kafka.bootstrap_servers, orders, sent)
    adder, done = program["Totals"](kafka.bootstrap_servers, orders, totals), 0
    while done < len(sent):
        done += adder.work()
    adder.consumer.close()
    adder.producer.close()

    expected = {f"customer-{c}": {"amount": sum(n for n in range(60) if n % 5 == c), "last": 11} for c in range(5)}
    group = {"group.id": f"{totals}-view", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    found: dict[str, Any] = {}
    reader = APIS[library].Consumer({**kafka.client_config(), **group})
    reader.subscribe([totals])
    for message in records(reader, len(sent)):
        found[(message.key() or b"").decode()] = json.loads(message.value() or b"")
    reader.close()
    assert found == expected


def test_what_a_cancelled_poll_has_taken_is_not_lost(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It comes with the next poll; if there is none it was never processed, and the group's next member gets it."""
    api = Api(kafka, topic_name, "keyorder")
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    api.send(3)
    consumer = api.consumer(topic_name)
    records(consumer, 1)
    taken, _ = consumer.take(1, 10)
    assert [m.offset() for m in taken] == [1]
    assert [m.offset() for m in records(consumer, 1)] == [1]
    taken, _ = consumer.take(1, 10)
    assert [m.offset() for m in taken] == [2]
    consumer.close()
    again = api.consumer(topic_name)
    assert [m.offset() for m in records(again, 1)] == [2]
    api.close()


def test_a_program_that_ends_without_close_leaves_the_writers(kafka: KafkaUnderTest, topic_name: str) -> None:
    """As confluent_kafka's programs do: the next change must not wait for a lease that nobody holds."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1)
    code = (
        "import json, sys; from keyorder import OrderedProducer; p = OrderedProducer(json.loads(sys.argv[1]));"
        "p.produce(sys.argv[2], b'v', b'k'); assert p.flush(120) == 0"
    )
    words = [sys.executable, "-c", code, json.dumps(kafka.client_config()), topic_name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert admin.describe(topic_name).writers == ()
