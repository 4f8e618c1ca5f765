"""Converters: what goes in comes out, and what does not fit is refused."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, time, timezone
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.connect import DataError, Field, Header, Headers, RetriableError, Schema
from keyorder.connector.connect.api.schema import DATE, TIME, TIMESTAMP, FrozenDict, decimal_schema
from keyorder.connector.connect.converters.avro import AvroConverter
from keyorder.connector.connect.converters.base import ByteArrayConverter, Converter, StringConverter
from keyorder.connector.connect.converters.headers import SimpleHeaderConverter
from keyorder.connector.connect.converters.json import JsonConverter
from keyorder.connector.connect.converters.json_schema import JsonSchemaConverter, schema_of
from keyorder.partitioner.errors import ConfigError
from support.connect_values import Values

PERSON = Schema(
    "struct",
    name="Person",
    fields=(
        Field("name", Schema("string")),
        Field("age", Schema("int32", optional=True)),
        Field("photo", Schema("bytes", optional=True)),
        Field("scores", Schema("array", values=Schema("float64"))),
        Field("tags", Schema("map", keys=Schema("string"), values=Schema("boolean"))),
    ),
)
BOB = {"name": "Bob", "age": None, "photo": b"\x00\xff", "scores": [1.5], "tags": {"a": True}}


def made(kind: type[Converter], is_key: bool = False, **config: str) -> Converter:
    converter = kind()
    converter.configure({name.replace("_", "."): value for name, value in config.items()}, is_key)
    return converter


def test_json_with_schemas_round_trips() -> None:
    """Connect's envelope, bytes as base64, nulls where they are optional."""
    converter = made(JsonConverter)
    data = converter.from_connect("t", PERSON, BOB)
    assert data is not None
    document = json.loads(data)
    assert document["schema"]["fields"][0] == {"type": "string", "optional": False, "field": "name"}
    assert document["payload"]["photo"] == "AP8="
    assert converter.to_connect("t", data) == (PERSON, BOB)


def test_json_without_schemas_is_plain() -> None:
    """As it stands, tombstones included."""
    converter = made(JsonConverter, schemas_enable="false")
    assert converter.from_connect("t", None, {"a": [1, None]}) == b'{"a":[1,null]}'
    assert converter.to_connect("t", b'{"a":1}') == (None, {"a": 1})
    assert converter.from_connect("t", None, None) is None
    assert converter.to_connect("t", None) == (None, None)


@pytest.mark.parametrize(
    "data", [b"{", b'{"a":1}', b"\xff", b'{"schema":{"type":"int32"},"payload":"x"}', b'{"schema":{},"payload":1}']
)
def test_json_refuses_what_is_not_its_envelope(data: bytes) -> None:
    """With a DataError, never another one."""
    with pytest.raises(DataError):
        made(JsonConverter).to_connect("t", data)


@pytest.mark.parametrize("value", [{"name": 1}, {"name": None}, "x", {**BOB, "age": True}, {**BOB, "scores": ["x"]}])
def test_a_value_that_does_not_fit_its_schema_is_refused(value: Any) -> None:
    """The place is named."""
    with pytest.raises(DataError, match="value"):
        made(JsonConverter).from_connect("t", PERSON, value)


def test_strings_and_bytes() -> None:
    """As they are; text that is none is refused."""
    assert made(StringConverter).to_connect("t", "ä".encode())[1] == "ä"
    assert made(StringConverter).from_connect("t", None, 5) == b"5"
    assert made(ByteArrayConverter).from_connect("t", None, b"x") == b"x"
    with pytest.raises(DataError):
        made(StringConverter).to_connect("t", b"\xff")
    with pytest.raises(DataError):
        made(ByteArrayConverter).from_connect("t", None, "x")


@pytest.mark.parametrize(
    ("encoding", "text", "data"),
    [
        ("UTF-16", "a", b"\xfe\xff\x00a"),
        ("UTF-16", "", b""),
        ("UTF-32", "a", b"\x00\x00\x00a"),
        ("UTF-32", "", b""),
    ],
)
def test_sets_that_leave_the_order_of_bytes_open_are_java_s(encoding: str, text: str, data: bytes) -> None:
    """Written with the high byte first, a mark only before text of UTF-16; read in either order behind a mark."""
    one = made(StringConverter, converter_encoding=encoding)
    assert one.from_connect("t", None, text) == data
    assert one.to_connect("t", data)[1] == text
    assert one.to_connect("t", text.encode(encoding))[1] == text  # in this machine's order


def test_avro_with_a_schema_in_the_settings_round_trips() -> None:
    """And refuses what does not fit, and bytes left behind."""
    schema = {
        "type": "record",
        "name": "P",
        "fields": [{"name": "n", "type": ["null", "long"]}, {"name": "s", "type": "string"}],
    }
    converter = made(AvroConverter, schema=json.dumps(schema))
    data = converter.from_connect("t", None, {"n": 5, "s": "x"})
    assert data is not None
    found, value = converter.to_connect("t", data)
    assert value == {"n": 5, "s": "x"}
    assert found is not None
    assert [(f.name, f.schema.type, f.schema.optional) for f in found.fields] == [
        ("n", "int64", True),
        ("s", "string", False),
    ]
    for wrong in (data + b"x", data[:-1]):
        with pytest.raises(DataError):
            converter.to_connect("t", wrong)
    with pytest.raises(DataError):
        converter.from_connect("t", None, {"n": "x"})
    with pytest.raises(ConfigError):
        made(AvroConverter)


@pytest.fixture
def registry() -> Iterator[str]:
    """The three calls of a schema registry over HTTP, kept in memory."""
    schemas: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = int(self.path.rpartition("/")[2])
            self._answer(
                *((200, {"schema": schemas[number - 1]}) if number <= len(schemas) else (404, {"message": "no"}))
            )

        def do_POST(self) -> None:
            text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
            if text not in schemas:
                schemas.append(text)
            self._answer(200, {"id": schemas.index(text) + 1})

        def _answer(self, code: int, document: dict[str, Any]) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_avro_with_a_registry_writes_confluent_s_wire_format(registry: str) -> None:
    """Magic byte, id, value; a second converter reads it by the id alone."""
    writer = made(AvroConverter, schema_registry_url=registry)
    data = writer.from_connect("t", PERSON, BOB)
    assert data is not None
    assert data[:5] == b"\x00\x00\x00\x00\x01"
    found, value = made(AvroConverter, schema_registry_url=registry).to_connect("t", data)
    assert value == BOB
    assert found is not None
    assert [f.name for f in found.fields] == [f.name for f in PERSON.fields]
    for wrong in (b"\x01aaaa", b"\x00\x00\x00\x00\x63x"):
        with pytest.raises(DataError):
            made(AvroConverter, schema_registry_url=registry).to_connect("t", wrong)


def test_avro_keeps_every_schema_and_value(registry: str) -> None:
    """Logical types, small integers, maps with any key, defaults, names: through a registry and back."""
    writer, reader = (made(AvroConverter, schema_registry_url=registry) for _ in range(2))
    values, compared = Values(21), 0
    for _ in range(150):
        schema = values.schema()
        value = values.value(schema)
        try:
            data = writer.from_connect("t", schema, value)
        except DataError:
            continue  # two records of one name: Avro has no such schema
        if data is not None:
            compared += 1
            found, read = reader.to_connect("t", data)
            assert found is not None
            assert (without_lists(found), read) == (without_lists(schema), filled(schema, value))
    assert compared > 100


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_json_schema_keeps_every_schema_and_value(registry: str, decimals: str) -> None:
    """Logical types, maps with any key, defaults, the order of fields: through a registry and back."""
    config = {"schema_registry_url": registry, "decimal_format": decimals}
    writer, reader = (made(JsonSchemaConverter, **config) for _ in range(2))
    values = Values(31)
    for _ in range(100):
        schema = values.schema()
        value = values.value(schema)
        data = writer.from_connect("t", schema, value)
        if data is None:
            continue
        found, read = reader.to_connect("t", data)
        assert found is not None
        assert (without_lists(found), read) == (without_lists(schema), filled(schema, value))


def test_json_schemas_of_other_writers_are_read() -> None:
    """Without Connect's own properties: what is not required is optional; what Connect has no type for is refused."""
    document = {
        "type": "object",
        "title": "Order",
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["id", "tags"],
    }
    schema = schema_of(document)
    assert [(f.name, f.schema.type, f.schema.optional) for f in schema.fields] == [
        ("id", "int64", False),
        ("note", "string", True),
        ("tags", "array", False),
        ("prices", "map", True),
    ]
    for wrong in ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"$ref": "#/x"}, {"type": "object"}, True):
        with pytest.raises(DataError):
            schema_of(wrong)


def without_lists(schema: Schema) -> Schema:
    """Without the defaults of arrays, in which nulls are filled as in values."""
    return replace(
        schema,
        default=None if schema.type == "array" else schema.default,
        fields=tuple(Field(f.name, without_lists(f.schema)) for f in schema.fields),
        keys=None if schema.keys is None else without_lists(schema.keys),
        values=None if schema.values is None else without_lists(schema.values),
    )


def filled(schema: Schema, value: Any) -> Any:
    """Nulls as their defaults: Avro has no third state."""
    if value is None:
        return schema.default
    if schema.type == "struct":
        return {f.name: filled(f.schema, value.get(f.name)) for f in schema.fields}
    if schema.type == "array":
        assert schema.values is not None
        return [filled(schema.values, item) for item in value]
    if schema.type == "map":
        assert schema.values is not None
        return {k: filled(schema.values, item) for k, item in value.items()}
    return value


@pytest.mark.parametrize(
    ("avro", "written", "kind", "value"),
    [
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("1.25"),
            "bytes",
            Decimal("1.25"),
        ),
        (
            {"type": "fixed", "size": 4, "name": "F", "logicalType": "decimal", "precision": 9, "scale": 1},
            Decimal("-2.5"),
            "bytes",
            Decimal("-2.5"),
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), "int32", date(2026, 1, 2)),
        ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4000), "int32", time(1, 2, 3, 4000)),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1_000_001, "int64", 1_000_001),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "string", "B"),
        (["null", "int", "string"], 5, "struct", {"int": 5, "string": None}),
        (["null", "int", "string"], "x", "struct", {"int": None, "string": "x"}),
        (["null", "string"], None, "string", None),
    ],
)
def test_avro_of_other_writers_is_read_by_its_logical_types(avro: Any, written: Any, kind: str, value: Any) -> None:
    """Those that Connect has; all else as the plain type; a union of several types as a struct with one field set."""
    document = {"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "f", "type": avro}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(document))), {"f": written})
    converter = made(AvroConverter, schema=json.dumps(document))
    schema, found = converter.to_connect("t", out.getvalue())
    assert schema is not None
    assert (schema.name, schema.fields[0].schema.type, found) == ("n.R", kind, {"f": value})
    if not isinstance(avro, dict) or avro["type"] != "fixed":
        assert converter.to_connect("t", converter.from_connect("t", schema, found)) == (schema, found)


def test_a_registry_that_is_away_is_worth_another_try() -> None:
    """A RetriableError, so that errors.retry.* applies."""
    with pytest.raises(RetriableError):
        made(AvroConverter, schema_registry_url="http://127.0.0.1:9").from_connect("t", None, 5)


@given(st.lists(st.tuples(st.text(min_size=1), st.none() | st.binary())))
def test_headers_that_were_copied_stay_as_they_were(pairs: list[tuple[str, bytes | None]]) -> None:
    """Bytes without a schema, and bytes that are no text: order, duplicates and every byte stay."""
    converter = SimpleHeaderConverter()
    assert converter.to_kafka(Headers(Header(key, data) for key, data in pairs)) == pairs
    no_text = [(key, b"\xff" + (data or b"")) for key, data in pairs]
    assert converter.to_kafka(converter.to_connect(no_text)) == no_text


def test_simple_headers_are_read_by_their_look() -> None:
    """Numbers, booleans, maps, text; and written back as text."""
    converter = SimpleHeaderConverter()
    pairs = [("i", b"42"), ("f", b"1.5"), ("b", b"true"), ("m", b'{"a":1}'), ("s", b"007"), ("n", None)]
    found = converter.to_connect(pairs)
    assert [h.value for h in found] == [42, 1.5, True, {"a": 1}, 7, None]
    assert [None if h.schema is None else h.schema.type for h in found][:3] == ["int8", "float32", "boolean"]
    assert converter.to_kafka(Headers().add("x", [1, 2])) == [("x", b"[1,2]")]


def test_logical_types_are_python_s() -> None:
    """Decimal, date, time and datetime; what does not fit is refused."""
    fields = {"d": decimal_schema(2), "day": DATE, "at": TIME, "when": TIMESTAMP}
    schema = Schema("struct", fields=tuple(Field(name, each) for name, each in fields.items()))
    value = {
        "d": Decimal("-1.5"),
        "day": date(2026, 11, 22),
        "at": time(1, 2, 3, 4000),
        "when": datetime(2026, 11, 22, 1, 2, 3, 4000, timezone.utc),
    }
    converter = made(JsonConverter)
    data = converter.from_connect("t", schema, value)
    assert data is not None
    assert json.loads(data)["payload"] == {"d": "/2o=", "day": 20779, "at": 3723004, "when": 1795309323004}
    assert converter.to_connect("t", data) == (schema, value)
    for wrong in (
        {"d": Decimal("0.123")},
        {"d": 1.5},
        {"day": value["when"]},
        {"when": datetime(2026, 1, 1)},
        {"at": 5},
    ):
        with pytest.raises(DataError, match=next(iter(wrong))):
            converter.from_connect("t", schema, {**value, **wrong})


def test_maps_with_any_keys_travel() -> None:
    """Numbers, lists and structs as keys: an array of pairs, as in the JVM."""
    key = Schema("struct", fields=(Field("a", Schema("int32")),))
    converter = made(JsonConverter)
    for keys, value in (
        (Schema("int32"), {1: "x", 2: "y"}),
        (Schema("array", values=Schema("string")), {("a", "b"): "x"}),
        (key, {FrozenDict({"a": 1}): "x", FrozenDict({"a": 2}): "y"}),
    ):
        schema = Schema("map", keys=keys, values=Schema("string"))
        data = converter.from_connect("t", schema, value)
        assert data is not None
        assert converter.to_connect("t", data) == (schema, value)
