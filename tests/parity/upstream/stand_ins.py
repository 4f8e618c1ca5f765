"""What a rewritten program of confluent-kafka's imports as its clients: the library's, or ours with KEYORDER_STAND_INS=ours.

A client that names no broker, or one of the names below, which nobody answers to, is given the broker of BROKERS.
"""

from __future__ import annotations

import os
from typing import Any

import confluent_kafka
import confluent_kafka.aio
import confluent_kafka.avro

_OURS = os.environ.get("KEYORDER_STAND_INS") == "ours"
_NOWHERE = (None, "", "localhost", "localhost:9092", "test")
_BROKERS = os.environ.get("BROKERS", "")


def _given(config: dict[str, Any]) -> dict[str, Any]:
    named = config.get("bootstrap.servers", config.get("metadata.broker.list"))
    return {**config, "bootstrap.servers": _BROKERS} if _BROKERS and named in _NOWHERE else config


def _with_broker(base: type, name: str) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if args and isinstance(args[0], dict):
            if "bootstrap.servers" not in kwargs:
                args = (_given(args[0]), *args[1:])
        elif isinstance(kwargs.get("config"), dict):
            kwargs["config"] = _given(kwargs["config"])
        elif not args and not isinstance(kwargs.get("conf"), str):
            kwargs = _given(kwargs)
        base.__init__(self, *args, **kwargs)  # type: ignore[misc]

    return type(name, (base,), {"__init__": __init__, "__module__": base.__module__})


if _OURS:
    from keyorder import OrderedConsumer, OrderedProducer
    from keyorder.aio import AIOConsumer as _AIOConsumer
    from keyorder.aio import AIOProducer as _AIOProducer

    _producer: Any = OrderedProducer
    _consumer: Any = OrderedConsumer
    _serializing: Any = type("SerializingProducer", (confluent_kafka.SerializingProducer, _producer), {})
    _deserializing: Any = type("DeserializingConsumer", (confluent_kafka.DeserializingConsumer, OrderedConsumer), {})
    _avro_producer: Any = type("AvroProducer", (confluent_kafka.avro.AvroProducer, _producer), {})
    _avro_consumer: Any = type("AvroConsumer", (confluent_kafka.avro.AvroConsumer, OrderedConsumer), {})
else:
    _producer, _consumer = confluent_kafka.Producer, confluent_kafka.Consumer
    _serializing, _deserializing = confluent_kafka.SerializingProducer, confluent_kafka.DeserializingConsumer
    _avro_producer, _avro_consumer = confluent_kafka.avro.AvroProducer, confluent_kafka.avro.AvroConsumer
    _AIOProducer, _AIOConsumer = confluent_kafka.aio.AIOProducer, confluent_kafka.aio.AIOConsumer  # type: ignore[misc,assignment]

Producer = _with_broker(_producer, "Producer")
Consumer = _with_broker(_consumer, "Consumer")
SerializingProducer = _with_broker(_serializing, "SerializingProducer")
DeserializingConsumer = _with_broker(_deserializing, "DeserializingConsumer")
AvroProducer = _with_broker(_avro_producer, "AvroProducer")
AvroConsumer = _with_broker(_avro_consumer, "AvroConsumer")
AIOProducer = _with_broker(_AIOProducer, "AIOProducer")
AIOConsumer = _with_broker(_AIOConsumer, "AIOConsumer")
