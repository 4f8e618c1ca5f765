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
from ..api.schema import Schema, infer
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from .avro_schemas import avro_of, from_avro, readable, schema_of, to_avro
from .base import Converter
from .registry import SchemaRegistry, registry_settings

_MAGIC = b"\x00"
_SCHEMAS = 1000


class AvroConverter(Converter):
    """io.confluent.connect.avro.AvroConverter. Exactly one of the settings below says where schemas come from."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            registry_settings()
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
            self._registry = SchemaRegistry.of(self.options)
            self._parsed: dict[int, tuple[Schema, AvroSchema]] = {}
            self._ids: dict[tuple[str, int], tuple[Schema, int, AvroSchema]] = {}
            return
        try:
            text = self.options["schema"] or Path(self.options["schema.file"]).read_text(encoding="utf-8")
            self._fixed_schema, self._fixed = _both(text)
        except Exception as error:
            raise ConfigError(given[0], f"no Avro schema: {error}", "give a schema in JSON") from error

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None  # a tombstone stays one
        out = io.BytesIO()
        if self._fixed is not None:
            avro, written = self._fixed, to_avro(self._fixed_schema, value)
        else:
            schema = schema or infer(value, optional=False) or Schema("string")
            number, avro = self._registered(topic, schema)
            out.write(_MAGIC + struct.pack(">I", number))
            written = to_avro(schema, value)
        try:
            fastavro.schemaless_writer(out, avro, written)
        except Exception as error:
            raise DataError(f"the value does not fit its Avro schema: {error}") from error
        return out.getvalue()

    def _registered(self, topic: str, schema: Schema) -> tuple[int, AvroSchema]:
        """(the id of a schema in the registry, the schema to write by)."""
        assert self._registry is not None
        subject = f"{topic}-{'key' if self.is_key else 'value'}"
        known = self._ids.get((subject, id(schema)))
        if known is None:
            document = avro_of(schema)
            number = self._registry.register(subject, json.dumps(document), self.options["auto.register.schemas"])
            # The schema is kept beside, so that its id stays its own.
            known = self._ids[subject, id(schema)] = (schema, number, fastavro.parse_schema(readable(document)))
            if len(self._ids) > _SCHEMAS:
                del self._ids[next(iter(self._ids))]
        return known[1], known[2]

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        stream = io.BytesIO(data)
        schema: Schema | None = None
        avro = self._fixed
        if self._registry is not None:
            if data[:1] != _MAGIC or len(data) < 5:
                raise DataError("the bytes do not begin with the magic byte 0 and a schema id")
            schema, avro = self._described(struct.unpack(">I", data[1:5])[0])
            stream.seek(5)
        assert avro is not None
        try:
            value = fastavro.schemaless_reader(
                stream, avro, None, return_record_name=True, return_record_name_override=True
            )
        except Exception as error:
            raise DataError(f"the bytes are not of this Avro schema: {error}") from error
        if stream.read(1):
            raise DataError("bytes are left behind the Avro value: it was written with another schema")
        if schema is None:
            schema = self._fixed_schema
        return schema, from_avro(schema, value)

    def _described(self, number: int) -> tuple[Schema, AvroSchema]:
        assert self._registry is not None
        if number not in self._parsed:
            self._parsed[number] = self._registry.read(number, _both)
        return self._parsed[number]


def _both(text: str) -> tuple[Schema, AvroSchema]:
    """A schema in Connect's words and in those of the Avro library."""
    document = json.loads(text)
    return schema_of(document), fastavro.parse_schema(readable(document))
