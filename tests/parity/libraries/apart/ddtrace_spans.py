"""Datadog's tracing of Kafka clients, in the way of `ddtrace-run`: patched before anything else is imported.

Run as `ddtrace_spans.py BOOTSTRAP TOPIC stock|ordered`. Prints the spans as JSON: [name, resource kind, partition, tombstone].
"""

# ruff: noqa: E402  # what is imported when is what is tested
from __future__ import annotations

import json
import os
import sys

os.environ |= {
    "DD_TRACE_STARTUP_LOGS": "false",
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_KAFKA_EMPTY_POLL_ENABLED": "false",
}
bootstrap, topic, kind = sys.argv[1:]
import ddtrace
from ddtrace.trace import TraceFilter, tracer

spans = []


class Note(TraceFilter):
    """Keeps spans, and sends none to an agent."""

    def process_trace(self, trace):  # type: ignore[no-untyped-def]
        spans.extend(trace)


tracer.configure(trace_processors=[Note()])
ddtrace.patch(kafka=True)

import confluent_kafka
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin

made = confluent_kafka.Producer, confluent_kafka.Consumer
Producer, Consumer = (OrderedProducer, OrderedConsumer) if kind == "ordered" else made
TopicAdmin({"bootstrap.servers": bootstrap}).create(topic, 1)
producer = Producer({"bootstrap.servers": bootstrap})
for value in (b"a", None):
    producer.produce(topic, value, key=b"k")
assert producer.flush(120) == 0
producer.close()
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
seen = []
while len(seen) < 2:
    message = consumer.poll(60)
    assert message is not None
    assert message.error() is None
    seen.append(message.value())
consumer.close()
assert seen == [b"a", None]
print(json.dumps([[span.name, span.get_tag("kafka.topic"), span.get_tag("kafka.tombstone")] for span in spans]))
