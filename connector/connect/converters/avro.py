"""AvroConverter: Avro by fastavro, with a schema registry (Confluent's wire format) or a schema in the settings."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
from fastavro.types import Schema as AvroSchema

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.schema import Field, Schema, infer
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from .base import Converter
from .registry import SchemaRegistry

_MAGIC = b"\x00"
_TO_AVRO = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double",
    "boolean": "boolean", "string": "string", "bytes": "bytes",
}  # fmt: skip
_FROM_AVRO = {"int": "int32", "long": "int64", "float": "float32", "double": "float64"}


class AvroConverter(Converter):
    """io.confluent.connect.avro.AvroConverter. Exactly one of the settings below says where schemas come from."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("schema.registry.url", Type.STRING, None, Importance.HIGH, "Where the schema registry is.")
            .define(
                "schema.registry.basic.auth.user.info",
                Type.PASSWORD,
                None,
                Importance.MEDIUM,
                "user:password for the registry.",
            )
            .define("auto.register.schemas", Type.BOOLEAN, True, Importance.LOW, "Register schemas of written values.")
            .define(
                "schema", Type.STRING, None, Importance.HIGH, "Without a registry: the Avro schema itself, as JSON."
            )
            .define("schema.file", Type.STRING, None, Importance.HIGH, "Without a registry: a file that holds it.")
        )

    def configure(self, config: Mapping[str, str], is_key: bool) -> None:
        super().configure(config, is_key)
        given = [n for n in ("schema.registry.url", "schema", "schema.file") if self.options[n]]
        if len(given) != 1:
            raise ConfigError("schema.registry.url", "none or several of it, schema and schema.file are set", "set one")
        self._registry: SchemaRegistry | None = None
        self._fixed: AvroSchema | None = None
        if self.options["schema.registry.url"]:
            password = self.options["schema.registry.basic.auth.user.info"]
            self._registry = SchemaRegistry(self.options["schema.registry.url"], password.value if password else None)
            self._parsed: dict[int, AvroSchema] = {}
            self._ids: dict[tuple[str, str], int] = {}
            return
        try:
            text = self.options["schema"] or Path(self.options["schema.file"]).read_text(encoding="utf-8")
            self._fixed = fastavro.parse_schema(json.loads(text))
        except Exception as error:
            raise ConfigError(given[0], f"no Avro schema: {error}", "give a schema in JSON") from error

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        out = io.BytesIO()
        if self._fixed is not None:
            avro = self._fixed
        else:
            assert self._registry is not None
            document = avro_of(schema or infer(value, optional=False) or Schema("string"), "ConnectDefault")
            subject = f"{topic}-{'key' if self.is_key else 'value'}"
            text = json.dumps(document, sort_keys=True)
            number = self._ids.get((subject, text))
            if number is None:
                number = self._registry.register(subject, text, self.options["auto.register.schemas"])
                self._ids[subject, text] = number
            avro = self._parsed.get(number) or self._parsed.setdefault(number, fastavro.parse_schema(document))
            out.write(_MAGIC + struct.pack(">I", number))
        try:
            fastavro.schemaless_writer(out, avro, value)
        except Exception as error:
            raise DataError(f"the value does not fit its Avro schema: {error}") from error
        return out.getvalue()

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        avro = self._fixed
        stream = io.BytesIO(data)
        if self._registry is not None:
            if data[:1] != _MAGIC or len(data) < 5:
                raise DataError("the bytes do not begin with the magic byte 0 and a schema id")
            number = struct.unpack(">I", data[1:5])[0]
            if number not in self._parsed:
                self._parsed[number] = fastavro.parse_schema(json.loads(self._registry.schema(number)))
            avro = self._parsed[number]
            stream.seek(5)
        assert avro is not None
        try:
            value = fastavro.schemaless_reader(stream, avro, None)
        except Exception as error:
            raise DataError(f"the bytes are not of this Avro schema: {error}") from error
        if stream.read(1):
            raise DataError("bytes are left behind the Avro value: it was written with another schema")
        return schema_of(avro), value


def avro_of(schema: Schema, name: str) -> Any:
    """The Avro schema of a Connect schema."""
    made: Any
    if schema.type in _TO_AVRO:
        made = _TO_AVRO[schema.type]
    elif schema.type == "struct":
        inner = schema.name or name
        fields: list[dict[str, Any]] = []
        for f in schema.fields:
            field: dict[str, Any] = {"name": f.name, "type": avro_of(f.schema, f"{inner}_{f.name}")}
            if f.schema.optional:
                field["default"] = None
            fields.append(field)
        made = {"type": "record", "name": inner, "fields": fields}
    elif schema.type == "array":
        made = {"type": "array", "items": avro_of(schema.values or Schema("string"), f"{name}_item")}
    else:
        made = {"type": "map", "values": avro_of(schema.values or Schema("string"), f"{name}_value")}
    return ["null", made] if schema.optional else made


def schema_of(avro: Any) -> Schema | None:
    """The Connect schema of an Avro schema; None where Connect has no word for it (unions of several types)."""
    if isinstance(avro, list):
        rest = [branch for branch in avro if branch != "null"]
        if len(rest) != 1:
            return None
        inner = schema_of(rest[0])
        return None if inner is None else Schema(**{**_parts(inner), "optional": len(rest) < len(avro)})
    kind = avro["type"] if isinstance(avro, Mapping) else avro
    if isinstance(kind, (list, Mapping)):
        return schema_of(kind)
    if isinstance(avro, Mapping) and "logicalType" in avro:
        return None
    if kind in ("record", "error"):
        made = [(f["name"], schema_of(f["type"])) for f in avro["fields"]]
        if any(s is None for _, s in made):
            return None
        fields = tuple(Field(n, s) for n, s in made if s is not None)
        return Schema("struct", name=avro["name"], doc=avro.get("doc"), fields=fields)
    if kind == "array":
        return Schema("array", values=schema_of(avro["items"]))
    if kind == "map":
        return Schema("map", keys=Schema("string"), values=schema_of(avro["values"]))
    if kind == "enum":
        return Schema("string", name=avro["name"])
    if kind == "fixed":
        return Schema("bytes", name=avro["name"])
    word = _FROM_AVRO.get(kind, kind)
    return Schema(word) if word in ("int32", "int64", "float32", "float64", "boolean", "string", "bytes") else None


def _parts(schema: Schema) -> dict[str, Any]:
    return {name: getattr(schema, name) for name in schema.__slots__}
