"""A stateful Quix Streams application: counts per key, kept in a changelog topic, stopped and started again with its state lost.

Run as `quix.py BOOTSTRAP TOPIC stock|ordered FOLDER`. Prints the counts that it published, as JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import Producer as Stock
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from quixstreams import Application
from quixstreams.kafka import consumer as their_consumer
from quixstreams.kafka import producer as their_producer

bootstrap, topic, kind, folder = sys.argv[1:]
KEYS, EACH = 4, 5
if kind == "ordered":
    their_consumer.ConfluentConsumer, their_producer.ConfluentProducer = OrderedConsumer, OrderedProducer  # type: ignore[misc]


def send(numbers: range) -> None:
    """One record of each key per number."""
    sender = (
        OrderedProducer({"bootstrap.servers": bootstrap})
        if kind == "ordered"
        else Stock({"bootstrap.servers": bootstrap})
    )
    for n in numbers:
        for key in range(KEYS):
            sender.produce(topic, json.dumps(n), f"k{key}")
    assert sender.flush(120) == 0
    sender.close()


def run(guarantee: str) -> None:
    """Until everything that was sent is counted."""
    app = Application(
        broker_address=bootstrap,
        consumer_group=f"{topic}.group",
        auto_offset_reset="earliest",
        state_dir=folder,
        processing_guarantee=guarantee,  # type: ignore[arg-type]
        loglevel="WARNING",
    )
    frame = app.dataframe(app.topic(topic, value_deserializer="json"))

    def count(value: Any, state: Any) -> int:
        total = int(state.get("count", 0)) + 1
        state.set("count", total)
        return total

    frame = frame.apply(count, stateful=True).to_topic(app.topic(f"{topic}.out", value_serializer="json"))
    app.run(count=KEYS * EACH, timeout=180)


admin = TopicAdmin({"bootstrap.servers": bootstrap})
for name in (topic, f"{topic}.out"):
    admin.create(name, 2)
send(range(EACH))
run("at-least-once")
shutil.rmtree(folder, ignore_errors=True)
send(range(EACH, 2 * EACH))
run("exactly-once")

reader = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}.check", "auto.offset.reset": "earliest"})
reader.subscribe([f"{topic}.out"])
counts: dict[str, list[int]] = {}
seen = 0
while seen < 2 * KEYS * EACH:
    message = reader.poll(60)
    assert message is not None, counts
    assert message.error() is None
    key, value = message.key(), message.value()
    assert key is not None
    assert value is not None
    counts.setdefault(key.decode(), []).append(json.loads(value))
    seen += 1
reader.close()
print(json.dumps(counts))
