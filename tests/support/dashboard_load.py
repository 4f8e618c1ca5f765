"""What a controller, a producer and consumers say of themselves through two growths under load, scraped by HTTP."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from prometheus_client.parser import text_string_to_metric_families
from support.promql import NAME, Scrape, Vector

TOPIC, SECONDS, INTERVAL = "orders", 120, 2
# The rate is more than the policy allows for 4 partitions from the second step on, and for 8 from the third on.
STEPS = ((0, 200), (30, 600), (75, 1100))
# A group that is behind keeps the gates of the first growth closed for a while.
SLOW_UNTIL = 65
# A producer that does not know the layout writes to the topic, so that the panel of misplaced records has something to show.
FOREIGN = (90, 105)
POLICY = """
max_records_per_s = 120
min_records_per_s = 1
sample_s = 3
hot_window_s = 3
cooldown_after_growth_s = 10
"""


def scrapes(config: dict[str, Any], folder: Path) -> list[Scrape]:
    """One each INTERVAL seconds, of both targets. folder: for the policy."""
    with TopicAdmin(config) as admin:
        admin.create(TOPIC, 4)
    port = _free_port()
    clients = {**config, "keyorder.metrics.port": port}
    ended = threading.Event()
    began = clock.now()

    def since() -> float:
        return clock.now() - began

    with ExitStack() as stack:
        controller = stack.enter_context(_controller(config, folder))
        producer = stack.enter_context(OrderedProducer({**clients, "keyorder.writer.id": "checkout-1"}))
        work: list[Callable[[], None]] = [
            lambda: _write(producer, since, ended),
            lambda: _foreign(config, since, ended),
        ]
        for group, commit_ms, slow in (("shipping", 1_000, 0), ("billing", 3_000, SLOW_UNTIL)):
            settings = {"group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": commit_ms}
            consumer = stack.enter_context(OrderedConsumer({**clients, **settings}))
            work.append(partial(_read, consumer, slow, since, ended))
        threads = [threading.Thread(target=each) for each in work]
        for thread in threads:
            thread.start()
        found = []
        try:
            while since() < SECONDS:
                time.sleep(INTERVAL)
                found.append(Scrape(clock.wall_ms() / 1000, {**_scraped(controller), **_scraped(port)}))
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    return found


@contextmanager
def _controller(config: dict[str, Any], folder: Path) -> Iterator[int]:
    """The port of a real one that scales by the policy."""
    policy, port = folder / "policy.toml", _free_port()
    policy.write_text(POLICY)
    words = ["controller", "--bootstrap-server", config["bootstrap.servers"], "--metrics-port", str(port)]
    words += ["--autoscale", str(policy), "--apply", "--output", "json"]
    with subprocess.Popen([sys.executable, "-m", "keyorder", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            while json.loads(process.stdout.readline())["event"] != "started":
                pass
            events = threading.Thread(target=process.stdout.read)  # it would stop at a full pipe
            events.start()
            try:
                yield port
            finally:
                process.send_signal(signal.SIGTERM)
                events.join()
        finally:
            process.kill()


def _write(producer: OrderedProducer, since: Callable[[], float], ended: threading.Event) -> None:
    number = 0
    while not ended.wait(0.02):
        rate = max(rate for begin, rate in STEPS if since() >= begin)
        for _ in range(rate // 50):
            number += 1
            producer.produce(TOPIC, f"order {number}", f"customer {number % 500}")
        producer.poll(0)
    producer.flush()


def _foreign(config: dict[str, Any], since: Callable[[], float], ended: threading.Event) -> None:
    """Four records a second by a stock producer with another partitioner."""
    producer, number = Producer(config), 0
    while not ended.wait(0.25):
        if FOREIGN[0] <= since() < FOREIGN[1]:
            number += 1
            producer.produce(TOPIC, f"order {number}", f"customer {number % 500}")
            producer.flush()


def _read(consumer: OrderedConsumer, slow: float, since: Callable[[], float], ended: threading.Event) -> None:
    """slow: until when it takes half a second for a hundred records."""
    consumer.subscribe([TOPIC])
    while not ended.wait(0.5 if since() < slow else 0.01):
        consumer.consume(100, 0.5)


def _scraped(port: int) -> Vector:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        frozenset({**sample.labels, NAME: sample.name}.items()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
