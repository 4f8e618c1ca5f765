"""The library's serializers of a schema registry on both clients, with its own registry at `mock://`."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.error import ValueDeserializationError, ValueSerializationError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import StringDeserializer, StringSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.groups import group_config

AVRO = """{"type": "record", "name": "Order",
 "fields": [{"name": "state", "type": "string"}, {"name": "amount", "type": "long"}]}"""
JSON = """{"title": "Order", "type": "object", "required": ["state"],
 "properties": {"state": {"type": "string"}, "amount": {"type": "integer"}}}"""
ORDERS = [{"state": "paid", "amount": 3}, {"state": "sent", "amount": 4}]
KEYS = 4


class Sender(SerializingProducer, OrderedProducer):
    """As docs/works-with.md says."""


class Receiver(DeserializingConsumer, OrderedConsumer):
    """As docs/works-with.md says."""


def avro(registry: Any) -> tuple[Any, Any, list[Any], Any]:
    return AvroSerializer(registry, AVRO), AvroDeserializer(registry), ORDERS, {"state": 1}


def json_schema(registry: Any) -> tuple[Any, Any, list[Any], Any]:
    return (
        JSONSerializer(JSON, registry),
        JSONDeserializer(JSON, schema_registry_client=registry),
        ORDERS,
        {"amount": 1},
    )


def protobuf(registry: Any) -> tuple[Any, Any, list[Any], Any]:
    file = descriptor_pb2.FileDescriptorProto(name="keyorder_order.proto", package="shop", syntax="proto3")
    fields, field = file.message_type.add(name="Order").field, descriptor_pb2.FieldDescriptorProto
    fields.add(name="state", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    fields.add(name="amount", number=2, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    config = {"use.deprecated.format": False}
    to_bytes = ProtobufSerializer(order, registry, config)
    from_bytes = ProtobufDeserializer(order, config, schema_registry_client=registry)
    return to_bytes, from_bytes, [order(**values) for values in ORDERS], "no message"


@pytest.mark.parametrize("form", [avro, json_schema, protobuf], ids=["avro", "json", "protobuf"])
@pytest.mark.parametrize(
    "kinds", [(SerializingProducer, DeserializingConsumer), (Sender, Receiver)], ids=["stock", "ordered"]
)
def test_values_of_a_schema(kinds: tuple[Any, Any], form: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Registered, sent, read back; one that does not fit is refused, and one of another form is an error of the call.

    With ours the topic grows in between: a key's values come in their order, from whichever partition.
    """
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1)
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    to_bytes, from_bytes, values, unfit = form(registry)
    sender = kinds[0]({**kafka.client_config(), "key.serializer": StringSerializer(), "value.serializer": to_bytes})
    with pytest.raises(ValueSerializationError):
        sender.produce(topic_name, key="k0", value=unfit)
    sender.produce(topic_name, key="k0", value=values[0])
    for i in range(1, KEYS):
        sender.produce(topic_name, key=f"k{i}", value=values[0])
    assert sender.flush(120) == 0
    if kinds[0] is Sender:
        admin.expand(topic_name, 2)
    for i in range(KEYS):
        sender.produce(topic_name, key=f"k{i}", value=values[1])
    assert sender.flush(120) == 0
    assert registry.get_subjects() == [f"{topic_name}-value"]
    sender.close()
    receiver = kinds[1](
        {
            **group_config(kafka, topic_name),
            "key.deserializer": StringDeserializer(),
            "value.deserializer": from_bytes,
        }
    )
    receiver.subscribe([topic_name])
    seen: dict[str, list[Any]] = {}
    deadline = clock.now() + 120
    while sum(map(len, seen.values())) < 2 * KEYS:
        assert clock.now() < deadline
        if (message := receiver.poll(0.2)) is not None:
            seen.setdefault(message.key(), []).append(message.value())
    assert seen == {f"k{i}": values for i in range(KEYS)}
    plain = (
        SerializingProducer(kafka.client_config())
        if kinds[0] is SerializingProducer
        else OrderedProducer(kafka.client_config())
    )
    plain.produce(topic_name, key=b"k0", value=b"of no schema")
    assert plain.flush(120) == 0
    plain.close()
    with pytest.raises(ValueDeserializationError):
        receiver.poll(120)
    receiver.close()
