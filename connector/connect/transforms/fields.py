"""Transforms of fields: ReplaceField, MaskField, InsertField, ExtractField, HoistField, Flatten, ValueToKey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.records import SinkRecord
from ..api.schema import INT32, INT64, STRING, TIMESTAMP, Field, Schema, infer
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from .base import HalfTransformation, R, Transformation, set_field


class ReplaceField(HalfTransformation):
    """Keeps, drops or renames fields."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("exclude", Type.LIST, [], Importance.MEDIUM, "Fields to drop.", alternative="blacklist")
            .define(
                "include", Type.LIST, [], Importance.MEDIUM, "Fields to keep; all if empty.", alternative="whitelist"
            )
            .define("renames", Type.LIST, [], Importance.MEDIUM, "old:new pairs.")
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._renames: dict[str, str] = {}
        for pair in self.options["renames"]:
            old, separator, new = pair.partition(":")
            if not (old and separator and new):
                raise ConfigError("renames", repr(pair), "write old:new")
            self._renames[old] = new

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        fields = {self._renames.get(n, n): v for n, v in self.struct(record).items() if self._keeps(n)}
        if schema is not None:
            kept = [Field(self._renames.get(f.name, f.name), f.schema) for f in schema.fields if self._keeps(f.name)]
            schema = schema.with_fields(tuple(kept))
        return self.with_half(record, schema, fields)

    def _keeps(self, name: str) -> bool:
        included = not self.options["include"] or name in self.options["include"]
        return included and name not in self.options["exclude"]


class MaskField(HalfTransformation):
    """Replaces fields by the null value of their type, or by a replacement."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("fields", Type.LIST, importance=Importance.HIGH, documentation="Fields to mask.")
            .define("replacement", Type.STRING, None, Importance.LOW, "What to write instead, for text and numbers.")
        )

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        fields = self.struct(record)
        for name in self.options["fields"]:
            if fields.get(name) is not None:
                fields[name] = self._mask(name, fields[name])
        return self.with_half(record, schema, fields)

    def _mask(self, name: str, value: Any) -> Any:
        replacement = self.options["replacement"]
        if replacement is None:
            return type(value)()
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise DataError(f"field {name!r} of type {type(value).__name__} cannot be masked by a replacement")
        try:
            return type(value)(replacement)
        except ValueError as error:
            raise DataError(f"{replacement!r} cannot stand for field {name!r}: {error}") from error


class InsertField(HalfTransformation):
    """Adds topic, partition, offset, timestamp or a fixed text as fields. A name may end in ! (required) or ? (optional)."""

    @classmethod
    def config(cls) -> ConfigDef:
        definition = ConfigDef()
        for name in (
            "topic.field",
            "partition.field",
            "offset.field",
            "timestamp.field",
            "static.field",
            "static.value",
        ):
            definition.define(name, Type.STRING, None, Importance.MEDIUM, f"{name.partition('.')[0]}: where to put it.")
        return definition

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        fields = self.struct(record)
        offered: list[tuple[str, Any, Schema]] = [
            ("topic.field", record.topic, STRING),
            ("timestamp.field", record.timestamp, TIMESTAMP),
            ("static.field", self.options["static.value"], STRING),
        ]
        if isinstance(record, SinkRecord):
            offered += [("partition.field", record.partition, INT32), ("offset.field", record.offset, INT64)]
        elif self.options["offset.field"]:
            raise DataError("InsertField: offset.field is for sinks only")
        for option, value, kind in offered:
            name = self.options[option]
            if not name:
                continue
            optional = not name.endswith("!")
            name = name.rstrip("!?")
            if value is None and not optional:
                raise DataError(f"InsertField: {option} is required and the record has none")
            fields[name] = value
            schema = set_field(schema, name, Schema(kind.type, optional, kind.name, kind.version))
        return self.with_half(record, schema, fields)


class ExtractField(HalfTransformation):
    """The whole becomes one of its fields."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("field", Type.STRING, importance=Importance.MEDIUM, documentation="The field.")
            .define("replace.null.with.default", Type.BOOLEAN, True, Importance.MEDIUM, "A null becomes the default.")
        )

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        fields, name = self.struct(record), self.options["field"]
        inner = None if schema is None else schema.field(name)
        if schema is not None and inner is None:
            raise DataError(f"ExtractField: there is no field {name!r}")
        value = fields.get(name)
        if value is None and inner is not None and self.options["replace.null.with.default"]:
            value = inner.default
        return self.with_half(record, inner, value)


class HoistField(HalfTransformation):
    """The whole becomes a field of a new struct."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define("field", Type.STRING, importance=Importance.MEDIUM, documentation="Its name.")

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        name = self.options["field"]
        outer = None if schema is None else Schema("struct", fields=(Field(name, schema),))
        return self.with_half(record, outer, {name: data})


class Flatten(HalfTransformation):
    """Nested structs become fields of one level, their names joined by the delimiter."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define("delimiter", Type.STRING, ".", Importance.MEDIUM, "Between the parts of a name.")

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        flat: dict[str, Any] = {}
        self._flatten("", self.struct(record), flat)
        if schema is not None:
            fields: list[Field] = []
            self._flatten_schema("", schema, False, fields)
            flat = {f.name: flat.get(f.name) for f in fields}
            schema = schema.with_fields(tuple(fields))
        return self.with_half(record, schema, flat)

    def _flatten(self, prefix: str, data: Mapping[str, Any], flat: dict[str, Any]) -> None:
        for name, value in data.items():
            full = f"{prefix}{self.options['delimiter']}{name}" if prefix else str(name)
            if isinstance(value, Mapping):
                self._flatten(full, value, flat)
            else:
                flat[full] = value

    def _flatten_schema(self, prefix: str, schema: Schema, optional: bool, fields: list[Field]) -> None:
        for f in schema.fields:
            full = f"{prefix}{self.options['delimiter']}{f.name}" if prefix else f.name
            maybe = optional or f.schema.optional
            if f.schema.type == "struct":
                self._flatten_schema(full, f.schema, maybe, fields)
            else:
                s = f.schema
                fields.append(
                    Field(
                        full,
                        Schema(s.type, maybe, s.name, s.version, s.doc, s.default, s.parameters, (), s.keys, s.values),
                    )
                )


class ValueToKey(Transformation):
    """The key becomes some fields of the value. On a source only: a sink's keys have their order already."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("fields", Type.LIST, importance=Importance.HIGH, documentation="The fields, in order.")
            .define("replace.null.with.default", Type.BOOLEAN, True, Importance.MEDIUM, "A null becomes the default.")
        )

    def apply(self, record: R) -> R | None:
        if not isinstance(record.value, Mapping):
            raise DataError(f"ValueToKey needs a struct or a map, not {type(record.value).__name__}")
        names = self.options["fields"]
        for name in names:
            if name not in record.value:
                raise DataError(f"ValueToKey: there is no field {name!r}")
        key = {name: record.value[name] for name in names}
        schema = record.value_schema
        if schema is None:
            return record.new(key=key, key_schema=None)
        fields = tuple(Field(n, schema.field(n) or infer(key[n]) or STRING) for n in names)
        return record.new(key=key, key_schema=Schema("struct", fields=fields))
