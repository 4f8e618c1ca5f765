"""What a transform and a predicate are; the halves of a record that `$Key` and `$Value` name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from ..api.errors import DataError
from ..api.records import ConnectRecord
from ..api.schema import Field, Schema
from ..config.configdef import ConfigDef

R = TypeVar("R", bound=ConnectRecord)


class Transformation(ABC):
    """Changes a record, or drops it by returning None."""

    options: dict[str, Any]

    @classmethod
    def config(cls) -> ConfigDef:
        """The settings below `transforms.<alias>.`."""
        return ConfigDef()

    def configure(self, config: Mapping[str, str]) -> None:
        """Called once. Raises ConfigError."""
        self.options = type(self).config().parse(config)

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """The record as it goes on, None to drop it. Raises DataError."""

    def close(self) -> None:  # noqa: B027
        """Called once at the end."""


class Predicate(ABC):
    """Says whether a transform is for a record."""

    options: dict[str, Any]

    @classmethod
    def config(cls) -> ConfigDef:
        """The settings below `predicates.<name>.`."""
        return ConfigDef()

    def configure(self, config: Mapping[str, str]) -> None:
        """Called once. Raises ConfigError."""
        self.options = type(self).config().parse(config)

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Whether it holds."""


class HalfTransformation(Transformation):
    """A transform of either the key or the value: `Name$Key` and `Name$Value` are its two classes."""

    on_key: ClassVar[bool] = False

    def half(self, record: ConnectRecord) -> tuple[Schema | None, Any]:
        """Schema and data of the half that this works on."""
        return (record.key_schema, record.key) if self.on_key else (record.value_schema, record.value)

    def with_half(self, record: R, schema: Schema | None, data: Any) -> R:
        """The record with another half."""
        if self.on_key:
            return record.new(key_schema=schema, key=data)
        return record.new(value_schema=schema, value=data)

    def struct(self, record: ConnectRecord) -> dict[str, Any]:
        """The half as a dict of fields. Raises DataError when it has none."""
        data = self.half(record)[1]
        if not isinstance(data, Mapping):
            raise DataError(f"{type(self).__name__} needs a struct or a map, not {type(data).__name__}")
        return dict(data)


def set_field(schema: Schema | None, name: str, new: Schema | None) -> Schema | None:
    """A struct's schema with one field set (or dropped, by None); schemaless stays so."""
    if schema is None:
        return None
    kept = tuple(f for f in schema.fields if f.name != name)
    if new is None:
        return schema.with_fields(kept)
    if any(f.name == name for f in schema.fields):
        return schema.with_fields(tuple(Field(name, new) if f.name == name else f for f in schema.fields))
    return schema.with_fields((*kept, Field(name, new)))
