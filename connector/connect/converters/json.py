"""JsonConverter: JSON with Connect's {"schema", "payload"} envelope, or plain (schemas.enable=false)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from ..api.errors import DataError
from ..api.schema import Field, Schema
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from .base import Converter

# Connect's JSON calls some types otherwise.
_TO_JSON = {"float32": "float", "float64": "double"}
_FROM_JSON = {"float": "float32", "double": "float64"}


class JsonConverter(Converter):
    """org.apache.kafka.connect.json.JsonConverter. Bytes travel as base64 where a schema says so."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "schemas.enable", Type.BOOLEAN, True, Importance.HIGH, "Whether each message carries its schema."
        )

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or not self.options["schemas.enable"]):
            return None  # a tombstone stays one
        if schema is not None:
            schema.check(value)
        payload = _encode(schema, value)
        if self.options["schemas.enable"]:
            payload = {"schema": None if schema is None else schema_json(schema), "payload": payload}
        try:
            return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise DataError(f"the value is no JSON: {error}") from error

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        try:
            document = json.loads(data)
        except (UnicodeDecodeError, ValueError) as error:
            raise DataError(f"the bytes are not JSON: {error}") from error
        if not self.options["schemas.enable"]:
            return None, document
        if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
            raise DataError(
                'JsonConverter with schemas.enable needs the fields "schema" and "payload" and no others; '
                "for plain JSON set schemas.enable=false"
            )
        schema = None if document["schema"] is None else schema_from_json(document["schema"])
        value = _decode(schema, document["payload"])
        if schema is not None:
            schema.check(value)
        return schema, value


def schema_json(schema: Schema, field: str | None = None) -> dict[str, Any]:
    """A schema in Connect's JSON."""
    result: dict[str, Any] = {"type": _TO_JSON.get(schema.type, schema.type), "optional": schema.optional}
    for name in ("name", "version", "doc"):
        if getattr(schema, name) is not None:
            result[name] = getattr(schema, name)
    if schema.parameters:
        result["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        result["default"] = _encode(schema, schema.default)
    if schema.type == "struct":
        result["fields"] = [schema_json(f.schema, f.name) for f in schema.fields]
    if schema.values is not None:
        result["items" if schema.type == "array" else "values"] = schema_json(schema.values)
    if schema.keys is not None:
        result["keys"] = schema_json(schema.keys)
    if field is not None:
        result["field"] = field
    return result


def schema_from_json(document: Any) -> Schema:
    """The reverse. Raises DataError."""
    if not isinstance(document, Mapping) or "type" not in document:
        raise DataError('a schema needs a "type"')
    kind = str(_FROM_JSON.get(str(document["type"]), document["type"]))
    fields = tuple(Field(str(f.get("field")), schema_from_json(f)) for f in document.get("fields", ()))
    values = document.get("items" if kind == "array" else "values")
    keys = document.get("keys")
    bare = Schema(kind, bool(document.get("optional", False)))
    return Schema(
        kind,
        bare.optional,
        document.get("name"),
        document.get("version"),
        document.get("doc"),
        _decode(bare, document["default"]) if kind in ("bytes",) and "default" in document else document.get("default"),
        document.get("parameters", {}),
        fields,
        None if keys is None else schema_from_json(keys),
        None if values is None else schema_from_json(values),
    )


def _encode(schema: Schema | None, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Mapping):
        return {
            str(k): _encode(None if schema is None else schema.field(str(k)) or schema.values, v)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_encode(None if schema is None else schema.values, item) for item in value]
    return value


def _decode(schema: Schema | None, value: Any) -> Any:
    if schema is None:
        return value
    if value is None:
        return schema.default
    if schema.type == "bytes":
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError) as error:
            raise DataError(f"bytes must be base64 in JSON: {error}") from error
    if schema.type == "struct" and isinstance(value, Mapping):
        return {f.name: _decode(f.schema, value.get(f.name)) for f in schema.fields}
    if schema.type == "array" and isinstance(value, list):
        return [_decode(schema.values, item) for item in value]
    if schema.type == "map" and isinstance(value, Mapping):
        return {k: _decode(schema.values, item) for k, item in value.items()}
    return value
