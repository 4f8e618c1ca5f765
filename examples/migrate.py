"""Copies a topic that no hash explains into a managed one, in each key's order, while its producers write and consumers read.

    keyorder connect distributed worker.properties &
    python examples/migrate.py localhost:9092 orders orders-v2 8 http://localhost:8083

docs/connect-migrate.md has the worker's properties, and says what to do with the consumers. A key's records have to lie in one
partition of the old topic, as every partitioner by key ensures. The old topic's producers must not be transactional: their
markers count as offsets that are never copied.
"""

from __future__ import annotations

import sys
import time

import requests
from confluent_kafka import Consumer, TopicPartition
from keyorder import TopicAdmin
from requests.adapters import HTTPAdapter, Retry


def main(servers: str, old: str, new: str, partitions: str, worker: str) -> None:
    """Given again, it goes on where it was."""
    with TopicAdmin({"bootstrap.servers": servers}) as admin:
        if admin.managed(new) is None:
            admin.create(new, int(partitions))
    connect = requests.Session()  # 409: a rebalance is under way; 500: a broker did not answer in time. Ask again
    retries = Retry(60, status_forcelist=[409, 500], allowed_methods=None, backoff_factor=0.2, backoff_max=2)
    connect.mount("http://", HTTPAdapter(max_retries=retries))
    url = f"{worker}/connectors/{old}-to-{new}"
    bytes_as_they_are = dict.fromkeys(("key.converter", "value.converter", "header.converter"), "ByteArrayConverter")
    mirror = {
        "connector.class": "Mirror",
        "tasks.max": "1",
        "exactly.once.support": "required",
        "source.bootstrap.servers": servers,
        "source.topic": old,
        "target.topic": new,
        **bytes_as_they_are,
    }
    connect.put(f"{url}/config", json=mirror).raise_for_status()
    print(f"{old} is being copied to {new}. Let your consumers read {new} in a new group.")
    while (left := behind(servers, old, connect, url)) > 1000:
        print(f"{left} records to copy")
        time.sleep(1)
    input(f"{left} records to copy. Hold all producers of {old}, wait for their acknowledgements, press Enter. ")
    while left := behind(servers, old, connect, url):
        print(f"{left} records to copy")
        time.sleep(0.1)
    connect.put(f"{url}/stop").raise_for_status()
    connect.delete(url).raise_for_status()
    print(f"Done. Go on with OrderedProducers that write to {new}.")


def behind(servers: str, old: str, connect: requests.Session, url: str) -> int:
    """How many records of the old topic are not in the new one yet."""
    reader = Consumer({"bootstrap.servers": servers, "group.id": "migration-look"})
    partitions = reader.list_topics(old, timeout=60).topics[old].partitions
    ends = {p: reader.get_watermark_offsets(TopicPartition(old, p), timeout=60) for p in partitions}
    reader.close()
    answer = connect.get(f"{url}/offsets")
    answer.raise_for_status()
    copied = {entry["partition"]["partition"]: entry["offset"]["offset"] for entry in answer.json()["offsets"]}
    return sum(high - max(copied.get(p, 0), low) for p, (low, high) in ends.items())


if __name__ == "__main__":
    main(*sys.argv[1:6])
