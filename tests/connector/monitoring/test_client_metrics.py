"""What producers and consumers show of themselves: as families, on a port of their own, in an application's registry."""

from __future__ import annotations

import gc
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import keyorder
import pytest
from confluent_kafka import KafkaException
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.durations import BOUNDS, Durations
from keyorder.connector.figures import ConsumerFigures, ProducerFigures
from keyorder.connector.monitoring import client_serving
from keyorder.metrics import ClientCollector
from keyorder.partitioner.errors import ConfigError
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.cluster import KafkaUnderTest
from support.holding import prepared, until

ROOT = Path(keyorder.__path__[0])
UNREACHABLE = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}


class Shown:
    """A client of paper."""

    def __init__(self, figures: ProducerFigures | ConsumerFigures) -> None:
        self._figures = figures

    def figures(self) -> ProducerFigures | ConsumerFigures:
        return self._figures


def scraped(text: str) -> dict[tuple[str, str], float]:
    """{(name, topic or le, "" without either): value}"""
    return {
        (s.name, s.labels.get("topic", s.labels.get("le", ""))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name.startswith("keyorder_")
    }


def free_port() -> int:
    """One that nobody has now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def get(port: int) -> dict[tuple[str, str], float]:
    """A scrape."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
        return scraped(answer.read().decode())


def test_durations_are_counted_by_size() -> None:
    """A bound belongs to the count that it closes; what is longer than all of them has one of its own."""
    found = Durations()
    for seconds in (0.0, BOUNDS[0], 0.006, 1_000.0):
        found.add(seconds)
    assert (found.counts[0], found.counts[1], found.counts[-1]) == (2, 1, 1)
    assert found.total == pytest.approx(1_000.011)


def test_figures_as_families_and_the_page_lists_them_all() -> None:
    """Two consumers of a group have series of their own; a client that is gone has none."""
    times = Durations()
    times.add(0.02)
    times.add(0.2)
    producer = Shown(ProducerFigures("w", {"t": 3}, {"t": 300}, {"t": True}, {"t": 4}, 12.5, times))
    one, two = (
        Shown(ConsumerFigures("g", {"t": n}, {"t": 9.0}, {"t": 5}, {"t": 4}, {"t": 0.5}, {"t": 2}, 7, times))
        for n in (1, 2)
    )
    collector = ClientCollector(producer, one, two)
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    found = scraped(text)
    assert found["keyorder_producer_held_records", "t"] == 3
    assert found["keyorder_producer_lease_left_seconds", ""] == 12.5
    assert (
        found["keyorder_producer_hold_seconds_bucket", "0.025"],
        found["keyorder_producer_hold_seconds_bucket", "+Inf"],
    ) == (1, 2)
    assert found["keyorder_consumer_misplaced_records_total", "t"] == 2
    assert 'keyorder_consumer_gates_closed{client="g-2",topic="t"} 1.0' in text
    assert 'keyorder_consumer_gates_closed{client="g-3",topic="t"} 2.0' in text
    listed = set(re.findall(r"^\| `(keyorder_[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    shown = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name, _ in found}
    assert shown <= listed
    assert {name for name in listed if name.startswith(("keyorder_producer_", "keyorder_consumer_"))} == shown

    collector.remove(two)
    del one
    gc.collect()
    assert 'client="g-' not in generate_latest(registry).decode()


@pytest.mark.slow
def test_a_port_is_shared_and_given_back() -> None:
    """By the clients of a process; with the last of them it is free again, closed or dropped."""
    port = free_port()
    config = {**UNREACHABLE, "keyorder.metrics.port": port}
    consumer = OrderedConsumer({**config, "group.id": "g"})
    producer = OrderedProducer({**config, "keyorder.writer.id": "mine"})
    assert client_serving._shown["127.0.0.1", port].clients == 2
    found = get(port)
    assert found["keyorder_consumer_commits_total", ""] == 0
    assert found["keyorder_producer_lease_left_seconds", ""] == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"keyorder\.metrics\.port"):
            OrderedConsumer({**UNREACHABLE, "group.id": "g", "keyorder.metrics.port": taken.getsockname()[1]})
    consumer.close()
    consumer.close()
    assert "mine" in repr(producer)
    producer.close(0)
    assert ("127.0.0.1", port) not in client_serving._shown
    with pytest.raises(urllib.error.URLError):
        get(port)

    dropped = OrderedConsumer({**config, "group.id": "g"})
    assert get(port)
    del dropped
    until(lambda: not gc.collect() and ("127.0.0.1", port) not in client_serving._shown)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"keyorder.metrics.port": 0}, "keyorder.metrics.port"),
        ({"keyorder.metrics.port": "x"}, "keyorder.metrics.port"),
        ({"keyorder.metrics.port": 65_536}, "keyorder.metrics.port"),
        ({"keyorder.metrics.host": "::1"}, "keyorder.metrics.host"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], named: str) -> None:
    """By both clients."""
    with pytest.raises(ConfigError, match=re.escape(named)):
        OrderedProducer({**UNREACHABLE, **settings})
    with pytest.raises((ConfigError, KafkaException), match=re.escape(named)):
        OrderedConsumer({**UNREACHABLE, "group.id": "g", **settings})


def test_what_clients_show_around_a_change(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Held records while it is prepared, how long they were held, a closed gate until the origin is committed."""
    config, topic = kafka.client_config(), topic_name
    admin = TopicAdmin(config)
    admin.create(topic, 1, config={"keyorder.view.age.ms": "300"})
    moving = next(k for k in (f"k{n}" for n in range(100)) if admin.describe(topic).layout.resized(2).home(k) == 1)
    group = {**config, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    with OrderedProducer(config) as producer, OrderedConsumer(group) as consumer:
        producer.produce(topic, "0", moving)
        producer.flush()
        with prepared(kafka, topic, 2, producer):
            producer.produce(topic, "1", moving)
            figures = producer.figures()
            assert (figures.held[topic], figures.changing[topic]) == (1, True)
            assert figures.lease_left > 0
        until(lambda: producer.figures().held[topic] == 0)
        assert sum(producer.figures().hold_times.counts) == 1
        admin.expand(topic, 2)
        producer.produce(topic, "2", moving)
        producer.flush()
        assert producer.figures().epochs[topic] == admin.timeline(topic).newest.number

        consumer.subscribe([topic])
        read = []
        while len(read) < 2 or consumer.figures().gates[topic] == 0:
            read += [m for m in consumer.consume(10, 0.2) if m.error() is None]
        assert [m.value() for m in read] == [b"0", b"1"]
        assert consumer.figures().view_ages[topic] < 120
        consumer.commit(asynchronous=False)
        while len(read) < 3:
            read += [m for m in consumer.consume(10, 0.2) if m.error() is None]
        figures_after = consumer.figures()
        assert (figures_after.gates[topic], sum(figures_after.gate_times.counts)) == (0, 1)
        assert figures_after.commits >= 1
        assert figures_after.misplaced == {topic: 0}  # there from the start: a rate needs a value before the first one
