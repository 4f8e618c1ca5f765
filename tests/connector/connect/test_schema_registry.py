"""Avro, Protobuf and JSON Schema with a real schema registry, beside clients that know nothing of our converters."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import httpx
import jsonschema
import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect import DataError, Field, Schema
from keyorder.connector.connect.api.schema import DATE, TIME, TIMESTAMP, decimal_schema
from keyorder.connector.connect.converters.avro import AvroConverter
from keyorder.connector.connect.converters.json_schema import JsonSchemaConverter
from keyorder.connector.connect.converters.protobuf import ProtobufConverter
from support.cluster import KafkaUnderTest
from support.connect_rig import MemorySink, alone, until, worker_settings
from support.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.nightly
HTTP = httpx.Client(timeout=120)  # a registry that has just begun is slow on a busy machine

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
    answer = HTTP.post(f"{registry}/subjects/{topic}-value/versions", json={"schema": json.dumps(AVRO)})
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
    found = json.loads(HTTP.get(f"{registry}/schemas/ids/{number}").json()["schema"])
    assert fastavro.schemaless_reader(io.BytesIO(ours[5:]), found, None) == {"state": "paid", "amount": 8}
    assert converter(registry, auto_register_schemas="false").from_connect(topic_name, schema, value) is not None
    assert f"{topic_name}-value" in HTTP.get(f"{registry}/subjects").json()


def test_protobuf_through_the_registry(registry: str, topic_name: str) -> None:
    """Logical types and nested messages, both ways; a schema that another client registered, its second message."""
    made = ProtobufConverter()
    made.configure({"schema.registry.url": registry}, is_key=False)
    line = Schema(
        "struct", name="Line", fields=(Field("text", Schema("string")), Field("count", Schema("int32", True)))
    )
    schema = Schema(
        "struct",
        name="shop.Order",
        fields=(
            Field("id", Schema("int64")),
            Field("at", replace(TIMESTAMP, optional=True)),
            Field("day", replace(DATE, optional=True)),
            Field("lines", Schema("array", values=line)),
            Field("stock", Schema("map", keys=Schema("string"), values=Schema("float64"))),
        ),
    )
    value = {
        "id": -5,
        "at": datetime(2020, 2, 3, 4, 5, 6, 789000, timezone.utc),
        "day": date(1999, 12, 31),
        "lines": [{"text": "ä", "count": None}, {"text": "", "count": 0}],
        "stock": {"x": 1.5},
    }
    data = made.from_connect(topic_name, schema, value)
    assert data is not None
    found_schema, found = made.to_connect(topic_name, data)
    assert found == value
    assert found_schema is not None
    assert [(f.name, f.schema.type, f.schema.name) for f in found_schema.fields][1:3] == [
        ("at", "int64", TIMESTAMP.name),
        ("day", "int32", DATE.name),
    ]
    text = 'syntax = "proto3"; message A { int32 x = 1; } message B { enum E { NO = 0; YES = 1; } E e = 1; repeated E more = 2; }'
    body = {"schema": text, "schemaType": "PROTOBUF"}
    answer = HTTP.post(f"{registry}/subjects/{topic_name}-other-value/versions", json=body)
    assert answer.is_success, answer.text
    theirs = b"\x00" + struct.pack(">I", answer.json()["id"]) + b"\x02\x02" + b"\x08\x01\x12\x02\x01\x00"
    assert made.to_connect(topic_name, theirs)[1] == {"e": "YES", "more": ["YES", "NO"]}


def json_converter(registry: str, **more: str) -> JsonSchemaConverter:
    made = JsonSchemaConverter()
    made.configure({"schema.registry.url": registry, **{n.replace("_", "."): v for n, v in more.items()}}, is_key=False)
    return made


@pytest.mark.parametrize(("decimals", "price"), [("BASE64", "MDk="), ("NUMERIC", 123.45)])
def test_json_schema_through_the_registry(registry: str, topic_name: str, decimals: str, price: object) -> None:
    """Logical types, defaults, optional fields, structs, maps with any key: another converter reads them by the id alone."""
    line = Schema(
        "struct", name="Line", fields=(Field("text", Schema("string")), Field("count", Schema("int16", True)))
    )
    schema = Schema(
        "struct",
        name="shop.Order",
        version=3,
        fields=(
            Field("id", Schema("int64")),
            Field("price", decimal_schema(2)),
            Field("at", replace(TIMESTAMP, optional=True)),
            Field("day", DATE),
            Field("hour", replace(TIME, optional=True)),
            Field("state", Schema("string", default="new")),
            Field("lines", Schema("array", values=line)),
            Field("stock", Schema("map", keys=Schema("int32"), values=Schema("float64"))),
        ),
    )
    value = {
        "id": -5,
        "price": Decimal("123.45"),
        "at": datetime(2020, 2, 3, 4, 5, 6, 789000, timezone.utc),
        "day": date(1999, 12, 31),
        "hour": None,
        "state": "paid",
        "lines": [{"text": "ä", "count": None}, {"text": "", "count": 0}],
        "stock": {7: 1.5},
    }
    data = json_converter(registry, decimal_format=decimals).from_connect(topic_name, schema, value)
    assert data is not None
    plain = json.loads(data[5:])
    assert (plain["price"], plain["day"], plain["at"]) == (price, 10956, 1580702706789)
    assert plain["stock"] == [{"key": 7, "value": 1.5}]
    number = struct.unpack(">I", data[1:5])[0]
    answer = HTTP.get(f"{registry}/schemas/ids/{number}").json()
    assert answer["schemaType"] == "JSON"
    # As any JSON Schema tool reads it: the value is valid, another one is not. (A Decimal is a number for the schema, whatever
    # decimal.format writes: so it is in Confluent's.)
    validator = jsonschema.Draft7Validator(json.loads(answer["schema"]))
    assert list(validator.iter_errors({**plain, "price": 123.45})) == []
    assert list(validator.iter_errors({**plain, "price": 123.45, "id": "five"})) != []
    found_schema, found = json_converter(registry, decimal_format=decimals).to_connect(topic_name, data)
    assert (found_schema, found) == (schema, value)


def test_json_schema_of_another_client_is_read(registry: str, topic_name: str) -> None:
    """Registered by hand, without a property of Connect; what follows from the last schema may be written, the rest not."""
    text = json.dumps(
        {
            "type": "object",
            "title": "Order",
            "properties": {"id": {"type": "integer"}, "note": {"oneOf": [{"type": "null"}, {"type": "string"}]}},
            "required": ["id"],
        }
    )
    body = {"schema": text, "schemaType": "JSON"}
    answer = HTTP.post(f"{registry}/subjects/{topic_name}-value/versions", json=body)
    assert answer.is_success, answer.text
    theirs = b"\x00" + struct.pack(">I", answer.json()["id"]) + b'{"id": 9007199254740993, "note": null}'
    schema, value = json_converter(registry).to_connect(topic_name, theirs)
    assert value == {"id": 9007199254740993, "note": None}
    assert schema is not None
    assert [(f.name, f.schema.type, f.schema.optional) for f in schema.fields] == [
        ("id", "int64", False),
        ("note", "string", True),
    ]
    with pytest.raises(DataError, match="404"):
        json_converter(registry, auto_register_schemas="false").from_connect(
            f"{topic_name}-none", ORDER, {"state": "", "amount": 1}
        )


def test_what_the_registry_refuses_is_an_error_of_the_data(registry: str, topic_name: str) -> None:
    """An id that nobody gave; a schema that may not be registered; one that does not follow from the last."""
    with pytest.raises(DataError, match="404"):
        converter(registry).to_connect(topic_name, b"\x00\x7f\xff\xff\xffx")
    with pytest.raises(DataError, match="404"):
        converter(registry, auto_register_schemas="false").from_connect(topic_name, ORDER, {"state": "", "amount": 1})
    assert converter(registry).from_connect(topic_name, ORDER, {"state": "", "amount": 1})
    put = HTTP.put(f"{registry}/config/{topic_name}-value", json={"compatibility": "BACKWARD"})
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
