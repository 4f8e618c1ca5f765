"""Bytes of any producer in converters, and a worker's own file after somebody else's editor: a value, or the typed error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from keyorder.connector.connect import DataError
from keyorder.connector.connect.converters.avro import AvroConverter
from keyorder.connector.connect.converters.headers import SimpleHeaderConverter
from keyorder.connector.connect.converters.json import JsonConverter
from keyorder.connector.connect.converters.protobuf import decoded
from keyorder.connector.connect.converters.protobuf_schemas import parsed
from keyorder.connector.connect.runtime.offsets import FileOffsetStore
from keyorder.partitioner.errors import ConfigError
from support.mutations import refused

pytestmark = pytest.mark.slow  # hundreds of examples for each reader

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "state", "type": ["null", "string"]},
        {"name": "amount", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "lines", "type": {"type": "array", "items": "double"}},
        {"name": "facts", "type": {"type": "map", "values": "bytes"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  string state = 1; int64 amount = 2; Kind kind = 3; repeated double lines = 4; map<string, Order> facts = 5;
  google.protobuf.Timestamp at = 6; Order inner = 7; repeated int32 numbers = 8; bytes raw = 9; bool flag = 10;
}
enum Kind { A = 0; B = 1; }
"""
TYPES = ["int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"]
NAMES = [
    "org.apache.kafka.connect.data.Date",
    "org.apache.kafka.connect.data.Timestamp",
    "org.apache.kafka.connect.data.Decimal",
]
PLAIN: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=4), st.just("AA==")
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(TYPES)},
        optional={
            "optional": st.booleans() | PLAIN,
            "name": st.sampled_from(NAMES) | PLAIN,
            "version": PLAIN,
            "default": VALUES,
            "parameters": st.dictionaries(
                st.sampled_from(["scale", "x"]), st.text("0123456789-", max_size=4), max_size=2
            ),
        },
    )
    | VALUES,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"type": st.just("map"), "keys": inner, "values": inner}),
        st.fixed_dictionaries(
            {"type": st.just("struct"), "fields": st.lists(inner, max_size=2) | VALUES}, optional={"default": VALUES}
        ),
    ),
    max_leaves=4,
)
ENVELOPES = st.fixed_dictionaries({"schema": SCHEMAS, "payload": VALUES})
DEEP = b"[" * 100_000


def json_bytes(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """JSON, some of it cut off, and any bytes."""
    whole = documents.map(lambda document: json.dumps(document).encode())
    return st.one_of(
        whole, st.tuples(whole, st.integers(0, 60)).map(lambda pair: pair[0][: pair[1]]), st.binary(max_size=20)
    )


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=80))
@example(b"")
@example(b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a")
@example(b"\x00\x00\x7f")
def test_avro(data: bytes) -> None:
    """A record that no writer of this schema has made."""
    converter = AvroConverter()
    converter.configure({"schema": json.dumps(AVRO)}, False)
    refused(lambda: converter.to_connect("t", data), DataError)


@settings(deadline=None, max_examples=400)
@given(json_bytes(ENVELOPES | VALUES), st.booleans())
@example(DEEP, False)
@example(b'{"schema":null,"payload":' + DEEP, True)
def test_json(data: bytes, schemas: bool) -> None:
    """With and without schemas."""
    converter = JsonConverter()
    converter.configure({"schemas.enable": str(schemas).lower()}, False)
    refused(lambda: converter.to_connect("t", data), DataError)


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=40))
@example(bytes([0x3A, 0x7F]))
@example(b"\x32\x0b\x08" + b"\xff" * 9 + b"\x01")
def test_protobuf(data: bytes) -> None:
    """A message that no writer of this schema has made."""
    file = parsed(PROTO)
    refused(lambda: decoded(file, file.messages[0], data), DataError)


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=30) | st.text('{}[]",:0123456789.-+eE\\ntrufalse', max_size=30).map(str.encode))
@example(b"[" * 20_000)
@example(b'{"a":' * 20_000)
@example(b"9" * 5_000)
@example(b"1e999999999")
def test_headers(data: bytes) -> None:
    """Whatever they look like, they have some value."""
    assert SimpleHeaderConverter().from_bytes("k", data).key == "k"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    json_bytes(
        st.dictionaries(st.sampled_from(['["c",{"p":1}]', '["c"]', "[", "{}", "1"]), VALUES, max_size=2) | VALUES
    )
)
@example(DEEP)
@example(b"\xff")
@example(b"[]")
@example(b'{"x":{}}')
@example(b'{"[\\"c\\",{}]":1}')
def test_the_file_of_source_offsets(tmp_path: Path, data: bytes) -> None:
    """It can be used, or ConfigError names the setting; it is never half of it."""
    path = tmp_path / "offsets.json"
    path.write_bytes(data)
    named: list[str] = []
    try:
        store = FileOffsetStore(path)
    except ConfigError as error:
        named.append(error.setting)
    else:
        assert all(isinstance(offset, dict) for _, offset in store.of("c"))
        assert store.offset("c", {"none": True}) is None
    assert named in ([], ["offset.storage.file.filename"])


@pytest.mark.parametrize(
    ("data", "whole"), [(b"", True), (b"{}", True), (b'{"[\\"c\\",{\\"p\\":1}]":{"o":2}}', True), (b"{", False)]
)
def test_a_file_that_is_ours(tmp_path: Path, data: bytes, whole: bool) -> None:
    """The test above would hold of a reader that refuses everything."""
    path = tmp_path / "offsets.json"
    if data:
        path.write_bytes(data)
    if whole:
        assert FileOffsetStore(path).of("c") == ([({"p": 1}, {"o": 2})] if b"p" in data else [])
    else:
        with pytest.raises(ConfigError):
            FileOffsetStore(path)
