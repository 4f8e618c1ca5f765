"""What a transform and a predicate are; the halves of a record that `$Key` and `$Value` name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from ..api.errors import DataError
from ..api.records import ConnectRecord
from ..api.schema import Field, Schema
from ..config.configdef import ConfigDef
from ..config.keys import NO_DEFAULT_VALUE, Importance, Type
from ..config.validators import NonEmptyList

R = TypeVar("R", bound=ConnectRecord)
_SCHEMAS = 16


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


class UpdatedSchemas:
    """What a transform makes of each schema, kept for the last few of them."""

    def __init__(self, make: Callable[[Schema], Schema]) -> None:
        self._make = make
        # By id: the schema is kept beside it, so that its id stays its own.
        self._known: OrderedDict[int, tuple[Schema, Schema]] = OrderedDict()

    def of(self, schema: Schema) -> Schema:
        """The schema that goes with changed data."""
        found = self._known.get(id(schema))
        if found is None:
            found = self._known[id(schema)] = (schema, self._make(schema))
            if len(self._known) > _SCHEMAS:
                self._known.popitem(last=False)
        return found[1]


def null_or_default(definition: ConfigDef) -> ConfigDef:
    """The setting of all transforms that read fields."""
    return definition.define(
        "replace.null.with.default",
        Type.BOOLEAN,
        True,
        Importance.MEDIUM,
        "Whether a null in a field whose schema has a default is read as the default.",
    )


def needed_list(setting: str, documentation: str) -> ConfigDef:
    """The definition of one list that may not be empty, such as the fields that a transform is about."""
    return ConfigDef().define(
        setting, Type.LIST, NO_DEFAULT_VALUE, Importance.HIGH, documentation, validator=NonEmptyList()
    )


def fields_of(schema: Schema | None, data: Any, purpose: str) -> Mapping[str, Any]:
    """The fields of a struct, or of a map where there is no schema. Raises DataError for anything else, null included."""
    if schema is None:
        if not isinstance(data, Mapping):
            raise DataError(f"{purpose} needs a map, not {_named(data)}: without a schema only maps have fields")
        return data
    if schema.type != "struct" or not isinstance(data, Mapping):
        raise DataError(f"{purpose} needs a struct, not {_named(data) if schema.type == 'struct' else schema.type}")
    return data


def _named(data: Any) -> str:
    return "null" if data is None else type(data).__name__


def field_value(field: Field, data: Mapping[str, Any], defaults: bool) -> Any:
    """A field's value; its schema's default for a null, if `defaults`."""
    value = data.get(field.name)
    return field.schema.default if value is None and defaults else value


def required(field: Field, value: Any) -> Any:
    """The value, which the changed struct's schema must allow to be null if it is."""
    if value is None and not field.schema.optional:
        raise DataError(f"field {field.name!r} is null, but its schema is not optional")
    return value


def bare_struct(schema: Schema, fields: tuple[Field, ...]) -> Schema:
    """A struct of the same name, version, doc and parameters: required and without a default, as the JVM's transforms make it."""
    return Schema("struct", False, schema.name, schema.version, schema.doc, None, schema.parameters, fields)
