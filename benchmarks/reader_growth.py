"""What a consumer costs as it grows, for P13: its start with many topics, a closed gate, reading a grown topic again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not re-exported
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock

from .harness.bench import Bench
from .harness.spread import Spread
from .load import key_of

_PATIENCE, _CLOSED = 120.0, 5.0
# Seconds. A call that is not full waits for all of it: longer ones would be what is measured.
_WAIT = 0.01
_PER_PARTITION = 8


def first_records(bench: Bench, topics: int) -> tuple[Spread, Spread]:
    """Seconds until a new producer has sent a record to each of so many new topics: ours, which adopts them, and stock's."""

    def run(client: Any) -> float:
        names = _made(bench, topics)
        began = clock.now()
        with client(bench.config) as producer:
            _send_one_each(producer, names)
            return clock.now() - began

    return _in_turns(lambda ours: run(OrderedProducer if ours else Producer), 1 if topics > 1 else bench.repeats)


def _made(bench: Bench, topics: int) -> list[str]:
    names = [bench.topic("start") for _ in range(topics)]
    admin = AdminClient(bench.config)
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(60)
    return names


def _send_one_each(producer: Any, names: list[str]) -> None:
    for name in names:
        producer.produce(name, b"v", b"k")
    producer.flush(_PATIENCE)


def starts(bench: Bench, topics: int) -> tuple[Spread, Spread]:
    """Seconds until a new group's one member has a record of each of so many topics: ours, and the stock client's."""
    names = _made(bench, topics)
    with OrderedProducer(bench.config) as producer:
        _send_one_each(producer, names)
    return _in_turns(lambda ours: _read(bench, _reader(ours), names, topics), bench.repeats)


def rereads(bench: Bench, partitions: int) -> tuple[Spread, Spread, Spread]:
    """A topic that has grown by half: seconds to read it, ours and stock's; CPU s/s of a member behind its closed gates."""
    topic = bench.topic("reread")
    admin = TopicAdmin(bench.config)
    admin.create(topic, partitions, timeout=300.0)
    _fill(bench, topic, partitions)
    admin.expand(topic, partitions * 3 // 2, timeout=300.0)
    _fill(bench, topic, partitions)
    ours, theirs = _in_turns(
        lambda ours: _read(bench, _reader(ours), [topic], 2 * _PER_PARTITION * partitions), bench.repeats
    )
    return ours, theirs, Spread.of([_closed(bench, topic) for _ in range(bench.repeats)])


def _reader(ours: bool) -> Any:
    return OrderedConsumer if ours else Consumer


def _in_turns(run: Callable[[bool], float], repeats: int) -> tuple[Spread, Spread]:
    times = [(run(True), run(False)) for _ in range(repeats)]
    return Spread.of([ours for ours, _ in times]), Spread.of([theirs for _, theirs in times])


def _fill(bench: Bench, topic: str, partitions: int) -> None:
    with OrderedProducer(bench.config) as producer:
        for number in range(_PER_PARTITION * partitions):
            producer.produce(topic, b"v", key_of(number))
        producer.flush(_PATIENCE)


def _read(bench: Bench, client: Any, topics: list[str], records: int) -> float:
    config = {**bench.config, "group.id": bench.topic("group"), "auto.offset.reset": "earliest"}
    began = clock.now()
    consumer = client(config)
    consumer.subscribe(topics)
    seen = 0
    while seen < records:
        seen += sum(message.error() is None for message in consumer.consume(500, _WAIT))
        if clock.now() - began > _PATIENCE:
            raise RuntimeError(f"{seen} of {records} records after {_PATIENCE:.0f} s")
    took = clock.now() - began
    consumer.close()
    return took


def _closed(bench: Bench, topic: str) -> float:
    """CPU seconds a second of a member that has read all it may, commits nothing, and waits."""
    config = {
        **bench.config,
        "group.id": bench.topic("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic])
        quiet_since = began = clock.now()
        while clock.now() - quiet_since < 2.0 or not consumer.gates():
            if consumer.consume(500, 0.1):
                quiet_since = clock.now()
            if clock.now() - began > _PATIENCE:
                raise RuntimeError(f"no closed gate, or no quiet, after {_PATIENCE:.0f} s")
        began, used = clock.now(), time.process_time()
        while clock.now() - began < _CLOSED:
            consumer.consume(500, 0.2)
        return (time.process_time() - used) / (clock.now() - began)
