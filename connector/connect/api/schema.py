"""Schemas of keys and values, with the types of Kafka Connect. A record without one carries plain Python data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import DataError

# Connect's type names and the Python types whose values they take.
PRIMITIVES: dict[str, tuple[type, ...]] = {
    "int8": (int,),
    "int16": (int,),
    "int32": (int,),
    "int64": (int,),
    "float32": (float, int),
    "float64": (float, int),
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
}
TYPES = (*PRIMITIVES, "struct", "array", "map")


@dataclass(frozen=True, slots=True)
class Field:
    """One named field of a struct."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """What a value looks like.

    type: one of TYPES. optional: None is allowed. name, version, doc, parameters: as in Connect.
    fields: of a struct, whose values are dicts. values: of an array (lists) or a map. keys: of a map.
    """

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Any = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    keys: Schema | None = None
    values: Schema | None = None

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise DataError(f"{self.type!r} is no schema type: use one of {', '.join(TYPES)}")

    def field(self, name: str) -> Schema | None:
        """The schema of a struct's field."""
        return next((f.schema for f in self.fields if f.name == name), None)

    def with_fields(self, fields: tuple[Field, ...]) -> Schema:
        """The same struct with other fields."""
        return replace(self, fields=fields)

    def check(self, value: Any, where: str = "value") -> None:
        """Raise DataError, which names the place, when the value does not fit."""
        if value is None:
            if not self.optional and self.default is None:
                raise DataError(f"{where} is null, but its schema is not optional")
            return
        if self.type in PRIMITIVES:
            fits = isinstance(value, PRIMITIVES[self.type]) and (self.type == "boolean") == isinstance(value, bool)
            if not fits:
                raise DataError(f"{where} is {type(value).__name__}, its schema says {self.type}")
        elif self.type == "struct":
            if not isinstance(value, Mapping):
                raise DataError(f"{where} is {type(value).__name__}, its schema says struct: give a dict")
            for f in self.fields:
                f.schema.check(value.get(f.name), f"{where}.{f.name}")
        elif self.type == "array":
            for i, item in enumerate(value):
                (self.values or STRING).check(item, f"{where}[{i}]")
        else:
            for key, item in value.items():
                (self.values or STRING).check(item, f"{where}[{key!r}]")


STRING, BYTES, BOOLEAN = Schema("string"), Schema("bytes"), Schema("boolean")
INT32, INT64, FLOAT64 = Schema("int32"), Schema("int64"), Schema("float64")
TIMESTAMP = Schema("int64", name="org.apache.kafka.connect.data.Timestamp", version=1)


def infer(value: Any, optional: bool = True) -> Schema | None:
    """The schema that a plain Python value stands for; None for None. Raises DataError for what has none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return Schema("boolean", optional)
    if isinstance(value, int):
        return Schema("int64", optional)
    if isinstance(value, float):
        return Schema("float64", optional)
    if isinstance(value, str):
        return Schema("string", optional)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Schema("bytes", optional)
    if isinstance(value, Mapping):
        fields = [Field(str(k), infer(v) or Schema("string", True)) for k, v in value.items()]
        return Schema("struct", optional, fields=tuple(fields))
    if isinstance(value, (list, tuple)):
        first = next((item for item in value if item is not None), "")
        return Schema("array", optional, values=infer(first))
    raise DataError(f"a value of type {type(value).__name__} has no schema: convert it to plain data first")
