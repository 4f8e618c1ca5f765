"""Converters beside the JVM's: the same bytes from the same values, the same values from the same bytes."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest
from keyorder.connector.connect.api.errors import DataError
from keyorder.connector.connect.api.records import Header
from keyorder.connector.connect.api.schema import Schema
from keyorder.connector.connect.api.text import parse_text, to_text
from keyorder.connector.connect.runtime.pipeline import Converters
from keyorder.connector.connect.runtime.plugins import Plugins
from support.connect_judge import Judge, plain_pair, schema_document, value_document
from support.connect_values import TEXTS, Values

JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
OF_VALUES = "org.apache.kafka.connect.converters."
FIXED = ("Boolean", "Short", "Integer", "Long", "Float", "Double", "ByteArray")
# How many random values of each kind: KEYORDER_CONNECT_CASES is `make connect-parity`'s.
COUNT = int(os.environ.get("KEYORDER_CONNECT_CASES", "150"))
OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"decimal.format": "NUMERIC"},
    {"replace.null.with.default": "false"},
    {"schemas.enable": "false"},
)


def converters(name: str, **options: str) -> Converters:
    halves = ("header",) if name == SIMPLE else ("value", "header")
    config = {f"{half}.converter": name for half in halves}
    config |= {f"{half}.converter.{k}": v for half in halves for k, v in options.items()}
    return Converters(Plugins(), {}, config)


def written(judge: Judge, name: str, options: dict[str, str], schema: Schema | None, value: Any) -> bytes | str | None:
    """The JVM's bytes, or the error's name."""
    answer = judge.ask(
        op="from",
        config=options,
        schema=schema_document(schema),
        value=value_document(schema, value),
        **{"class": name},
    )
    if "error" in answer:
        return str(answer["error"])
    return None if answer["ok"] is None else base64.b64decode(answer["ok"])


def read(judge: Judge, name: str, options: dict[str, str], data: bytes | None, op: str = "to") -> Any:
    """The JVM's (schema, value) in a plain form, or the error's name."""
    text = None if data is None else base64.b64encode(data).decode()
    answer = judge.ask(op=op, config=options, bytes=text, **{"class": name})
    return str(answer["error"]) if "error" in answer else plain_pair(answer["ok"])


def ours(schema: Schema | None, value: Any) -> Any:
    return plain_pair([schema_document(schema), value_document(schema, value)])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_json_has_the_jvm_s_bytes_and_reads_them(judge: Judge, options: dict[str, str]) -> None:
    """Of every schema, logical types, nulls and defaults included."""
    mine = converters(JSON, **options).value
    values = Values(11)
    for _ in range(COUNT):
        schema = values.schema()
        value = values.value(schema)
        theirs = written(judge, JSON, options, schema, value)
        assert theirs == mine.from_connect("t", schema, value), (schema, value)
        assert isinstance(theirs, bytes)
        assert ours(*mine.to_connect("t", theirs)) == read(judge, JSON, options, theirs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_json_without_a_schema_is_the_jvm_s(judge: Judge, options: dict[str, str]) -> None:
    """Read, in the JVM's order of an object's fields, and written again."""
    mine = converters(JSON, **options).value
    values = Values(12)
    for _ in range(COUNT):
        given = values.plain()
        data = mine.from_connect("t", None, given)
        assert written(judge, JSON, options, None, given) == data
        if data is not None:
            schema, value = mine.to_connect("t", data)
            assert ours(schema, value) == read(judge, JSON, options, data)


FORMS = [
    b"", b"  ", b"null", b"1", b"1.0", b"1e400", b'"x"', b"[1,[2,null]]", b'{"b":1,"a":2,"b":3}', b"{", b"NaN", b"\xff", b"[1,]",
    b'{"schema":null,"payload":{"a":1.5}}', b'{"schema":{"type":"int32"},"payload":null}', b'{"schema":{"type":"int8"},"payload":7}',
    b'{"schema":{"type":"int32","optional":true},"payload":null}', b'{"payload":1}', b'{"schema":{"type":"x"},"payload":1}',
    b'{"schema":{"type":"array"},"payload":[]}', b'{"schema":{"type":"map","keys":{"type":"int32"}},"payload":[]}',
    b'{"schema":{"type":"struct"},"payload":{}}', b'{"schema":{"type":"struct","fields":[{"type":"int32"}]},"payload":{}}',
    b'{"schema":{"type":"struct","fields":[{"type":"int32","field":"a"},{"type":"int32","field":"a"}]},"payload":{}}',
    b'{"schema":{"type":"struct","fields":[{"type":"int32","field":"a","optional":true}]},"payload":{"b":1}}',
    b'{"schema":{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp","version":1},"payload":5}',
    b'{"schema":{"type":"int32","name":"org.apache.kafka.connect.data.Date","version":1},"payload":"x"}',
    b'{"schema":{"type":"int32","name":"org.apache.kafka.connect.data.Time","version":1},"payload":99999999}',
    b'{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}},"payload":1.23}',
    b'{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}},"payload":"AfQ="}',
    b'{"schema":{"type":"string","default":"d"},"payload":null}', b'{"schema":{"type":"string","version":1.5},"payload":"a"}',
    b'{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"string"}},"payload":[[1,"a"],[2,"b"]]}',
    b'{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"string"}},"payload":{"1":"a"}}',
    b'{"schema":{"type":"string","parameters":{"a":1}},"payload":"a"}', b'{"schema":{"type":"double"},"payload":1}',
    b'{"schema":{"type":"float"},"payload":0.1}', b'{"schema":{"type":"bytes"},"payload":"%%"}',
]  # fmt: skip


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize("data", FORMS)
def test_json_s_forms_are_read_as_the_jvm_reads_them(judge: Judge, data: bytes, schemas: str) -> None:
    """What it refuses is refused."""
    options = {"schemas.enable": schemas}
    theirs = read(judge, JSON, options, data)
    try:
        found = ours(*converters(JSON, **options).value.to_connect("t", data))
    except DataError:
        found = "refused"
    assert ("refused" if isinstance(theirs, str) else theirs) == found, theirs


# The JVM makes another value of these without a word; here they are refused.
REFUSED = [
    b'{"schema":{"type":"int8"},"payload":1000}', b'{"schema":{"type":"int32"},"payload":1.9}', b'{"schema":{"type":"int32"},"payload":"5"}',
    b'{"schema":{"type":"boolean"},"payload":"true"}', b'{"schema":{"type":"double"},"payload":"x"}',
    b'{"schema":{"type":"string","optional":true},"payload":5}', b'{"schema":{"type":"int64"},"payload":99999999999999999999}',
    b'{"schema":{"type":"bytes","optional":true},"payload":5}',
]  # fmt: skip


@pytest.mark.parametrize("data", REFUSED)
def test_json_of_another_type_is_refused_where_the_jvm_invents_a_value(judge: Judge, data: bytes) -> None:
    """Wrong values are worse than a failed task."""
    assert not isinstance(read(judge, JSON, {}, data), str)
    with pytest.raises(DataError):
        converters(JSON).value.to_connect("t", data)


@pytest.mark.parametrize("kind", FIXED)
def test_the_primitive_converters_are_the_jvm_s(judge: Judge, kind: str) -> None:
    """Of every type, and of every number of bytes."""
    name, values = f"{OF_VALUES}{kind}Converter", Values(13)
    mine = converters(name).value
    for _ in range(COUNT):
        schema = values.schema(1)
        value = values.value(schema)
        theirs = written(judge, name, {}, schema, value)
        try:
            found: Any = mine.from_connect("t", schema, value)
        except DataError:
            found = "refused"
        if value is None and found == "refused":
            continue  # a null of another type: the JVM's number converters do not look at the schema
        assert ("refused" if isinstance(theirs, str) else theirs) == found, (schema, value, theirs)
    for data in (None, *(bytes(range(1, n)) for n in range(1, 11)), b"\x00", b"\x01", b"\x02", b"\xff" * 8):
        theirs = read(judge, name, {}, data)
        try:
            found = ours(*mine.to_connect("t", data))
        except DataError:
            found = "refused"
        assert ("refused" if isinstance(theirs, str) else theirs) == found, data


@pytest.mark.parametrize("encoding", ["UTF-8", "ISO-8859-1", "UTF-16", "UTF-16LE", "UTF-32", "US-ASCII"])
def test_text_is_the_jvm_s(judge: Judge, encoding: str) -> None:
    """By Java's toString, in any character set. Refused: what the set does not have (the JVM writes ?), bytes inside (an address)."""
    options, values = {"converter.encoding": encoding}, Values(14)
    mine = converters(STRING, **options).value
    refused = 0
    given = [
        (Schema("string", True), ""),
        *((schema, values.value(schema)) for schema in (values.schema(2) for _ in range(COUNT))),
    ]
    for schema, value in given:
        if isinstance(value, bytes):
            continue
        try:
            found = mine.from_connect("t", schema, value)
        except DataError:
            refused += 1
            continue
        assert written(judge, STRING, options, schema, value) == found, (schema, value)
        if found is not None:
            assert ours(*mine.to_connect("t", found)) == read(judge, STRING, options, found)
    assert refused < COUNT / 2


LOOKS = [
    "", " ", "a", "null", "true", "TRUE", "false", " true", "1", "-1", "+5", "127", "128", "32768", "2147483648", "9223372036854775807",
    "9223372036854775808", "1e3", "1E19", "1e30", "1.0", "1.5", "0.1", "0.0", "-0.5", "1e-50", "1.1e400", "007", "1_0", "0x10", "1.", ".5", "5.",
    "NaN", "Infinity", "1d", "2020-01-02", "2020-13-02", "10:11:12.123Z", "2020-01-02T10:11:12.123Z", "2020-01-02x", "20200102", "12:34",
    "[]", "[1,2]", "[1,300]", "[1,2.5]", '["a","b"]', '[1,"a"]', "[1,null]", "[null]", "[1,2", "[1,,2]", "[1,]", "[[1],[2]]", "[a]",
    "{}", '{"a":1}', '{"a":1,"b":300}', '{"a":1,"b":"x"}', '{"a":null}', '{"a":null,"b":1}', '{"a":1,}', '{"a" : [ 1 , 2 ] }', '{1:2}', "{a:b}",
    '{"a":{"b":true}}', '"quoted"', '["2020-01-02"]', '{"t":"2020-01-02T10:11:12.123Z"}', "a:b", "a,b", 'say "x"', "a\\:b", '["a\\"b"]',
    "[true,false]", "[1.5,true]", "2020-01-02T10\\:11\\:12.123Z", "{", "}", "[", ":", "-", "+", "1-2", "日本", "٣", '{"a":1 "b":2}', "[1 2]",
    "99999999999999999999999", "1e-400", "123456789.123456789", "[1,2]x", "{}x", "true false", "null ", "nullx", "[ ]", "[\"\"]",
]  # fmt: skip


@pytest.mark.parametrize("text", LOOKS)
def test_headers_are_read_by_their_look_as_the_jvm_does(judge: Judge, text: str) -> None:
    """Type and value."""
    assert ours(*parse_text(text)) == read(judge, SIMPLE, {}, text.encode(), op="header-to")


def test_random_header_texts_are_read_alike(judge: Judge) -> None:
    """Pieces put together at random."""
    random = Values(15).random
    pieces = [
        "1",
        "2.5",
        "-3",
        '"a"',
        "a",
        "true",
        "null",
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        " ",
        "\\",
        '"',
        "2020-01-02",
        "300",
        "1e5",
    ]
    for _ in range(COUNT * 10):
        text = "".join(random.choice(pieces) for _ in range(random.randrange(1, 9)))
        theirs = read(judge, SIMPLE, {}, text.encode(), op="header-to")
        assert ours(*parse_text(text)) == theirs, text


def test_headers_are_written_as_the_jvm_writes_them(judge: Judge) -> None:
    """Every type, by SimpleHeaderConverter and by JsonConverter."""
    values = Values(16)
    both = {SIMPLE: converters(SIMPLE).header, JSON: converters(JSON).header}
    for _ in range(COUNT):
        schema = values.schema(2)
        value = values.value(schema)
        for name, mine in both.items():
            answer = judge.ask(
                op="header-from",
                config={},
                schema=schema_document(schema),
                value=value_document(schema, value),
                **{"class": name},
            )
            theirs = None if answer["ok"] is None else base64.b64decode(answer["ok"])
            assert mine.to_bytes(Header("h", value, schema)) == theirs, (schema, value)
    assert all(to_text(None, text) == text for text in TEXTS)
