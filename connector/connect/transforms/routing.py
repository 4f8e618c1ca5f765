"""Transforms of topics and headers: RegexRouter, TimestampRouter, InsertHeader, DropHeaders, HeaderFrom, Filter."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.schema import infer
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import Regex, ValidString
from .base import HalfTransformation, R, Transformation, set_field
from .types import format_time


class RegexRouter(Transformation):
    """Renames the topic when all of it matches."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("regex", Type.STRING, importance=Importance.HIGH, documentation="To match.", validator=Regex())
            .define("replacement", Type.STRING, importance=Importance.HIGH, documentation="With $1, $2 for groups.")
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._regex = re.compile(self.options["regex"])
        self._replacement = re.sub(r"\$(\d+)", r"\\g<\1>", self.options["replacement"].replace("\\", "\\\\"))

    def apply(self, record: R) -> R | None:
        match = self._regex.fullmatch(record.topic)
        return record if match is None else record.new(topic=match.expand(self._replacement))


class TimestampRouter(Transformation):
    """Puts the record's time into the topic's name."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("topic.format", Type.STRING, "${topic}-${timestamp}", Importance.HIGH, "The new name.")
            .define("timestamp.format", Type.STRING, "yyyyMMdd", Importance.HIGH, "As Java's SimpleDateFormat, in UTC.")
        )

    def apply(self, record: R) -> R | None:
        if record.timestamp is None:
            raise DataError("TimestampRouter: the record has no timestamp")
        text = format_time(record.timestamp, self.options["timestamp.format"])
        name = self.options["topic.format"].replace("${topic}", record.topic).replace("${timestamp}", text)
        return record.new(topic=name)


class InsertHeader(Transformation):
    """Adds a header with a fixed value."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("header", Type.STRING, importance=Importance.HIGH, documentation="Its name.")
            .define("value.literal", Type.STRING, importance=Importance.HIGH, documentation="Its value.")
        )

    def apply(self, record: R) -> R | None:
        new = record.new()
        new.headers.add(self.options["header"], self.options["value.literal"])
        return new


class DropHeaders(Transformation):
    """Drops headers by name."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define("headers", Type.LIST, importance=Importance.HIGH, documentation="Their names.")

    def apply(self, record: R) -> R | None:
        new = record.new()
        for name in self.options["headers"]:
            new.headers.remove(name)
        return new


class HeaderFrom(HalfTransformation):
    """Copies or moves fields into headers."""

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("fields", Type.LIST, importance=Importance.HIGH, documentation="The fields.")
            .define("headers", Type.LIST, importance=Importance.HIGH, documentation="The headers, in the same order.")
            .define("operation", Type.STRING, importance=Importance.HIGH, validator=ValidString("move", "copy"))
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        if len(self.options["fields"]) != len(self.options["headers"]):
            raise ConfigError("headers", "another number than of fields", "name one header for each field")

    def apply(self, record: R) -> R | None:
        schema, data = self.half(record)
        if data is None:
            return record
        fields = self.struct(record)
        headers = record.headers.copy()
        for name, header in zip(self.options["fields"], self.options["headers"], strict=True):
            if name not in fields:
                continue
            value = fields.pop(name) if self.options["operation"] == "move" else fields[name]
            headers.add(header, value, (schema.field(name) if schema is not None else None) or infer(value))
            if self.options["operation"] == "move":
                schema = set_field(schema, name, None)
        return self.with_half(record, schema, fields).new(headers=headers)


class Filter(Transformation):
    """Drops every record it is given: used with a predicate."""

    def apply(self, record: R) -> R | None:
        return None
