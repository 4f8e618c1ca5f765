"""What P1 to P5 share: the rows, topics that hold them, and a raw client's way of doing the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not re-exported
from keyorder import TopicAdmin
from keyorder.connector.log_offsets import LogOffsets

from .harness.bench import Bench
from .load import key_of

PARTITIONS, VALUE = 4, 100
# On the grown topic some keys have moved: their records carry a hint.
GROWN_FROM = 3


def rows(count: int) -> tuple[list[bytes], list[bytes]]:
    """Keys of 16 bytes and values of 100, each an object of its own, as an application has them."""
    pad = b"v" * (VALUE - 8)
    return [key_of(n % 100_000) for n in range(count)], [b"%08d" % n + pad for n in range(count)]


def columns(count: int) -> Any:
    """The same rows as a pyarrow.RecordBatch."""
    import pyarrow as pa

    keys, values = rows(count)
    return pa.RecordBatch.from_pydict({"key": keys, "value": values})


def make_unmanaged(bench: Bench, name: str) -> str:
    """A topic as Kafka makes it, of which keyorder has heard nothing."""
    topic = bench.topic(name)
    admin = AdminClient(bench.config)  # kept: one that is collected answers nothing
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return topic


def make(bench: Bench, name: str, grown: bool = False) -> str:
    """A managed topic that has never changed, or one that has grown once."""
    topic = bench.topic(name)
    admin = TopicAdmin(bench.config)
    admin.create(topic, GROWN_FROM if grown else PARTITIONS)
    if grown:
        admin.expand(topic, PARTITIONS)
    return topic


def ends(bench: Bench, topic: str) -> dict[int, int]:
    """The end of every partition."""
    offsets = LogOffsets(bench.config)
    found = offsets.high_watermarks([(topic, p) for p in range(PARTITIONS)])
    offsets.close()
    return {p: end for (_, p), end in found.items()}


def producer_settings() -> dict[str, Any]:
    """What both producers of a pair get: room for all, so that the queue and not the broker is what is measured first."""
    return {
        "linger.ms": 50,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
        "batch.num.messages": 10_000,
        "enable.idempotence": True,
    }


def raw_producer(bench: Bench) -> Producer:
    """The library's own producer, with Java's partitioner."""
    return Producer({**bench.config, **producer_settings(), "partitioner": "murmur2_random"})


def send_all(produce: Callable[..., None], poll: Callable[[float], int], topic: str, data: Any, **more: Any) -> None:
    """One call per record, as an application has it: delivery reports are served on the way."""
    for number, (key, value) in enumerate(zip(*data, strict=True)):
        produce(topic, value, key, **more)
        if not number % 100:
            poll(0)


class Delivered:
    """A delivery callback that counts, as an application has to that wants to know."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: object, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"not delivered: {error}")
        self.count += 1


def raw_consumer(bench: Bench, topic: str) -> Consumer:
    """The library's own consumer of all partitions from their beginning, with the one fetch setting that ours has."""
    settings = {"group.id": topic + "-raw", "enable.auto.commit": False, "fetch.queue.backoff.ms": 20}
    consumer = Consumer({**bench.config, **settings})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    return consumer
