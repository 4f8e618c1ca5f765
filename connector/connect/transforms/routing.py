"""Transforms of topics and headers: RegexRouter, InsertHeader, DropHeaders, HeaderFrom, Filter."""

from __future__ import annotations

from collections.abc import Mapping

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.java import hash_order
from ..api.java_regex import Replacement, compiled
from ..api.schema import Schema
from ..api.text import parse_text
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonNull, ValidString
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


class RegexRouter(Transformation):
    """Renames the topic when all of it matches."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("regex", Type.STRING, importance=Importance.HIGH, documentation="To match.")
            .define("replacement", Type.STRING, importance=Importance.HIGH, documentation="With $1, $2 for groups.")
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        try:
            self._regex = compiled(self.options["regex"])
        except ValueError as error:
            raise ConfigError("regex", f"{self.options['regex']!r}: {error}", "write a regular expression") from None
        try:
            self._replacement = Replacement(self._regex, self.options["replacement"])
        except ValueError as error:
            raise ConfigError(
                "replacement", f"{self.options['replacement']!r}: {error}", "name groups of regex by $1 or ${name}"
            ) from None

    def apply(self, record: R) -> R | None:
        topic = record.topic
        if self._regex.fullmatch(topic) is None:
            return record
        found = self._regex.search(topic)  # the first match may be shorter than the whole, as in the JVM
        assert found is not None
        return record.new(topic=f"{topic[: found.start()]}{self._replacement.of(found)}{topic[found.end() :]}")


class InsertHeader(Transformation):
    """Adds a header with a fixed value, of the type that its text looks like."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("header", Type.STRING, importance=Importance.HIGH, documentation="Its name.", validator=NonNull())
            .define(
                "value.literal",
                Type.STRING,
                importance=Importance.HIGH,
                documentation="Its value.",
                validator=NonNull(),
            )
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._schema, self._value = parse_text(self.options["value.literal"])

    def apply(self, record: R) -> R | None:
        new = record.new()
        new.headers.add(self.options["header"], self._value, self._schema)
        return new


class DropHeaders(Transformation):
    """Drops headers by name."""

    @classmethod
    def config(cls) -> ConfigDef:
        return needed_list("headers", "Their names.")

    def apply(self, record: R) -> R | None:
        new = record.new()
        for name in self.options["headers"]:
            new.headers.remove(name)
        return new


class HeaderFrom(HalfTransformation):
    """Copies or moves fields into headers."""

    @classmethod
    def config(cls) -> ConfigDef:
        return null_or_default(
            needed_list("fields", "The fields.")
            .merged(needed_list("headers", "The headers, in that order."))
            .define("operation", Type.STRING, importance=Importance.HIGH, validator=ValidString("move", "copy"))
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        if len(self.options["fields"]) != len(self.options["headers"]):
            raise ConfigError("headers", "another number than of fields", "name one header for each field")
        self._moves = self.options["operation"] == "move"
        self._schemas = UpdatedSchemas(self._left)

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        fields = fields_of(schema, data, "HeaderFrom")
        headers, names, defaults = (
            record.headers.copy(),
            self.options["fields"],
            self.options["replace.null.with.default"],
        )
        known = {} if schema is None else {f.name: f for f in schema.fields}
        for name, header in zip(names, self.options["headers"], strict=True):
            if schema is None:
                headers.add(header, fields.get(name), None)
            elif name in known:
                value = required(known[name], field_value(known[name], fields, defaults))
                headers.add(header, value, known[name].schema)
            else:
                raise DataError(f"HeaderFrom: there is no field {name!r}")
        if schema is None:
            left = {name: value for name, value in fields.items() if not (self._moves and name in names)}
            return self.with_half(record, None, hash_order(left, copied=len(fields))).new(headers=headers)
        if not self._moves:
            return record.new(headers=headers)
        updated = self._schemas.of(schema)
        kept = {f.name: required(f, field_value(f, fields, defaults)) for f in updated.fields}
        return self.with_half(record, updated, kept).new(headers=headers)

    def _left(self, schema: Schema) -> Schema:
        return bare_struct(schema, tuple(f for f in schema.fields if f.name not in self.options["fields"]))


class Filter(Transformation):
    """Drops every record it is given: used with a predicate."""

    def apply(self, record: R) -> R | None:
        return None
