"""A judge process: reads one topic end to end and gives the checker all that the clients recorded of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from ...partitioner.routing import HINT_HEADER, parse_hint
from ..admin import TopicAdmin
from ..config import connection_of
from ..messages import offset_of, place_of
from ..verify.history import load
from ..verify.topology import Epoch, Topology
from ..verify.truth import Row
from ..verify.verdict import judge, judge_stock
from .latency import gate_openings, hand_overs
from .series import count_series
from .worker import Line

_EXAMPLES = 20
_STEP = 0.5


def main() -> None:
    """One side's verdict, as facts on the line."""
    line = Line()
    spec = line.spec
    connection = connection_of({"bootstrap.servers": spec["bootstrap_servers"], "client.id": spec["name"]})
    history = load(spec["files"])
    log = list(read_log(connection, spec["topic"], spec["partitions"]))
    facts: dict[str, Any] = {}
    if spec["side"] == "keyorder":
        topology = topology_of(connection, spec["topic"])
        verdict = judge(history, log, topology)
        moved = hand_overs(history, topology)
        facts["hand_overs"] = [[m.epoch, m.milliseconds, m.waited] for m in moved]
        facts["gates"] = [[g.epoch, g.milliseconds, g.waited] for g in gate_openings(history, topology)]
    else:
        verdict = judge_stock(history, log)
    found = verdict.as_dict()
    found["anomalies"] = found["anomalies"][:_EXAMPLES]
    series = count_series(history, spec["start"], _STEP)
    line.tell(verdict=found, summary=verdict.summary(), series=series.as_dict(), **facts)


def read_log(connection: dict[str, Any], topic: str, partitions: int) -> Iterator[Row]:
    """Every committed record of every partition, as the checker takes it."""
    consumer = Consumer(
        {
            **connection,
            "group.id": "keyorder-demo-judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        reading = set(range(partitions))
        while reading:
            for message in consumer.consume(2_000, 1.0):
                error = message.error()
                if error is None:
                    key, value = message.key(), message.value()
                    yield place_of(message)[1], offset_of(message), _bytes(key), _bytes(value), _hint(message.headers())
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(place_of(message)[1])
                else:
                    raise RuntimeError(f"cannot read {topic}: {error.name()}: {error.str()}")
    finally:
        consumer.close()


def topology_of(connection: dict[str, Any], topic: str) -> Topology:
    """The topic's committed epochs, from the control topic."""
    timeline = TopicAdmin(connection).timeline(topic)
    epochs = [Epoch(e.number, e.count, dict(e.ends), dict(e.begins)) for e in timeline.epochs]
    return Topology(timeline.initial, epochs, timeline.hash)


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _hint(headers: Any) -> int | None:
    for name, value in headers or ():
        if name == HINT_HEADER:
            return parse_hint(value)
    return None


if __name__ == "__main__":
    main()
