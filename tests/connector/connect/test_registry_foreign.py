"""What a schema registry may answer, and schemas that others have registered: a value, or the typed error."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from keyorder.connector.connect.api.errors import ConnectError, DataError
from keyorder.connector.connect.api.schema import decimal_schema, decode_logical, encode_logical
from keyorder.connector.connect.converters.avro import AvroConverter
from keyorder.connector.connect.converters.base import Converter
from keyorder.connector.connect.converters.json_schema import JsonSchemaConverter
from keyorder.connector.connect.converters.protobuf import ProtobufConverter
from support.mutations import DEEP, JSON, bytes_of, changed, mutated, refused, texts

IN_A_REGISTRY = b"\x00\x00\x00\x00\x07"
NEARLY = settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))

DECIMAL = {"type": "number", "title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes",
           "connect.parameters": {"scale": "2"}, "connect.version": 1}  # fmt: skip
PAIR = {"key": {"type": "integer", "connect.index": 0}, "value": {"type": "string", "connect.index": 1}}
OBJECT = {
    "type": "object",
    "title": "Order",
    "connect.version": 1,
    "description": "d",
    "required": ["n"],
    "properties": {
        "n": {"type": "integer", "connect.type": "int32", "connect.index": 0, "default": 3},
        "d": {"oneOf": [{"type": "null"}, DECIMAL], "connect.index": 1},
        "l": {"type": "array", "items": {"type": ["null", "string"]}, "connect.index": 2},
        "m": {"type": "object", "connect.type": "map", "additionalProperties": {"type": "boolean"}, "connect.index": 3},
        "p": {
            "type": "array",
            "connect.type": "map",
            "items": {"type": "object", "properties": PAIR},
            "connect.index": 4,
        },
    },
}
VALUE = {"n": 1, "d": 1.25, "l": ["a", None], "m": {"k": True}, "p": [{"key": 1, "value": "x"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "n.s",
    "connect.version": 2,
    "fields": [
        {"name": "state", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": {"type": "long", "connect.type": "int64", "connect.default": 4}, "default": 4},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "A"},
        {"name": "lines", "type": {"type": "array", "items": "double"}, "default": [1.0]},
        {"name": "facts", "type": {"type": "map", "values": "bytes"}, "default": {"a": "b"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
PROTO = """syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
message Order {
  string state = 1; int64 amount = 2; Kind kind = 3; repeated double lines = 4; map<string, Line> facts = 5;
  google.protobuf.Timestamp at = 6; Line inner = 7; oneof one { bytes raw = 9; bool flag = 10; }
  message Line { optional int32 n = 1; }
}
enum Kind { A = 0; B = 0x1; }
"""


class Registry(ThreadingHTTPServer):
    """Gives every request the same bytes."""

    answer = b""
    status = 200

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has gone: its test says why."""


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing is told."""


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry that says what the test wants."""
    server = Registry(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def converter(kind: type[Converter], registry: Registry, answer: str | bytes, status: int = 200) -> Any:
    """A new converter, which has asked for nothing yet."""
    made = kind()
    made.configure({"schema.registry.url": f"http://127.0.0.1:{registry.server_address[1]}"}, False)
    registry.answer = answer if isinstance(answer, bytes) else answer.encode("utf-8", "surrogatepass")
    registry.status = status
    return made


def with_schema(kind: type[Converter], registry: Registry, schema: str) -> Any:
    """A converter whose registry has this text under every id."""
    return converter(kind, registry, json.dumps({"schema": schema}))


ANSWERS = mutated({"schema": json.dumps("string"), "id": 7}, {"id": "7"}, {"schema": '{"type": "string"}'})


@pytest.mark.slow
@NEARLY
@given(
    answer=bytes_of(texts(ANSWERS | JSON)),
    status=st.sampled_from([200, 200, 200, 204, 404, 500]),
    kind=st.sampled_from([AvroConverter, JsonSchemaConverter, ProtobufConverter]),
)
@example(answer=DEEP.encode(), status=200, kind=AvroConverter)
@example(answer=b"[]", status=200, kind=AvroConverter)
@example(answer=b'{"schema": 5}', status=200, kind=JsonSchemaConverter)
@example(answer=b"<html>", status=200, kind=ProtobufConverter)
@example(answer=b'{"id": true}', status=200, kind=JsonSchemaConverter)
@example(answer=b'{"id": 4294967296}', status=200, kind=AvroConverter)
@example(answer=b'{"id": -1}', status=200, kind=AvroConverter)
def test_an_answer(registry: Registry, answer: bytes, status: int, kind: type[Converter]) -> None:
    """Of a registry, or of what stands where one should."""
    from keyorder.connector.connect import Field, Schema

    reading, writing = converter(kind, registry, answer, status), converter(kind, registry, answer, status)
    refused(lambda: reading.to_connect("t", IN_A_REGISTRY + b"\x00\x02a"), ConnectError)
    schema = Schema("struct", fields=(Field("a", Schema("string")),))
    refused(lambda: writing.from_connect("t", schema, {"a": "x"}), ConnectError)


@pytest.mark.slow
@NEARLY
@given(text=texts(mutated(OBJECT, DECIMAL, PAIR["key"], {"type": "string"}) | JSON), value=texts(mutated(VALUE) | JSON))
@example(text=json.dumps({"type": "integer"}), value="1e999999999")
@example(text=json.dumps({"type": "integer", "connect.type": "int32"}), value="-1e999999999")
@example(text=json.dumps({"oneOf": 5}), value="1")
@example(text=json.dumps({"type": "object", "connect.type": "map"}), value="{}")
@example(text=json.dumps({"type": "array", "connect.type": "map", "items": {}}), value="[]")
@example(text='{"type":"array","items":' * 20_000, value="[]")
@example(text='{"type":"array","items":' * 900 + '{"type":"string"}' + "}" * 900, value="[" * 900 + "]" * 900)
def test_a_json_schema(registry: Registry, text: str, value: str) -> None:
    """Registered by anybody, and a record that may not be of it."""
    reading = with_schema(JsonSchemaConverter, registry, text)
    refused(lambda: reading.to_connect("t", IN_A_REGISTRY + value.encode("utf-8", "surrogatepass")), DataError)


@pytest.mark.slow
@NEARLY
@given(
    text=texts(mutated(AVRO, "string", ["null", "long"], {"type": "map", "values": "int"}) | JSON),
    data=st.binary(max_size=40),
)
@example(text='["null",' * 20_000, data=b"")
@example(text='{"type":"array","items":' * 400 + '"string"' + "}" * 400, data=b"\x02" * 400 + b"\x00" * 400)
@example(text=json.dumps({"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}), data=b"")
def test_an_avro_schema(registry: Registry, text: str, data: bytes) -> None:
    """Registered by anybody, and a record that may not be of it."""
    reading = with_schema(AvroConverter, registry, text)
    refused(lambda: reading.to_connect("t", IN_A_REGISTRY + data), DataError)


@pytest.mark.slow
@NEARLY
@given(text=changed(PROTO) | st.text(max_size=30), data=st.binary(max_size=40))
@example(text='syntax = "proto3";' + "message A {" * 20_000, data=b"")
@example(text='syntax = "proto3";' + "message A {" * 400 + "}" * 400, data=b"\x02" + b"\x00" * 30)
@example(text='syntax = "proto3"; message A { map<string, map> m = 1; }', data=b"\x00\x0a\x00")
@example(text='syntax = "proto3"; message A { map<string, int32> m = ' + "9" * 5000 + "; }", data=b"\x00")
def test_a_protobuf_schema(registry: Registry, text: str, data: bytes) -> None:
    """Registered by anybody, and a record that may not be of it."""
    reading = with_schema(ProtobufConverter, registry, text)
    refused(lambda: reading.to_connect("t", IN_A_REGISTRY + data), DataError)


def test_what_is_right_is_read(registry: Registry) -> None:
    """The tests above would hold of converters that refuse everything."""
    reading = with_schema(JsonSchemaConverter, registry, json.dumps(OBJECT))
    _, value = reading.to_connect("t", IN_A_REGISTRY + json.dumps(VALUE).encode())
    assert (value["n"], value["l"], value["p"]) == (1, ["a", None], {1: "x"})
    reading = with_schema(AvroConverter, registry, json.dumps("string"))
    assert reading.to_connect("t", IN_A_REGISTRY + b"\x02a")[1] == "a"
    reading = with_schema(ProtobufConverter, registry, PROTO)
    assert reading.to_connect("t", IN_A_REGISTRY + b"\x00\x0a\x01x")[1]["state"] == "x"


@pytest.mark.parametrize("raw", [b"\x01" + b"\x00" * 4000, b"\xff" + b"\x01" * 4000])
def test_a_decimal_of_thousands_of_digits_is_exact(raw: bytes) -> None:
    """Python refuses such a number as text, not as a number."""
    schema = decimal_schema(3)
    assert encode_logical(schema, decode_logical(schema, raw)) == raw


@pytest.mark.parametrize(("value", "scale"), [("1e999999999", 2), ("1", 2**31 - 1), ("1e-999999999", 2), ("1", 2**31)])
def test_a_short_text_makes_no_huge_number(value: str, scale: int) -> None:
    """It would take all memory."""
    with pytest.raises(DataError):
        encode_logical(decimal_schema(scale), Decimal(value))
