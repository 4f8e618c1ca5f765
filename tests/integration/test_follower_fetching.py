"""Consumers that read from the replica in their own rack (KIP-392), which lags behind the leader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.local.cluster import LocalCluster
from support.connect_rig import until

pytestmark = pytest.mark.kafka
KEYS = 40


@pytest.fixture(scope="module")
def racks() -> Iterator[LocalCluster]:
    """Three brokers, each in a rack of its own, whose followers answer who is in theirs."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

    def each(_: Any, node: Any) -> dict[str, str]:
        return {"broker.rack": f"rack-{node.id}", "replica.selector.class": selector}

    with LocalCluster(brokers=3, node_properties=each) as cluster:
        yield cluster


@pytest.mark.parametrize("gate", ["partition", pytest.param("key", marks=pytest.mark.nightly)])
def test_keys_stay_in_order_when_each_member_reads_from_its_rack(
    racks: LocalCluster, topic_name: str, gate: str
) -> None:
    """Three members, each of another rack, while the topic grows and shrinks: each key's records come in order, none is lost."""
    config = racks.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 2, replication_factor=3)
    changed, complete = threading.Event(), threading.Event()
    sent = [0] * KEYS
    seen: dict[bytes | None, list[int]] = {}
    lock = threading.Lock()

    def send() -> None:
        with OrderedProducer(config) as producer:
            for n in count():
                if changed.is_set():
                    return
                producer.produce(topic_name, str(n // KEYS), str(n % KEYS))
                sent[n % KEYS] += 1
                producer.poll(0.001)

    def read(rack: int) -> None:
        more = {"group.id": topic_name, "auto.offset.reset": "earliest", "client.rack": f"rack-{rack}"}
        with OrderedConsumer({**config, **more, "keyorder.gate": gate}) as consumer:
            consumer.subscribe([topic_name])
            while not complete.is_set():
                for message in consumer.consume(500, 0.2):
                    with lock:
                        seen.setdefault(message.key(), []).append(int(message.value() or 0))

    def everything() -> bool:
        with lock:
            return all(set(seen.get(str(key).encode(), ())) == set(range(sent[key])) for key in range(KEYS))

    threads = [threading.Thread(target=send), *(threading.Thread(target=read, args=(rack,)) for rack in (1, 2, 3))]
    for thread in threads:
        thread.start()
    try:
        for wanted in (3, 5, 4, 2, 3):
            change = admin.expand if wanted > admin.describe(topic_name).layout.count else admin.shrink
            change(topic_name, wanted)
        changed.set()
        threads[0].join()
        until(everything, lambda: f"{sum(map(len, seen.values()))} of {sum(sent)} records", 300)
    finally:
        changed.set()
        complete.set()
        for thread in threads:
            thread.join()
    for found in seen.values():
        first = list(dict.fromkeys(found))  # a rebalance may give records again
        assert first == sorted(first)
