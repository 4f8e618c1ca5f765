"""JsonSchemaConverter: JSON whose schema stands in a schema registry, as JSON Schema (Confluent's wire format)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.schema import DECIMAL_NAME, INTEGERS, Field, Schema, frozen, infer
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import ValidString
from .base import Converter
from .json import JsonReader, JsonWriter, SchemaCache, inner_schema, parsed
from .registry import SchemaRegistry, registry_settings

_MAGIC = b"\x00"
_SCHEMAS = 1000
_PLAIN = {"integer": "int64", "number": "float64", "boolean": "boolean", "string": "string"}


class JsonSchemaConverter(Converter):
    """io.confluent.connect.json.JsonSchemaConverter: magic byte, schema id, the value as JsonConverter's payload."""

    @classmethod
    def config(cls) -> ConfigDef:
        return registry_settings().define(
            "decimal.format",
            Type.STRING,
            "BASE64",
            Importance.LOW,
            "How Decimals are written: the bytes of the number as text, or a number.",
            validator=ValidString("BASE64", "NUMERIC", ignore_case=True),
        )

    def configure(self, config: Mapping[str, str], is_key: bool) -> None:
        super().configure(config, is_key)
        if not self.options["schema.registry.url"]:
            raise ConfigError("schema.registry.url", "it is missing", "give the registry's address")
        self._registry = SchemaRegistry.of(self.options)
        self._writer = _PairWriter(self.options["decimal.format"].upper() == "NUMERIC", True)
        self._reader = _PairReader(True)
        self._ids, self._read = SchemaCache(_SCHEMAS), SchemaCache(_SCHEMAS)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.default is None):
            return None  # a tombstone stays one
        known = schema or infer(value, optional=False)
        assert known is not None
        number = self._ids.get((topic, id(known)), lambda: (known, self._registered(topic, known)))[1]
        try:
            return _MAGIC + struct.pack(">I", number) + self._writer.text(known, value).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"the value is no Unicode text: {error.reason}") from error

    def _registered(self, topic: str, schema: Schema) -> int:
        subject = f"{topic}-{'key' if self.is_key else 'value'}"
        return self._registry.register(
            subject, json.dumps(json_schema_of(schema)), self.options["auto.register.schemas"], "JSON"
        )

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        if data[:1] != _MAGIC or len(data) < 5:
            raise DataError("the bytes do not begin with the magic byte 0 and a schema id")
        number = struct.unpack(">I", data[1:5])[0]
        schema = self._read.get(number, lambda: self._registry.read(number, lambda text: schema_of(json.loads(text))))
        return schema, self._reader.value(schema, parsed(data[5:], exact=True), "value")


class _PairWriter(JsonWriter):
    """Maps without string keys as objects with key and value."""

    def _map(self, schema: Schema, value: Any, where: str) -> str:
        keys = inner_schema(schema.keys, where)
        if keys.type == "string" and not keys.optional:
            return super()._map(schema, value, where)
        if not isinstance(value, Mapping):
            schema.check(value, where)
        values = inner_schema(schema.values, where)
        pairs = (
            f'{{"key":{self.text(keys, k, f"a key of {where}")},"value":{self.text(values, v, where)}}}'
            for k, v in value.items()
        )
        return f"[{','.join(pairs)}]"


class _PairReader(JsonReader):
    """The reverse."""

    def _map(self, schema: Schema, value: Any, where: str) -> Any:
        keys = inner_schema(schema.keys, where)
        if keys.type == "string" and not keys.optional:
            return super()._map(schema, value, where)
        if not isinstance(value, list) or not all(isinstance(e, dict) and e.keys() == {"key", "value"} for e in value):
            raise DataError(f"{where} is no array of objects with key and value, which its schema, a map, needs")
        values = inner_schema(schema.values, where)
        return {
            frozen(self.value(keys, e["key"], f"a key of {where}")): self.value(values, e["value"], where)
            for e in value
        }


def json_schema_of(schema: Schema) -> dict[str, Any]:
    """The JSON Schema of a Connect schema, with what JSON Schema has no word for in `connect.` properties."""
    made = _bare(schema)
    if schema.name is not None:
        made["title"] = schema.name
    if schema.version is not None:
        made["connect.version"] = schema.version
    if schema.doc is not None:
        made["description"] = schema.doc
    if schema.parameters:
        made["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None:
        made["default"] = json.loads(_PairWriter(False, True).text(schema, schema.default))
    return {"oneOf": [{"type": "null"}, made]} if schema.optional else made


def _bare(schema: Schema) -> dict[str, Any]:
    kind = schema.type
    if kind in INTEGERS:
        return {"type": "integer", "connect.type": kind}
    if kind in ("float32", "float64"):
        return {"type": "number", "connect.type": kind}
    if kind == "bytes":
        return {"type": "number" if schema.name == DECIMAL_NAME else "string", "connect.type": kind}
    if kind == "array":
        return {"type": "array", "items": json_schema_of(inner_schema(schema.values, "the schema"))}
    if kind == "map":
        keys, values = inner_schema(schema.keys, "the schema"), inner_schema(schema.values, "the schema")
        if keys.type == "string" and not keys.optional:
            return {"type": "object", "connect.type": "map", "additionalProperties": json_schema_of(values)}
        pair = {
            "key": {**json_schema_of(keys), "connect.index": 0},
            "value": {**json_schema_of(values), "connect.index": 1},
        }
        return {"type": "array", "connect.type": "map", "items": {"type": "object", "properties": pair}}
    if kind == "struct":
        fields = ({**json_schema_of(f.schema), "connect.index": i} for i, f in enumerate(schema.fields))
        return {"type": "object", "properties": {f.name: each for f, each in zip(schema.fields, fields, strict=True)}}
    return {"type": kind}


def schema_of(document: Any, optional: bool = False) -> Schema:
    """The Connect schema of a JSON Schema. Raises DataError for what Connect has no word for: references, several types."""
    if not isinstance(document, Mapping):
        _refuse(document)
    options = document.get("oneOf") or document.get("anyOf")
    if options is not None:
        rest = [each for each in options if each.get("type") != "null"]
        if len(rest) != 1:
            _refuse("a choice of several types")
        return schema_of(rest[0], optional or len(rest) < len(options))
    kind = document.get("type")
    if isinstance(kind, list):
        rest = [each for each in kind if each != "null"]
        if len(rest) != 1:
            _refuse("a choice of several types")
        return schema_of({**document, "type": rest[0]}, optional or len(rest) < len(kind))
    parts = _parts(document, str(kind))
    made = Schema(
        **parts,
        optional=optional,
        name=document.get("title"),
        version=document.get("connect.version"),
        doc=document.get("description"),
        parameters=document.get("connect.parameters", {}),
    )
    if document.get("default") is None:
        return made
    found = {slot: getattr(made, slot) for slot in made.__slots__}
    default = parsed(json.dumps(document["default"]).encode(), exact=True)
    return Schema(**{**found, "default": _PairReader(True).value(made, default, "the default")})


def _parts(document: Mapping[str, Any], kind: str) -> dict[str, Any]:
    connect = document.get("connect.type")
    if connect == "map":
        if kind == "object":
            return {"type": "map", "keys": Schema("string"), "values": schema_of(document["additionalProperties"])}
        pair = document["items"]["properties"]
        return {"type": "map", "keys": schema_of(pair["key"]), "values": schema_of(pair["value"])}
    if kind == "object":
        properties = document.get("properties")
        if properties is None:
            if not isinstance(document.get("additionalProperties"), Mapping):
                _refuse("an object whose properties are not described")
            return {"type": "map", "keys": Schema("string"), "values": schema_of(document["additionalProperties"])}
        order = sorted(properties, key=lambda name: properties[name].get("connect.index", len(properties)))
        ours = all("connect.index" in each for each in properties.values())
        required = set(properties) if ours else set(document.get("required", ()))
        return {
            "type": "struct",
            "fields": tuple(Field(name, schema_of(properties[name], name not in required)) for name in order),
        }
    if kind == "array":
        return {"type": "array", "values": schema_of(document.get("items"))}
    if "enum" in document and kind == "None":
        return {"type": "string"}
    if kind not in _PLAIN:
        _refuse(document.get("$ref", kind))
    return {"type": connect or _PLAIN[kind]}


def _refuse(what: Any) -> NoReturn:
    raise DataError(f"Connect has no type for this part of the JSON Schema: {what}")
