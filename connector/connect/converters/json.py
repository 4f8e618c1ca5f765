"""JsonConverter: JSON with Connect's {"schema", "payload"} envelope, or plain (schemas.enable=false), byte for byte as the JVM's.

Keys carry these bytes, and the partition of a key goes by them: the order of fields, the text of a number, what a null becomes.
Read more strictly than there: what is not of its type is refused, where the JVM makes a 0, a null or another number of it.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, NoReturn, TypeVar

from ..api.errors import DataError
from ..api.java import double_text, hash_order, to_float32
from ..api.schema import (
    DATE_NAME,
    DECIMAL_NAME,
    INTEGERS,
    LOGICAL,
    TIME_NAME,
    Field,
    Schema,
    decode_logical,
    encode_logical,
    frozen,
)
from ..api.text import number_text
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type, Width
from ..config.validators import Range, ValidString
from .base import Converter

T = TypeVar("T")
# Connect's JSON calls some types otherwise.
_TO_JSON = {"float32": "float", "float64": "double"}
_FROM_JSON = {"float": "float32", "double": "float64"}
_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_ESCAPE = re.compile(r"\\\\|\\u00[0-9a-f]{2}")
_BEYOND = re.compile("[\U00010000-\U0010ffff]")


class JsonConverter(Converter):
    """org.apache.kafka.connect.json.JsonConverter. Bytes travel as base64 where a schema says so."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "schemas.enable",
                Type.BOOLEAN,
                True,
                Importance.HIGH,
                "Whether each message carries its schema.",
                group="Schemas",
                order=0,
                width=Width.MEDIUM,
                display_name="Enable schemas",
            )
            .define(
                "schemas.cache.size",
                Type.INT,
                1000,
                Importance.HIGH,
                "Schemas kept.",
                validator=Range.at_least(0),
                group="Schemas",
                order=1,
                width=Width.MEDIUM,
                display_name="Schema cache size",
            )
            .define(
                "decimal.format",
                Type.STRING,
                "BASE64",
                Importance.LOW,
                "How Decimals are written: the bytes of the number as text, or a number.",
                validator=ValidString("BASE64", "NUMERIC", ignore_case=True),
                group="Serialization",
                order=0,
                width=Width.MEDIUM,
                display_name="Decimal format",
            )
            .define(
                "replace.null.with.default",
                Type.BOOLEAN,
                True,
                Importance.LOW,
                "Whether a null whose schema has a default becomes that default.",
                group="Serialization",
                order=1,
                width=Width.MEDIUM,
                display_name="Replace null with default",
            )
        )

    def configure(self, config: Mapping[str, str], is_key: bool) -> None:
        super().configure(config, is_key)
        self._enveloped: bool = self.options["schemas.enable"]
        self._writer = JsonWriter(
            self.options["decimal.format"].upper() == "NUMERIC", self.options["replace.null.with.default"]
        )
        self._reader = JsonReader(self.options["replace.null.with.default"])
        size = max(self.options["schemas.cache.size"], 1)
        self._written, self._read = SchemaCache(size), SchemaCache(size)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and schema is None:
            return None  # a tombstone stays one
        text = self._writer.text(schema, value)
        if self._enveloped:
            text = f'{{"schema":{self._schema_text(schema)},"payload":{text}}}'
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"the value is no Unicode text: {error.reason}") from error

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        if not data.strip():
            if self._enveloped:
                self._no_envelope()
            return None, None
        document = parsed(data, exact=self._enveloped)
        if not self._enveloped:
            return None, _untyped(document)
        if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
            self._no_envelope()
        described = document["schema"]
        if described is None:
            return None, _untyped(document["payload"])
        schema = self._read.get(repr(described), lambda: self._reader.schema(described))
        return schema, self._reader.value(schema, document["payload"], "value")

    def _schema_text(self, schema: Schema | None) -> str:
        if schema is None:
            return "null"
        # The schema is kept beside its text, so that its id stays its own.
        return self._written.get(id(schema), lambda: (schema, self._writer.schema_text(schema)))[1]

    @staticmethod
    def _no_envelope() -> NoReturn:
        raise DataError(
            'JsonConverter with schemas.enable needs the fields "schema" and "payload" and no others; '
            "for plain JSON set schemas.enable=false"
        )


class SchemaCache:
    """The most recently used values."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """The value of a key, made if it is not there."""
        if key in self._known:
            self._known.move_to_end(key)
        else:
            self._known[key] = make()
            if len(self._known) > self._size:
                self._known.popitem(last=False)
        found: T = self._known[key]
        return found


# -- writing ---------------------------------------------------------------------------------------------------------


def _string(text: str) -> str:
    written = encode_basestring(text)
    if "\\u00" in written:  # the JVM writes control characters in capitals
        written = _ESCAPE.sub(lambda m: m[0] if m[0] == "\\\\" else "\\u" + m[0][2:].upper(), written)
    if not written.isascii():  # and what takes two UTF-16 units as two escapes
        written = _BEYOND.sub(
            lambda m: "\\u{:04X}\\u{:04X}".format(*struct.unpack(">HH", m[0].encode("utf-16-be"))), written
        )
    return written


def _quoted(text: str) -> str:
    """A number, or the text of what is none."""
    return f'"{text}"' if text in _NO_NUMBERS else text


class JsonWriter:
    """Values and schemas as JSON text."""

    def __init__(self, numeric_decimals: bool, defaults: bool) -> None:
        self._numeric, self._defaults = numeric_decimals, defaults

    def text(self, schema: Schema | None, value: Any, where: str = "value") -> str:
        """A value; raises DataError where it does not fit its schema."""
        if schema is None:
            return self._untyped(value)
        if value is None:
            if schema.default is not None and self._defaults:
                return self.text(schema, schema.default, where)
            if schema.optional:
                return "null"
            raise DataError(f"{where} is null, but its schema is not optional and has no default")
        if schema.name in LOGICAL:
            return self._logical(schema, value, where)
        if schema.type == "struct":
            return self._struct(schema, value, where)
        if schema.type == "array":
            if not isinstance(value, (list, tuple)):
                schema.check(value, where)
            inner = inner_schema(schema.values, where)
            return f"[{','.join(self.text(inner, item, f'{where}[{i}]') for i, item in enumerate(value))}]"
        if schema.type == "map":
            return self._map(schema, value, where)
        schema.check(value, where)
        return _primitive(schema, value)

    def _logical(self, schema: Schema, value: Any, where: str) -> str:
        if schema.name == DECIMAL_NAME and self._numeric:
            if not isinstance(value, Decimal) or not value.is_finite():
                schema.check(value, where)
            return str(value)
        raw = encode_logical(schema, value, where)
        return f'"{base64.b64encode(raw).decode()}"' if isinstance(raw, bytes) else str(raw)

    def _struct(self, schema: Schema, value: Any, where: str) -> str:
        if not isinstance(value, Mapping):
            schema.check(value, where)
        parts = [
            f"{_string(f.name)}:{self.text(f.schema, value.get(f.name), f'{where}.{f.name}')}" for f in schema.fields
        ]
        return f"{{{','.join(parts)}}}"

    def _map(self, schema: Schema, value: Any, where: str) -> str:
        if not isinstance(value, Mapping):
            schema.check(value, where)
        keys, values = inner_schema(schema.keys, where), inner_schema(schema.values, where)
        pairs = [
            (self.text(keys, k, f"a key of {where}"), self.text(values, v, f"{where}[{k!r}]")) for k, v in value.items()
        ]
        if keys.type == "string":
            return f"{{{','.join(f'{k}:{v}' for k, v in pairs)}}}"
        return f"[{','.join(f'[{k},{v}]' for k, v in pairs)}]"

    def _untyped(self, value: Any) -> str:
        if value is None:
            return "null"
        if isinstance(value, str):
            return _string(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return _quoted(double_text(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f'"{base64.b64encode(bytes(value)).decode()}"'
        if isinstance(value, Mapping):
            if all(isinstance(key, str) for key in value):
                return f"{{{','.join(f'{_string(k)}:{self._untyped(v)}' for k, v in value.items())}}}"
            return f"[{','.join(f'[{self._untyped(k)},{self._untyped(v)}]' for k, v in value.items())}]"
        if isinstance(value, (list, tuple)):
            return f"[{','.join(map(self._untyped, value))}]"
        raise DataError(f"the value is no JSON: a {type(value).__name__} needs a schema")

    def schema_text(self, schema: Schema, field: str | None = None) -> str:
        """A schema in Connect's JSON; field: its name in a struct."""
        parts = [f'"type":"{_TO_JSON.get(schema.type, schema.type)}"']
        if schema.type == "struct":
            parts.append(f'"fields":[{",".join(self.schema_text(f.schema, f.name) for f in schema.fields)}]')
        if schema.type == "array":
            parts.append(f'"items":{self.schema_text(inner_schema(schema.values, "the schema"))}')
        if schema.type == "map":
            parts.append(f'"keys":{self.schema_text(inner_schema(schema.keys, "the schema"))}')
            parts.append(f'"values":{self.schema_text(inner_schema(schema.values, "the schema"))}')
        parts.append(f'"optional":{"true" if schema.optional else "false"}')
        if schema.name is not None:
            parts.append(f'"name":{_string(schema.name)}')
        if schema.version is not None:
            parts.append(f'"version":{schema.version}')
        if schema.doc is not None:
            parts.append(f'"doc":{_string(schema.doc)}')
        if schema.parameters:
            pairs = (f"{_string(k)}:{_string(v)}" for k, v in schema.parameters.items())
            parts.append(f'"parameters":{{{",".join(pairs)}}}')
        if schema.default is not None:
            parts.append(f'"default":{self.text(schema, schema.default, "the default")}')
        if field is not None:
            parts.append(f'"field":{_string(field)}')
        return f"{{{','.join(parts)}}}"


def _primitive(schema: Schema, value: Any) -> str:
    kind = schema.type
    if kind == "string":
        return _string(value)
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "bytes":
        return f'"{base64.b64encode(bytes(value)).decode()}"'
    return _quoted(number_text(schema, value))


def inner_schema(schema: Schema | None, where: str) -> Schema:
    if schema is None:
        raise DataError(f"the schema of {where} does not say what it holds")
    return schema


# -- reading ---------------------------------------------------------------------------------------------------------


def parsed(data: bytes, exact: bool) -> Any:
    """The document; exact: fractions as Decimals."""
    try:
        return json.loads(data, parse_float=Decimal if exact else None, parse_constant=_no_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DataError(f"the bytes are not JSON: {error}") from error


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _untyped(value: Any) -> Any:
    """Plain data; objects in the order of the JVM's HashMap."""
    if isinstance(value, (Decimal, float)):
        return float(value) + 0.0  # the JVM reads -0.0 as 0.0
    if isinstance(value, dict):
        return hash_order({key: _untyped(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_untyped(item) for item in value]
    return value


def _if_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class JsonReader:
    """Schemas, and values as their schemas say."""

    def __init__(self, defaults: bool) -> None:
        self._defaults = defaults
        self._primitives: dict[str, Callable[[Any], Any]] = {
            "string": lambda v: v if isinstance(v, str) else None,
            "boolean": lambda v: v if isinstance(v, bool) else None,
            "bytes": _bytes,
            "float32": lambda v: None if (found := _float(v)) is None else to_float32(found),
            "float64": _float,
        }

    def schema(self, document: Any) -> Schema:
        """A schema from Connect's JSON. Raises DataError."""
        if not isinstance(document, Mapping) or not isinstance(document.get("type"), str):
            raise DataError('a schema needs a "type", a string')
        named: str = document["type"]
        kind = _FROM_JSON.get(named, named)
        fields: tuple[Field, ...] = ()
        keys = values = None
        if kind == "struct":
            listed = document.get("fields")
            if not isinstance(listed, list):
                raise DataError('the schema of a struct needs "fields", an array')
            fields = tuple(self._field(each) for each in listed)
        if kind == "array":
            values = self.schema(document.get("items"))
        if kind == "map":
            keys, values = self.schema(document.get("keys")), self.schema(document.get("values"))
        version, parameters = document.get("version"), document.get("parameters")
        if isinstance(parameters, Mapping) and not all(isinstance(v, str) for v in parameters.values()):
            raise DataError("the parameters of a schema must be strings")
        parts: dict[str, Any] = {
            "optional": document.get("optional") is True,
            "name": _if_text(document.get("name")),
            "version": version if isinstance(version, int) and not isinstance(version, bool) else None,
            "doc": _if_text(document.get("doc")),
            "parameters": dict(parameters) if isinstance(parameters, Mapping) else {},
            "fields": fields,
            "keys": keys,
            "values": values,
        }
        default = document.get("default")
        if "default" in document:
            default = self.value(Schema(kind, **parts), default, "the default")
        return Schema(kind, **parts, default=default)

    def _field(self, document: Any) -> Field:
        name = document.get("field") if isinstance(document, Mapping) else None
        if not isinstance(name, str) or not name:
            raise DataError('a field of a struct needs its name in "field", a string')
        return Field(name, self.schema(document))

    def value(self, schema: Schema, value: Any, where: str) -> Any:
        """One value. Raises DataError, which names the place."""
        if value is None:
            if schema.default is not None and self._defaults:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"{where} is null, but its schema is not optional")
        if schema.name in LOGICAL:
            return _logical(schema, value, where)
        if schema.type == "struct":
            if not isinstance(value, dict):
                self._refuse(schema, value, where)
            return {f.name: self.value(f.schema, value.get(f.name), f"{where}.{f.name}") for f in schema.fields}
        if schema.type == "array":
            if not isinstance(value, list):
                self._refuse(schema, value, where)
            inner = inner_schema(schema.values, where)
            return [self.value(inner, item, f"{where}[{i}]") for i, item in enumerate(value)]
        if schema.type == "map":
            return self._map(schema, value, where)
        read = self._primitives.get(schema.type)
        found = _integer(value, INTEGERS[schema.type]) if read is None else read(value)
        if found is None:
            self._refuse(schema, value, where)
        return found

    def _map(self, schema: Schema, value: Any, where: str) -> Any:
        keys, values = inner_schema(schema.keys, where), inner_schema(schema.values, where)
        if keys.type == "string":
            if not isinstance(value, dict):
                self._refuse(schema, value, where)
            pairs = [(k, v) for k, v in value.items()]
        else:
            if not isinstance(value, list) or not all(isinstance(e, list) and len(e) == 2 for e in value):
                raise DataError(
                    f"{where} is no array of [key, value] pairs, which its schema, a map without string keys, needs"
                )
            pairs = [(frozen(self.value(keys, k, f"a key of {where}")), v) for k, v in value]
        return hash_order({k: self.value(values, v, f"{where}[{k!r}]") for k, v in pairs}, keys)

    @staticmethod
    def _refuse(schema: Schema, value: Any, where: str) -> NoReturn:
        shown = value if isinstance(value, (int, float, Decimal)) else type(value).__name__
        raise DataError(f"{where} is {shown} in JSON, which is no {schema.type}")


def _integer(value: Any, bound: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or not -bound <= value < bound:
        return None  # the bound first: 1e999999999 as a whole number would take all memory
    return int(value) if value == int(value) else None


def _float(value: Any) -> float | None:
    if isinstance(value, str):
        return _NO_NUMBERS.get(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    try:
        return float(value) + 0.0
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _bytes(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except ValueError:
        return None


def _logical(schema: Schema, value: Any, where: str) -> Any:
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if schema.name == DECIMAL_NAME:
        raw = _bytes(value)
        if number or raw is not None:
            return Decimal(value) if number else decode_logical(schema, raw)
    elif number and isinstance(value, int):
        bound = INTEGERS["int32" if schema.name in (DATE_NAME, TIME_NAME) else "int64"]
        if -bound <= value < bound:
            return decode_logical(schema, value)
    kind = "a number or base64 text" if schema.name == DECIMAL_NAME else "a whole number"
    raise DataError(f"{where} is no {str(schema.name).rpartition('.')[2]} in JSON: it must be {kind}")
