"""Protobuf's bytes beside Google's own library, and what of .proto files is read, written, refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import date, datetime, time, timezone
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.connect import DataError, Field, Schema
from keyorder.connector.connect.api.schema import DATE, TIME, TIMESTAMP, decimal_schema
from keyorder.connector.connect.converters.protobuf import decoded, encoded
from keyorder.connector.connect.converters.protobuf_schemas import SCALARS, parsed, proto_of, schema_of

F = descriptor_pb2.FieldDescriptorProto
KINDS = list(SCALARS)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), INT32),
    **dict.fromkeys(("uint32", "fixed32"), st.integers(0, 2**32 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), INT64),
    **dict.fromkeys(("uint64", "fixed64"), st.integers(0, 2**63 - 1)),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(),
    "bytes": st.binary(),
}


def google() -> Any:
    """A message with each scalar: by itself, optional, repeated; a map and a nested message of its own kind of fields."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", syntax="proto3")
    made = file.message_type.add(name="All")
    for number, kind in enumerate(KINDS, 1):
        code = F.Type.Value(f"TYPE_{kind.upper()}")
        made.field.add(name=f"one_{kind}", number=number, type=code, label=F.LABEL_OPTIONAL)
        made.field.add(name=f"may_{kind}", number=100 + number, type=code, label=F.LABEL_OPTIONAL, proto3_optional=True,
                       oneof_index=number - 1)  # fmt: skip
        made.oneof_decl.add(name=f"_may_{kind}")
        made.field.add(name=f"all_{kind}", number=200 + number, type=code, label=F.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("All"))


def text() -> str:
    """The same as a file."""
    fields = "".join(
        f"{kind} one_{kind} = {n}; optional {kind} may_{kind} = {100 + n}; repeated {kind} all_{kind} = {200 + n};"
        for n, kind in enumerate(KINDS, 1)
    )
    return f'syntax = "proto3"; message All {{ {fields} }}'


GOOGLE, FILE = google(), parsed(text())


@given(st.data())
def test_each_scalar_is_read_as_google_s_library_wrote_it(data: st.DataObject) -> None:
    """By itself, optional and repeated; and where both write numbers alike, our bytes are read there."""
    message, expected = GOOGLE(), {}
    for kind in data.draw(st.lists(st.sampled_from(KINDS), unique=True, max_size=5)):
        expected[f"one_{kind}"] = data.draw(VALUES[kind])
        expected[f"may_{kind}"] = data.draw(VALUES[kind])
        expected[f"all_{kind}"] = data.draw(st.lists(VALUES[kind], max_size=3))
    for name, value in expected.items():
        if isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    found = decoded(FILE, FILE.messages[0], message.SerializeToString())
    schema_of(FILE, FILE.messages[0]).check(found)
    for name, value in found.items():
        absent = None if name.startswith("may_") else getattr(GOOGLE(), name)
        assert value == (expected[name] if name in expected else list(absent) if name.startswith("all_") else absent), (
            name
        )


ORDER = Schema(
    "struct",
    name="shop.Order",
    fields=(
        Field("id", Schema("int64")),
        Field("note", Schema("string", True)),
        Field("ratio", Schema("float64")),
        Field("at", replace(TIMESTAMP, optional=True)),
        Field("day", replace(DATE, optional=True)),
        Field("hour", replace(TIME, optional=True)),
        Field("tags", Schema("array", values=Schema("string"))),
        Field("counts", Schema("map", keys=Schema("int32"), values=Schema("boolean"))),
        Field("line", Schema("struct", True, name="Line", fields=(Field("size", Schema("int32", True)),))),
    ),
)
FULL = {
    "id": -1,
    "note": "",
    "ratio": -0.0,
    "at": datetime(1955, 1, 2, 3, 4, 5, 678000, timezone.utc),
    "day": date(1500, 1, 1),
    "hour": time(23, 59, 59, 999000),
    "tags": ["", "ä"],
    "counts": {-1: True, 0: False},
    "line": {"size": 0},
}
EMPTY = {
    "id": 0,
    "note": None,
    "ratio": 0.0,
    "at": None,
    "day": None,
    "hour": None,
    "tags": [],
    "counts": {},
    "line": None,
}


@pytest.mark.parametrize("value", [FULL, EMPTY])
def test_what_was_written_is_read(value: dict[str, Any]) -> None:
    """Through the text of the schema; null and zero stay apart, -0.0 stays what it is."""
    file = parsed(proto_of(ORDER))
    assert file.messages[0].name == "shop.Order"
    found = decoded(file, file.messages[0], encoded(file, file.messages[0], value))
    assert found == value
    assert struct.pack(">d", found["ratio"]) == struct.pack(">d", value["ratio"])
    read = schema_of(file, file.messages[0])
    assert [(f.name, f.schema.type, f.schema.optional) for f in read.fields] == [
        (f.name, f.schema.type, f.schema.optional) for f in ORDER.fields
    ]
    read.check(found)


def test_files_as_people_write_them() -> None:
    """Comments, options, scopes, one-ofs, reserved numbers, services; unknown fields of the bytes are passed over."""
    file = parsed("""
        // made by hand
        syntax = "proto3";
        package a.b;
        import "google/protobuf/timestamp.proto";
        option java_package = "x; {y}";
        message Outer {
          reserved 9, 10 to 12;  /* gone */
          message Inner { int32 n = 1 [deprecated = true, (my.option) = {a: [1]}]; }
          Inner in = 1;
          .a.b.Outer.Inner other = 2;
          oneof choice { string s = 3; bool t = 4; }
          google.protobuf.Timestamp at = 5;
          map<string, Inner> by_name = 6;
        }
        enum Free { OFF = 0; }
        service S { rpc Get (Outer) returns (Outer) { option (x) = "y"; } }
    """)
    outer = file.messages[0]
    assert [f.type for f in outer.fields] == ["a.b.Outer.Inner"] * 2 + [
        "string",
        "bool",
        "google.protobuf.Timestamp",
        "map",
    ]
    assert file.at([0, 0]).name == "a.b.Outer.Inner"
    found = decoded(file, outer, b"\x0a\x02\x08\x05" + b"\x20\x00" + b"\xfa\x01\x01x" + b"\x32\x03\x0a\x01k")
    assert found == {"in": {"n": 5}, "other": None, "s": None, "t": False, "at": None, "by_name": {"k": {"n": 0}}}


@pytest.mark.parametrize(
    "source",
    [
        'syntax = "proto2"; message A {}', "message A { required int32 x = 1; }", "message A { Other x = 1; }", "message A {",
        "message A { map<float, int32> x = 1; }", "message A { group G = 1 {} }", "message A { int32 x = one; }",
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused(source: str) -> None:
    """With an error of the data, not a wrong value."""
    with pytest.raises(DataError):
        parsed(source if "syntax" in source else f'syntax = "proto3"; {source}')


def test_a_file_without_a_syntax_is_proto2() -> None:
    """And refused, as one that says so."""
    with pytest.raises(DataError, match="proto2"):
        parsed("message A { optional int32 x = 1 [default = 5]; }")


@pytest.mark.parametrize(
    "schema",
    [
        Schema("array", True, values=Schema("int32")),
        Schema("array", values=Schema("int32", True)),
        decimal_schema(2),
        Schema("array", values=Schema("array", values=Schema("int32"))),
        Schema("map", keys=Schema("float64"), values=Schema("int32")),
        Schema("string", default="x"),
    ],
)
def test_schemas_that_protobuf_has_no_words_for_are_refused(schema: Schema) -> None:
    """By the field's name."""
    with pytest.raises(DataError, match="odd"):
        proto_of(Schema("struct", fields=(Field("odd", schema),)))
    with pytest.raises(DataError, match="needs a struct"):
        proto_of(Schema("string"))


@pytest.mark.parametrize(
    "data", [b"\x08", b"\x0a\x05x", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b", b"\x0a\x00"]
)
def test_bytes_that_are_no_such_message_are_refused(data: bytes) -> None:
    """Cut off, or of another type."""
    file = parsed('syntax = "proto3"; message A { int32 x = 1; }')
    with pytest.raises(DataError):
        decoded(file, file.messages[0], data)


def test_a_message_that_holds_itself_is_refused() -> None:
    """Connect's schemas have an end."""
    file = parsed('syntax = "proto3"; message A { A next = 1; }')
    with pytest.raises(DataError, match="holds itself"):
        schema_of(file, file.messages[0])
