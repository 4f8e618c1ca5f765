"""AvroConverter with a real schema registry, beside a client that knows nothing of it."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import httpx
import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect import DataError, Field, Schema
from keyorder.connector.connect.converters.avro import AvroConverter
from support.cluster import KafkaUnderTest
from support.connect_rig import MemorySink, alone, until, worker_settings
from support.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.long

ORDER = Schema("struct", name="Order", fields=(Field("state", Schema("string")), Field("amount", Schema("int64"))))
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "state", "type": "string"}, {"name": "amount", "type": "long"}],
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL."""
    server = SchemaRegistryServer(tmp_path_factory.mktemp("registry"))
    yield server.url
    server.stop()


def converter(registry: str, **more: str) -> AvroConverter:
    made = AvroConverter()
    made.configure({"schema.registry.url": registry, **{n.replace("_", "."): v for n, v in more.items()}}, is_key=False)
    return made


def written(registry: str, topic: str, value: dict[str, Any]) -> bytes:
    """As any other client writes it: the schema registered below the topic's subject, magic byte, id, Avro."""
    answer = httpx.post(f"{registry}/subjects/{topic}-value/versions", json={"schema": json.dumps(AVRO)})
    out = io.BytesIO(b"\x00" + struct.pack(">I", answer.json()["id"]))
    out.seek(5)
    fastavro.schemaless_writer(out, AVRO, value)
    return out.getvalue()


def test_what_one_wrote_the_other_reads(registry: str, topic_name: str) -> None:
    """Both ways; and what is registered once is found again without registering."""
    theirs = written(registry, topic_name, {"state": "new", "amount": 7})
    schema, value = converter(registry).to_connect(topic_name, theirs)
    assert value == {"state": "new", "amount": 7}
    assert schema is not None
    assert [(field.name, field.schema.type) for field in schema.fields] == [("state", "string"), ("amount", "int64")]

    ours = converter(registry).from_connect(topic_name, schema, {"state": "paid", "amount": 8})
    assert ours is not None
    number = struct.unpack(">I", ours[1:5])[0]
    found = json.loads(httpx.get(f"{registry}/schemas/ids/{number}").json()["schema"])
    assert fastavro.schemaless_reader(io.BytesIO(ours[5:]), found, None) == {"state": "paid", "amount": 8}
    assert converter(registry, auto_register_schemas="false").from_connect(topic_name, schema, value) is not None
    assert f"{topic_name}-value" in httpx.get(f"{registry}/subjects").json()


def test_what_the_registry_refuses_is_an_error_of_the_data(registry: str, topic_name: str) -> None:
    """An id that nobody gave; a schema that may not be registered; one that does not follow from the last."""
    with pytest.raises(DataError, match="404"):
        converter(registry).to_connect(topic_name, b"\x00\x7f\xff\xff\xffx")
    with pytest.raises(DataError, match="404"):
        converter(registry, auto_register_schemas="false").from_connect(topic_name, ORDER, {"state": "", "amount": 1})
    assert converter(registry).from_connect(topic_name, ORDER, {"state": "", "amount": 1})
    put = httpx.put(f"{registry}/config/{topic_name}-value", json={"compatibility": "BACKWARD"})
    assert put.status_code == 200, put.text
    other = Schema("struct", name="Order", fields=(Field("state", Schema("int32")),))
    with pytest.raises(DataError, match="409"):
        converter(registry).from_connect(topic_name, other, {"state": 1})


def test_a_sink_reads_what_another_client_wrote(
    kafka: KafkaUnderTest, registry: str, topic_name: str, tmp_path: Path
) -> None:
    """Through Kafka: each record as data, its schema known."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    with OrderedProducer(kafka.client_config()) as producer:
        for number in range(20):
            producer.produce(
                topic_name, written(registry, topic_name, {"state": "new", "amount": number}), f"k{number % 5}"
            )
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(
            topic_name,
            {
                "connector.class": "MemorySink",
                "topics": topic_name,
                "value.converter": "AvroConverter",
                "value.converter.schema.registry.url": registry,
            },
        )
        until(lambda: len(MemorySink.values(topic_name)) == 20, lambda: str(worker.status(topic_name)))
    for k in range(5):
        assert [value["amount"] for value in MemorySink.values(topic_name, f"k{k}")] == list(range(k, 20, 5))
