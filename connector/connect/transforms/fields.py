"""Transforms of fields: ReplaceField, InsertField, ExtractField, HoistField, Flatten, ValueToKey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.java import hash_order
from ..api.records import SinkRecord
from ..api.schema import INT32, INT64, STRING, TIMESTAMP, Field, Schema, moment
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import ValidString
from .base import (
    HalfTransformation,
    R,
    Transformation,
    UpdatedSchemas,
    bare_struct,
    field_value,
    fields_of,
    needed_list,
    null_or_default,
    required,
)
from .field_path import FieldPath


class ReplaceField(HalfTransformation):
    """Keeps, drops or renames fields."""

    @classmethod
    def config(cls) -> ConfigDef:
        return null_or_default(
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
            if not (old and separator and new) or ":" in new:
                raise ConfigError("renames", repr(pair), "write old:new")
            self._renames[old] = new
        self._old = {new: old for old, new in hash_order(self._renames).items()}  # of two the JVM takes its map's last
        self._schemas = UpdatedSchemas(self._updated)

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        fields = fields_of(schema, data, "ReplaceField")
        if schema is None:
            kept = {self._renames.get(name, name): value for name, value in fields.items() if self._keeps(name)}
            return self.with_half(record, None, hash_order(kept, sized=len(fields)))
        updated, defaults = self._schemas.of(schema), self.options["replace.null.with.default"]
        before = {f.name: f for f in schema.fields}
        made = {}
        for f in updated.fields:
            old = self._old.get(f.name, f.name)
            if old not in before:  # a field that bears the new name of one that is not there
                raise DataError(f"ReplaceField: {old!r}, which is to be called {f.name!r}, is no field")
            if before[old].schema != f.schema:  # two new names for one field: the first is another field's own
                raise DataError(f"ReplaceField: {old!r} and another field are to be called {f.name!r}")
            made[f.name] = required(f, field_value(before[old], fields, defaults))
        return self.with_half(record, updated, made)

    def _updated(self, schema: Schema) -> Schema:
        kept = (Field(self._renames.get(f.name, f.name), f.schema) for f in schema.fields if self._keeps(f.name))
        return bare_struct(schema, tuple(kept))

    def _keeps(self, name: str) -> bool:
        included = not self.options["include"] or name in self.options["include"]
        return included and name not in self.options["exclude"]


class InsertField(HalfTransformation):
    """Adds topic, partition, offset, timestamp or a fixed text as fields. A name may end in ! (required) or ? (optional)."""

    _KINDS = {"topic": STRING, "partition": INT32, "offset": INT64, "timestamp": TIMESTAMP, "static": STRING}

    @classmethod
    def config(cls) -> ConfigDef:
        definition = ConfigDef()
        for name in (*(f"{kind}.field" for kind in cls._KINDS), "static.value"):
            definition.define(name, Type.STRING, None, Importance.MEDIUM, f"{name.partition('.')[0]}: where to put it.")
        return null_or_default(definition)

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        given = {kind: self.options[f"{kind}.field"] for kind in self._KINDS}
        # One sign alone is cut off: "a?!" is the required field "a?".
        self._names = {
            kind: (name[:-1] if name.endswith(("!", "?")) else name, not name.endswith("!"))
            for kind, name in given.items()
            if name is not None
        }
        if not self._names:
            raise ConfigError("topic.field", "no field is to be inserted", "set one of the .field settings")
        if "static" in self._names and self.options["static.value"] is None:
            raise ConfigError("static.value", "it is missing", "give the value of static.field")
        self._schemas = UpdatedSchemas(self._updated)

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        fields = fields_of(schema, data, "InsertField")
        offered: dict[str, Any] = {"topic": record.topic, "static": self.options["static.value"]}
        if record.timestamp is not None:
            offered["timestamp"] = record.timestamp if schema is None else moment(record.timestamp)
        if isinstance(record, SinkRecord):
            offered |= {"partition": record.partition, "offset": record.offset}
        elif "offset" in self._names:
            raise DataError("InsertField: offset.field is for sinks only")
        inserted = {name: offered[kind] for kind, (name, _) in self._names.items() if kind in offered}
        if schema is None:
            return self.with_half(record, None, hash_order({**fields, **inserted}, copied=len(fields)))
        defaults = self.options["replace.null.with.default"]
        made = {f.name: required(f, field_value(f, fields, defaults)) for f in schema.fields}
        return self.with_half(record, self._schemas.of(schema), {**made, **inserted})

    def _updated(self, schema: Schema) -> Schema:
        new = (
            Field(name, replace(self._KINDS[kind], optional=optional)) for kind, (name, optional) in self._names.items()
        )
        return bare_struct(schema, (*schema.fields, *new))


class ExtractField(HalfTransformation):
    """The whole becomes one of its fields."""

    @classmethod
    def config(cls) -> ConfigDef:
        return null_or_default(
            ConfigDef()
            .define("field", Type.STRING, importance=Importance.MEDIUM, documentation="The field.")
            .define(
                "field.syntax.version",
                Type.STRING,
                "V1",
                Importance.HIGH,
                "V1: `field` is a name. V2: a path of names with dots between, in backticks where a name has dots.",
                validator=ValidString("V1", "V2", ignore_case=True),
            )
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._path = FieldPath("field", self.options["field"], self.options["field.syntax.version"].upper() == "V2")

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        field = None if schema is None else self._path.field(schema)
        if schema is not None and field is None:
            raise DataError(f"ExtractField: there is no field {self.options['field']!r}")
        inner = None if field is None else field.schema
        if data is None:
            return self.with_half(record, inner, None)
        fields = fields_of(schema, data, "ExtractField")
        value = self._path.value(schema, fields, self.options["replace.null.with.default"])
        return self.with_half(record, inner, value)


class HoistField(HalfTransformation):
    """The whole becomes a field of a new struct."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define("field", Type.STRING, importance=Importance.MEDIUM, documentation="Its name.")

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._schemas = UpdatedSchemas(lambda schema: Schema("struct", fields=(Field(self.options["field"], schema),)))

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if schema is None:
            return self.with_half(record, None, {self.options["field"]: data})
        outer = self._schemas.of(schema)
        return self.with_half(record, outer, {self.options["field"]: required(outer.fields[0], data)})


class Flatten(HalfTransformation):
    """Nested structs become fields of one level, their names joined by the delimiter."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define("delimiter", Type.STRING, ".", Importance.MEDIUM, "Between the parts of a name.")

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._schemas = UpdatedSchemas(self._updated)

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        fields = fields_of(schema, data, "Flatten")
        flat: dict[str, Any] = {}
        if schema is None:
            self._flatten("", fields, flat)
            return self.with_half(record, None, flat)
        updated = self._schemas.of(schema)
        self._flatten_struct("", schema, fields, flat, {f.name: f for f in updated.fields})
        return self.with_half(record, updated, flat)

    def _name(self, prefix: str, name: Any) -> str:
        return f"{prefix}{self.options['delimiter']}{name}" if prefix else str(name)

    def _flatten(self, prefix: str, data: Mapping[str, Any], flat: dict[str, Any]) -> None:
        for name, value in data.items():
            full = self._name(prefix, name)
            if isinstance(value, Mapping):
                self._flatten(full, value, flat)
            else:
                flat[full] = value

    def _flatten_struct(
        self, prefix: str, schema: Schema, data: Mapping[str, Any], flat: dict[str, Any], made: Mapping[str, Field]
    ) -> None:
        for f in schema.fields:
            full, value = self._name(prefix, f.name), field_value(f, data, True)
            if f.schema.type != "struct":
                flat[full] = required(made[full], value)
            elif value is not None:
                self._flatten_struct(full, f.schema, value, flat, made)

    def _updated(self, schema: Schema) -> Schema:
        fields: list[Field] = []
        self._flatten_schema("", schema, schema.optional, schema.default, fields)
        return bare_struct(schema, tuple(fields))

    def _flatten_schema(self, prefix: str, schema: Schema, optional: bool, default: Any, fields: list[Field]) -> None:
        for f in schema.fields:
            full, inner = self._name(prefix, f.name), f.schema
            maybe, own = optional or inner.optional, inner.default
            if own is None and default is not None:
                own = field_value(f, default, True)
            if inner.type == "map":
                raise DataError(f"Flatten: field {full!r} is a map, which has no fixed fields: take it out before")
            if inner.type == "struct":
                self._flatten_schema(full, inner, maybe, own, fields)
            else:
                fields.append(Field(full, replace(inner, optional=maybe, default=own)))


class ValueToKey(Transformation):
    """The key becomes some fields of the value. On a source only: a sink's keys have their order already."""

    @classmethod
    def config(cls) -> ConfigDef:
        return null_or_default(needed_list("fields", "The fields, in order."))

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._schemas = UpdatedSchemas(self._key_schema)

    def apply(self, record: R) -> R | None:
        schema, names = record.value_schema, self.options["fields"]
        fields = fields_of(schema, record.value, "ValueToKey")
        if schema is None:
            key = hash_order({name: fields.get(name) for name in names}, sized=len(names))
            return record.new(key=key, key_schema=None)
        made, defaults = self._schemas.of(schema), self.options["replace.null.with.default"]
        return record.new(
            key={f.name: required(f, field_value(f, fields, defaults)) for f in made.fields}, key_schema=made
        )

    def _key_schema(self, schema: Schema) -> Schema:
        made = []
        for name in self.options["fields"]:
            inner = schema.field(name)
            if inner is None:
                raise DataError(f"ValueToKey: there is no field {name!r}")
            made.append(Field(name, inner))
        return Schema("struct", fields=tuple(made))
