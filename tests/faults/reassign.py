"""Moves replicas and leaders of partitions, which the client library cannot ask for."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping, Sequence

from faults.cluster import PATIENCE, FaultyCluster
from keyorder.connector import clock

Place = tuple[str, int]
_ELECT_LEADERS, _ALTER_PARTITION_REASSIGNMENTS = 43, 45


def replicas(kafka: FaultyCluster, topic: str) -> dict[Place, list[int]]:
    """The replicas of each partition of a topic, the preferred leader first."""
    found = kafka.admin().list_topics(topic, timeout=120).topics[topic].partitions
    return {(topic, p): list(each.replicas) for p, each in found.items()}


def reassign(kafka: FaultyCluster, wanted: Mapping[Place, Sequence[int]]) -> None:
    """Give partitions these replicas; returns when they have them."""
    _ask(kafka, wanted)
    deadline = clock.now() + PATIENCE
    for topic in {topic for topic, _ in wanted}:
        while True:
            now = replicas(kafka, topic)
            if all(now[place] == list(each) for place, each in wanted.items() if place[0] == topic):
                break
            assert clock.now() < deadline, (now, wanted)
            time.sleep(0.1)


def _ask(kafka: FaultyCluster, wanted: Mapping[Place, Sequence[int]]) -> None:
    """One AlterPartitionReassignments request, version 0, to any broker: it passes it on to the controller."""
    body = struct.pack(">i", 60_000) + _count(len({topic for topic, _ in wanted}))
    for topic in sorted({topic for topic, _ in wanted}):
        own = [(partition, each) for (name, partition), each in wanted.items() if name == topic]
        body += _text(topic) + _count(len(own))
        for partition, each in own:
            body += struct.pack(">i", partition) + _count(len(each)) + struct.pack(f">{len(each)}i", *each) + b"\0"
        body += b"\0"
    _send(kafka, _ALTER_PARTITION_REASSIGNMENTS, 0, body + b"\0")


def _prefer(kafka: FaultyCluster, topic: str, partitions: Sequence[int]) -> None:
    """One ElectLeaders request, version 2: the first replica of each partition becomes its leader."""
    body = b"\0" + _count(1) + _text(topic) + _count(len(partitions)) + struct.pack(f">{len(partitions)}i", *partitions)
    _send(kafka, _ELECT_LEADERS, 2, body + b"\0" + struct.pack(">i", 60_000) + b"\0")


def _send(kafka: FaultyCluster, api: int, version: int, body: bytes) -> None:
    """A request whose answer begins with a throttle time and an error."""
    name = b"reassign"
    message = struct.pack(">hhih", api, version, 1, len(name)) + name + b"\0" + body
    host, _, port = kafka.bootstrap_servers.split(",")[0].partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(struct.pack(">i", len(message)) + message)
        answer = b""
        while len(answer) < 15:  # length, correlation id, no tags, throttle time, error
            more = connection.recv(1 << 16)
            assert more, "the broker has hung up"
            answer += more
    (error,) = struct.unpack_from(">h", answer, 13)
    assert error == 0, f"request {api}: error {error}"


def _text(text: str) -> bytes:
    return _count(len(text)) + text.encode()


def _count(items: int) -> bytes:
    """A length as Kafka's flexible versions write it: one more than it is, as a varint."""
    rest, out = items + 1, b""
    while rest >= 0x80:
        out += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return out + bytes([rest])


def rotate(kafka: FaultyCluster, topic: str, only: int | None = None) -> None:
    """Each partition's next replica becomes its leader. only: one partition."""
    turned = {
        place: each[1:] + each[:1] for place, each in replicas(kafka, topic).items() if only is None or place[1] == only
    }
    reassign(kafka, turned)
    _prefer(kafka, topic, [partition for _, partition in turned])


def lead_elsewhere(kafka: FaultyCluster, topic: str, broker: int) -> None:
    """Let others than this broker lead all partitions of a topic."""
    turned = {p: [*(b for b in each if b != broker), broker] for p, each in replicas(kafka, topic).items()}
    reassign(kafka, turned)
    _prefer(kafka, topic, [partition for _, partition in turned])
