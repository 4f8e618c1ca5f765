"""OpenTelemetry's instrumentation of confluent-kafka, of stock clients and of ours: the same spans, one trace from end to end."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.groups import group_config

pytest.importorskip("opentelemetry.instrumentation.confluent_kafka", reason="needs the extra `parity`")
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

BOTH = pytest.mark.parametrize(
    "kinds", [(Producer, Consumer), (OrderedProducer, OrderedConsumer)], ids=["stock", "ordered"]
)


@BOTH
@pytest.mark.parametrize("call", ["poll", "consume"])
def test_spans(kinds: tuple[Any, Any], kafka: KafkaUnderTest, topic_name: str, call: str) -> None:
    """What instrument_producer and instrument_consumer are given may be ours."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    instrument = ConfluentKafkaInstrumentor()
    producer = instrument.instrument_producer(kinds[0](kafka.client_config()), provider)
    for n in range(2):
        producer.produce(topic_name, str(n), key="k", headers=[("mine", b"1")])
    assert producer.flush(120) == 0
    assert producer.poll(0) == 0
    consumer = instrument.instrument_consumer(kinds[1](group_config(kafka, topic_name)), provider)
    consumer.subscribe([topic_name])
    seen: list[Any] = []
    deadline = clock.now() + 120
    while len(seen) < 2:
        assert clock.now() < deadline
        if call == "poll":
            message = consumer.poll(0.2)
            seen += [] if message is None else [message]
        else:
            seen += consumer.consume(2 - len(seen), 0.2)
    consumer.close()
    original = instrument.uninstrument_producer(producer)
    assert isinstance(original, kinds[0])
    original.close()
    assert isinstance(instrument.uninstrument_consumer(consumer), kinds[1])

    assert [message.value() for message in seen] == [b"0", b"1"]
    assert [[name for name, _ in message.headers()] for message in seen] == [["mine", "traceparent"]] * 2
    ended = spans.get_finished_spans()
    sent = [span for span in ended if span.name == f"{topic_name} send"]
    processed = [span for span in ended if span.name == f"{topic_name} process"]
    assert len(sent) == 2
    assert {span.attributes["messaging.destination"] for span in (*sent, *processed)} == {topic_name}
    for message, span in zip(seen, sent, strict=True):
        parent = dict(message.headers())["traceparent"].decode()
        assert parent.split("-")[2] == f"{span.context.span_id:016x}"
    linked = {link.context.span_id for span in processed for link in span.links}
    assert linked == {span.context.span_id for span in sent}
