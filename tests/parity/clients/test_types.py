"""OrderedProducer is a Producer and OrderedConsumer a Consumer: for isinstance, for type checkers, and as a base class."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import pytest
from confluent_kafka import Consumer, DeserializingConsumer, Producer, SerializingProducer
from confluent_kafka.serialization import StringDeserializer, StringSerializer
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.groups import group_config

PAIRS = pytest.mark.parametrize(("ours", "theirs"), [(OrderedProducer, Producer), (OrderedConsumer, Consumer)])
UNREACHABLE = {"bootstrap.servers": "localhost:1", "group.id": "g", "log_level": 0}


@PAIRS
def test_every_method_is_overridden(ours: type, theirs: type) -> None:
    """One that were inherited would work on a client that was never made."""
    assert issubclass(ours, theirs)
    for name in vars(theirs):
        if name not in ("__new__", "__doc__"):
            owner = next(base for base in ours.__mro__ if name in vars(base))
            assert owner is not theirs, name


@pytest.mark.parametrize(
    "call", [OrderedProducer.produce, OrderedConsumer.poll, OrderedConsumer.given], ids=["produce", "poll", "given"]
)
def test_what_a_record_needs_is_read_from_slots(call: Any) -> None:
    """An attribute in the dict is slower to read, for a class whose base is not laid out as Python's own."""
    ours = OrderedProducer if call is OrderedProducer.produce else OrderedConsumer
    code, known = call.__code__, set(vars(sys.modules[ours.__module__]))
    private = {name for name in code.co_names if name.startswith("_")} - known
    assert private
    assert {name for name in private if not hasattr(ours, name)} == set()


@PAIRS
def test_one_that_nobody_has_any_more_is_freed(ours: type, theirs: type) -> None:
    """The base's memory too, which holds no client."""
    config = {name: value for name, value in UNREACHABLE.items() if ours is OrderedConsumer or name != "group.id"}
    made = ours(config)
    assert isinstance(made, theirs)
    gone = weakref.ref(made)
    made.close()
    del made
    gc.collect()
    assert gone() is None


REPLACED = """
import confluent_kafka
plain = confluent_kafka.Producer, confluent_kafka.Consumer
confluent_kafka.Producer, confluent_kafka.Consumer = (type("Traced", (kind,), {}) for kind in plain)
import keyorder
assert issubclass(keyorder.OrderedProducer, plain[0]) and issubclass(keyorder.OrderedConsumer, plain[1])
producer = keyorder.OrderedProducer({"bootstrap.servers": "localhost:1", "log_level": 0})
assert type(producer._raw).__name__ == "Traced"
producer.close()
"""


def test_a_library_that_replaced_the_clients_before_ours_were_imported() -> None:
    """As tracing libraries do: what works for ours is the replaced client, and ours are still of the library's types."""
    done = subprocess.run([sys.executable, "-I", "-c", REPLACED], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


class Sender(SerializingProducer, OrderedProducer):
    """Serializers for an ordered producer."""


class Receiver(DeserializingConsumer, OrderedConsumer):
    """Deserializers for an ordered consumer."""


@pytest.mark.parametrize(
    "kinds", [(SerializingProducer, DeserializingConsumer), (Sender, Receiver)], ids=["stock", "ordered"]
)
def test_serializers_by_inheritance(kinds: tuple[Any, Any], kafka: KafkaUnderTest, topic_name: str) -> None:
    """The library's own classes in front of ours: keys and values are converted; a batch's are not, in either."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    sender = kinds[0](
        {**kafka.client_config(), "key.serializer": StringSerializer(), "value.serializer": StringSerializer("utf_16")}
    )
    told: list[Any] = []
    sender.produce(
        topic_name, key="k", value="ä", on_delivery=lambda error, message: told.append((error, message.key()))
    )
    assert sender.produce_batch(topic_name, [{"key": b"b", "value": "ö".encode("utf_16")}]) == 1
    assert sender.flush(120) == 0
    sender.close()
    assert told == [(None, b"k")]
    receiver = kinds[1](
        {
            **group_config(kafka, topic_name),
            "key.deserializer": StringDeserializer(),
            "value.deserializer": StringDeserializer("utf_16"),
        }
    )
    receiver.subscribe([topic_name])
    seen: list[Any] = []
    deadline = clock.now() + 120
    while len(seen) < 2:
        assert clock.now() < deadline
        if (message := receiver.poll(0.2)) is not None:
            seen.append((message.key(), message.value()))
    with pytest.raises(NotImplementedError):
        receiver.consume(1, 0.1)
    receiver.close()
    assert seen == [("k", "ä"), ("b", "ö")]
