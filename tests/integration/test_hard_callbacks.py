"""Applications whose callbacks raise, whose signal handlers raise, that are interrupted anywhere: no record is lost."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.consuming.records.reading import Intake
from support.cluster import KafkaUnderTest
from support.groups import QUICK, group_config, read, send

WAYS = pytest.mark.parametrize("way", ["poll", "consume", "arrow"])


class Callback(Exception):
    """What a callback or a signal handler raises."""


def filled(kafka: KafkaUnderTest, topic: str, records: int, partitions: int = 1) -> None:
    TopicAdmin(kafka.client_config()).create(topic, partitions, config=QUICK)
    send(kafka, topic, *((f"k{n % 7}", f"{n}") for n in range(records)))


def take(consumer: OrderedConsumer, way: str, most: int = 40, timeout: float = 0.2) -> list[tuple[int, int]]:
    """(partition, offset) of what one call returns."""
    if way == "arrow":
        batch = consumer.consume_arrow(most, timeout)
        return list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))
    if way == "consume":
        messages = consumer.consume(most, timeout)
    else:
        message = consumer.poll(timeout)
        messages = [] if message is None else [message]
    assert all(m.error() is None for m in messages)
    return [(m.partition(), m.offset()) for m in messages]  # type: ignore[misc]


def take_all(
    consumer: OrderedConsumer, way: str, count: int, raised: type[BaseException] | tuple[type[BaseException], ...]
) -> tuple[list[tuple[int, int]], int]:
    """All `count` records, and how often something was raised. The time limit follows progress."""
    found: list[tuple[int, int]] = []
    errors = 0
    deadline = time.monotonic() + 120
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}, {errors} exceptions"
        try:
            taken = take(consumer, way)
        except raised:
            errors += 1
            continue
        if taken:
            found += taken
            deadline = time.monotonic() + 120
    return found, errors


@contextmanager
def alarms(every: float, handler: Callable[..., object]) -> Iterator[None]:
    """A signal again and again, to the main thread."""
    before = signal.signal(signal.SIGUSR1, handler)
    done = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def ring() -> None:
        while not done.wait(every):
            signal.pthread_kill(main, signal.SIGUSR1)

    bell = threading.Thread(target=ring, daemon=True)
    bell.start()
    try:
        yield
    finally:
        while not done.is_set():
            with suppress(BaseException):
                done.set()
        bell.join()
        signal.signal(signal.SIGUSR1, before)


def committed(kafka: KafkaUnderTest, topic: str) -> int:
    with OrderedConsumer(group_config(kafka, topic)) as consumer:
        return consumer.committed([TopicPartition(topic, 0)], 120)[0].offset


@WAYS
def test_a_callback_that_raises_loses_nothing(kafka: KafkaUnderTest, topic_name: str, way: str) -> None:
    """stats_cb raises every second time, on_commit always: calls tell of it, and every record comes, in order, once."""
    filled(kafka, topic_name, 3_000)
    calls = iter(range(10**9))

    def stats(_: str) -> None:
        if next(calls) % 2:
            raise Callback

    def on_commit(*_: object) -> None:
        raise Callback

    config = group_config(kafka, topic_name, statistics_interval_ms=3, auto_commit_interval_ms=20)
    consumer = OrderedConsumer({**config, "stats_cb": stats, "on_commit": on_commit})
    consumer.subscribe([topic_name])

    found, errors = take_all(consumer, way, 3_000, Callback)

    assert found == [(0, offset) for offset in range(3_000)]
    assert errors > 0
    try:
        consumer.close()
    except Callback:
        pass


@WAYS
def test_a_signal_handler_that_raises_loses_nothing(kafka: KafkaUnderTest, topic_name: str, way: str) -> None:
    """At whatever line the exception comes: the call has not returned, and what it had comes with a later one."""
    filled(kafka, topic_name, 2_000)
    calls = {f.__code__ for f in (OrderedConsumer.poll, OrderedConsumer.consume, OrderedConsumer.consume_arrow)}

    def handler(_: int, frame: FrameType | None) -> None:
        # Inside the call alone: what it has returned is the test's.
        while frame is not None:
            if frame.f_code in calls:
                raise Callback
            frame = frame.f_back

    config = group_config(kafka, topic_name, auto_commit_interval_ms=20)
    found: list[tuple[int, int]] = []
    errors = 0
    deadline = time.monotonic() + 120
    with OrderedConsumer(config) as consumer, ExitStack() as stack:
        consumer.subscribe([topic_name])
        found += take_all(consumer, way, 1, ())[0]
        stack.enter_context(alarms(0.02, handler))
        while errors < 40 or len(found) < 2_000:
            assert time.monotonic() < deadline, f"{len(found)}, {errors} exceptions"
            if len(found) == 2_000:
                assert found == [(0, offset) for offset in range(2_000)]
                found.clear()
                consumer.seek(TopicPartition(topic_name, 0, 0))
            try:
                taken = take(consumer, way, most=7, timeout=0.005)
            except Callback:
                errors += 1
                continue
            if taken:
                found += taken
                deadline = time.monotonic() + 120
    assert found == [(0, offset) for offset in range(2_000)]


@pytest.mark.parametrize("which", ["on_assign", "on_revoke"])
def test_a_rebalance_callback_that_is_interrupted_loses_no_partition(
    kafka: KafkaUnderTest, topic_name: str, which: str
) -> None:
    """KeyboardInterrupt inside it is raised by the poll; the partitions are read, or left, all the same."""
    filled(kafka, topic_name, 20, partitions=2)
    raised = [False]

    def interrupted(*_: object) -> None:
        if not raised[0]:
            raised[0] = True
            raise KeyboardInterrupt

    config = group_config(kafka, topic_name)
    consumer = OrderedConsumer(config)
    callbacks: dict[str, Any] = {which: interrupted}
    consumer.subscribe([topic_name], **callbacks)
    found, _ = take_all(consumer, "poll", 20, KeyboardInterrupt)
    assert len(set(found)) == 20
    if which == "on_revoke":
        consumer.unsubscribe()
        with pytest.raises(KeyboardInterrupt):
            _until(lambda: consumer.poll(0.1) is None and False)
    assert raised == [True]
    consumer.close()


def _until(condition: Callable[[], object], timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline


@pytest.mark.parametrize("line", ["assigned", "revoked"])
def test_a_rebalance_that_is_cut_short_is_made_again(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """An exception in the middle of taking partitions over, or of giving them up: the group is joined anew."""
    filled(kafka, topic_name, 20, partitions=2)
    send(kafka, topic_name, ("k", "v"))
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    members = consumer._members
    whole: Callable[..., None] = members.starts.add if line == "assigned" else members._forget
    cut = [False]

    def cut_short(*arguments: Any) -> None:
        if not cut[0]:
            cut[0] = True
            raise Callback
        whole(*arguments)

    monkeypatch.setattr(
        members.starts if line == "assigned" else members, "add" if line == "assigned" else "_forget", cut_short
    )
    consumer.subscribe([topic_name])
    if line == "revoked":
        first, _ = take_all(consumer, "poll", 10, Callback)
        other = OrderedConsumer(group_config(kafka, topic_name))
        other.subscribe([topic_name])
        found = set(first)
        deadline = time.monotonic() + 120
        while len(found) < 21 or not cut[0]:
            assert time.monotonic() < deadline, f"{len(found)} {cut}"
            for each in (consumer, other):
                try:
                    found |= set(take(each, "poll", timeout=0.05))
                except Callback:
                    pass
        other.close()
    else:
        found = set(take_all(consumer, "poll", 21, Callback)[0])
    assert cut == [True]
    assert len(found) == 21
    consumer.close()


@WAYS
def test_pause_stops_what_was_judged_and_resume_gives_it_in_order(
    kafka: KafkaUnderTest, topic_name: str, way: str
) -> None:
    """As the client library: after pause() not one more record of that partition; then on from where it was."""
    filled(kafka, topic_name, 1_000)
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        found, _ = take_all(consumer, way, 5, Callback)
        consumer.pause(consumer.assignment())
        for _ in range(5):
            assert take(consumer, way, timeout=0.1) == []
        consumer.resume(consumer.assignment())
        found += take_all(consumer, way, 1_000 - len(found), Callback)[0]
        assert found == [(0, offset) for offset in range(1_000)]


def test_a_paused_partition_does_not_keep_others_back(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What was fetched of it waits aside."""
    filled(kafka, topic_name, 700, partitions=2)
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        found, _ = take_all(consumer, "poll", 1, Callback)
        paused = found[0][0]
        consumer.pause([TopicPartition(topic_name, paused)])
        with_end = consumer.get_watermark_offsets(TopicPartition(topic_name, 1 - paused), 120)
        assert with_end is not None
        others, _ = take_all(consumer, "consume", with_end[1], Callback)
        assert {partition for partition, _ in others} == {1 - paused}
        consumer.resume([TopicPartition(topic_name, paused)])
        found += take_all(consumer, "consume", 699 - len(others), Callback)[0]
        assert found == [(paused, offset) for offset in range(700 - with_end[1])]


@pytest.mark.kip("C-10")
def test_a_seek_forgets_the_end_that_was_reached(kafka: KafkaUnderTest, topic_name: str) -> None:
    """An end-of-partition event of before the seek neither comes out nor moves the position."""
    filled(kafka, topic_name, 100)
    config = group_config(kafka, topic_name, enable_partition_eof=True, enable_auto_commit=False)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name])
        offsets: list[int] = []
        while len(offsets) < 50:
            offsets += [offset for _, offset in take(consumer, "consume", most=50 - len(offsets))]
        out = consumer._delivery.out
        eof = Message(topic=topic_name, partition=0, offset=100, error=KafkaError(KafkaError._PARTITION_EOF, "end"))
        out.waiting.append(eof)
        out.ready.append(eof)
        consumer.seek(TopicPartition(topic_name, 0, 10))
        seen: list[int] = []
        deadline = time.monotonic() + 120
        while len(seen) < 91:
            assert time.monotonic() < deadline, seen
            message = consumer.poll(0.2)
            if message is not None:
                error = message.error()
                seen.append(message.offset() if error is None else -1)  # type: ignore[arg-type]
        assert seen == [*range(10, 100), -1]
        assert consumer.position([TopicPartition(topic_name, 0)])[0].offset == 100


def test_a_partial_batch_that_was_interrupted_is_not_committed(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Ctrl-C inside consume(n) after one record, then close(): the group's next member gets the records of that batch."""
    filled(kafka, topic_name, 51)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    read(consumer, 1)

    def handler(*_: object) -> None:
        if consumer._delivery.out.count >= 50:
            raise KeyboardInterrupt

    with alarms(0.02, handler), pytest.raises(KeyboardInterrupt):
        consumer.consume(100, 60)
    consumer.close()

    assert committed(kafka, topic_name) == 1


def test_an_interrupted_batch_comes_with_the_next_call(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The position stays before it, in between."""
    filled(kafka, topic_name, 50)
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])

        def handler(*_: object) -> None:
            if consumer._delivery.out.count >= 50:
                raise KeyboardInterrupt

        with alarms(0.02, handler), pytest.raises(KeyboardInterrupt):
            consumer.consume(100, 60)

        assert consumer.position([TopicPartition(topic_name, 0)])[0].offset in (0, -1001)
        assert take_all(consumer, "consume", 50, ())[0] == [(0, offset) for offset in range(50)]


def test_a_view_that_is_blocked_does_not_cost_the_membership(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library is polled all the same: the member is not put out, and nothing comes twice."""
    filled(kafka, topic_name, 300)
    config = group_config(kafka, topic_name, max_poll_interval_ms=6_000, session_timeout_ms=6_000)
    lost: list[object] = []
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name], on_lost=lambda *_: lost.append(1), on_revoke=lambda *_: lost.append(2))
        found, _ = take_all(consumer, "poll", 5, ())
        blocked = [True]
        fresh = Intake._fresh
        monkeypatch.setattr(Intake, "_fresh", lambda *a: False if blocked[0] else fresh(*a))
        consumer.seek(TopicPartition(topic_name, 0, 5))
        since = time.monotonic()
        while time.monotonic() - since < 9:
            assert take(consumer, "poll", timeout=0.05) == []
        blocked[0] = False
        found += take_all(consumer, "poll", 295, ())[0]
        assert found == [(0, offset) for offset in range(300)]
        assert lost == []


def test_a_revocation_while_closing_may_use_the_consumer(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The textbook's on_revoke commits; positions and assignment are there until the last callback has returned."""
    filled(kafka, topic_name, 3)
    seen: dict[str, Any] = {}

    def on_revoke(consumer: OrderedConsumer, partitions: list[TopicPartition]) -> None:
        seen["assignment"] = [(p.topic, p.partition) for p in consumer.assignment()]
        seen["position"] = consumer.position(partitions)[0].offset
        consumer.pause(partitions)
        consumer.commit(asynchronous=False)
        consumer.unassign()

    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.subscribe([topic_name], on_revoke=on_revoke)
    read(consumer, 3)
    consumer.close()

    assert seen == {"assignment": [(topic_name, 0)], "position": 3}
    assert committed(kafka, topic_name) == 3


def test_threads_that_poll_one_consumer_share_its_records(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Each record comes out once, whichever thread has it; other calls get their turn, and a time-out holds."""
    filled(kafka, topic_name, 4_000, partitions=4)
    found: list[tuple[int, int]] = []
    problems: list[BaseException] = []
    done = threading.Event()

    def reader() -> None:
        try:
            while not done.is_set():
                found.extend(take(consumer, "consume", most=5, timeout=0.05))
                if len(found) % 3 == 0:
                    consumer.commit(asynchronous=True)
                if len(found) >= 4_000:
                    done.set()
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                problems.append(error)
                done.set()
        except BaseException as error:
            problems.append(error)
            done.set()

    with OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False)) as consumer:
        consumer.subscribe([topic_name])
        take_first, _ = take_all(consumer, "poll", 1, ())
        found.extend(take_first)
        threads = [threading.Thread(target=reader, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert done.wait(120), f"{len(found)} of 4000"
        for thread in threads:
            thread.join(120)
    assert problems == []
    assert (len(found), len(set(found))) == (4_000, 4_000)


def test_a_short_poll_beside_an_endless_one_returns(kafka: KafkaUnderTest, topic_name: str) -> None:
    """And so does a commit."""
    filled(kafka, topic_name, 1)
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.subscribe([topic_name])
    read(consumer, 1)
    ended: list[str] = []

    def endless() -> None:
        try:
            consumer.poll()
        except RuntimeError as error:
            ended.append(str(error))

    thread = threading.Thread(target=endless, daemon=True)
    thread.start()
    for _ in range(5):
        assert consumer.poll(0.05) is None
    assert consumer.commit(asynchronous=False) is not None
    consumer.close()
    thread.join(120)
    assert ended == ["Consumer closed"]


@pytest.mark.parametrize("call", ["poll", "consume", "arrow", "commit"])
def test_close_in_a_signal_handler(kafka: KafkaUnderTest, topic_name: str, call: str) -> None:
    """Whatever the signal has interrupted: the consumer is closed, and nothing that nobody saw is committed."""
    filled(kafka, topic_name, 200)
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=call != "commit"))
    consumer.subscribe([topic_name])
    seen = take_all(consumer, "poll", 20, ())[0]
    closing, ended = [0], list[str]()

    def handler(*_: object) -> None:
        closing[0] += 1
        consumer.close()

    with alarms(0.05, handler):
        deadline = time.monotonic() + 120
        while not consumer._closed:
            assert time.monotonic() < deadline
            try:
                if call == "commit":
                    seen += take(consumer, "poll", timeout=0.01)
                    consumer.commit(asynchronous=False)
                else:
                    seen += take(consumer, call, most=3, timeout=30 if len(seen) >= 200 else 0.1)
            except RuntimeError as error:
                ended.append(str(error))
    assert closing[0] > 0
    assert set(ended) <= {"Consumer closed"}
    with pytest.raises(RuntimeError):
        consumer.poll(0)
    assert committed(kafka, topic_name) <= len(seen)


def test_close_in_a_callback_and_twice(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It happens when the poll has ended, and the second time is nothing."""
    filled(kafka, topic_name, 5)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name], on_assign=lambda c, _: c.close())
    deadline = time.monotonic() + 120
    while not consumer._closed:
        assert time.monotonic() < deadline
        assert consumer.poll(1) is None
    consumer.close()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.assignment()


def test_close_while_another_thread_polls(kafka: KafkaUnderTest, topic_name: str) -> None:
    """That poll ends with RuntimeError, as the client library's."""
    filled(kafka, topic_name, 5)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    seen: list[Message] = []
    ended = threading.Event()

    def poll() -> None:
        try:
            while True:
                message = consumer.poll()
                if message is not None:
                    seen.append(message)
        except RuntimeError:
            ended.set()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    _until(lambda: len(seen) == 5)
    consumer.close()
    assert ended.wait(120)
    assert committed(kafka, topic_name) == 5


def test_a_logger_that_raises_in_close_keeps_no_member_in_its_group(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The client is closed all the same, and what was raised goes out of close(); else the group waits for it for minutes."""
    filled(kafka, topic_name, 20)
    closing = threading.Event()

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if closing.is_set():
                raise Callback(record.getMessage())

    logger = logging.Logger(topic_name)
    logger.addHandler(Raising())
    config = group_config(kafka, topic_name, session_timeout_ms=300_000, max_poll_interval_ms=600_000, debug="cgrp")
    consumer = OrderedConsumer(config, logger=logger)
    consumer.subscribe([topic_name])
    assert len(take_all(consumer, "consume", 20, Callback)[0]) == 20
    closing.set()
    with pytest.raises(Callback):
        consumer.close()
    other = OrderedConsumer(group_config(kafka, topic_name))
    other.subscribe([topic_name])
    deadline = time.monotonic() + 120
    while not other.assignment():
        assert time.monotonic() < deadline
        other.poll(0.1)
    other.close()
