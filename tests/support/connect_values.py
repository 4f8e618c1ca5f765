"""Random schemas and values of Kafka Connect: every type, logical ones, defaults, nulls, nested."""

from __future__ import annotations

import random
import struct
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from keyorder.connector.connect.api.schema import (
    DATE,
    DATE_NAME,
    DECIMAL_NAME,
    INTEGERS,
    TIME,
    TIME_NAME,
    TIMESTAMP,
    TIMESTAMP_NAME,
    Field,
    Schema,
    decimal_schema,
    frozen,
    scaled,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
LEAVES = (*INTEGERS, "float32", "float64", "boolean", "string", "bytes", "decimal", "date", "time", "timestamp")
TEXTS = ("", "a", "ä€😀", 'quo"te\\', "\x00\x1f\x7f\n\t/", "true", "12", "x" * 40)
FLOATS = (0.0, -0.0, 1.0, 0.1, 1e7, 1e-3, 9.999e-4, 1e23, 123456.789, 5e-324, 1.7976931348623157e308, 2e-3, 3.0e10)


class Values:
    """One seed is one sequence."""

    def __init__(self, seed: int, any_key: bool = True) -> None:
        self.random = random.Random(seed)
        self._any_key = any_key

    def schema(self, depth: int = 3, kind: str | None = None, plain: bool = False) -> Schema:
        """A schema; plain: no name of its own, required, no default."""
        r = self.random
        kind = kind or r.choice([*LEAVES, "struct", "array", "map"] if depth else LEAVES)
        made = self._bare(kind, depth)
        if plain:
            return made
        parts: dict[str, Any] = {slot: getattr(made, slot) for slot in made.__slots__}
        parts["optional"] = r.random() < 0.4
        if made.name is None and r.random() < 0.3:
            parts["name"] = r.choice(["N", "a.b.C"])
            parts["version"] = r.choice([None, 1, 7])
        if r.random() < 0.2:
            parts["doc"] = r.choice(["what it is", 'a "doc"'])
        if made.name is None and r.random() < 0.2:
            parts["parameters"] = {"p": "q", "a": "b"}
        if kind not in ("struct", "map") and r.random() < 0.3:
            parts["default"] = self.value(made)
        return Schema(**parts)

    def _bare(self, kind: str, depth: int) -> Schema:
        r = self.random
        if kind == "struct":
            names = r.sample(["a", "b", "c", "long name", "é", "z9", "_x"], r.randrange(0, 5))
            return Schema("struct", fields=tuple(Field(name, self.schema(depth - 1)) for name in names))
        if kind == "array":
            return Schema("array", values=self.schema(depth - 1))
        if kind == "map":
            keys = [*INTEGERS, "string", "boolean", "float64", "float32", "date"] if self._any_key else ["string"]
            return Schema("map", keys=self.schema(0, r.choice(keys), plain=True), values=self.schema(depth - 1))
        return {
            "decimal": decimal_schema(r.choice([0, 2, 5])),
            "date": DATE,
            "time": TIME,
            "timestamp": TIMESTAMP,
        }.get(kind) or Schema(kind)

    def value(self, schema: Schema) -> Any:
        """A value that fits; null where it may be."""
        r = self.random
        if schema.optional and r.random() < 0.25:
            return None
        if schema.type == "struct":
            return {f.name: self.value(f.schema) for f in schema.fields}
        if schema.type == "array":
            assert schema.values is not None
            return [self.value(schema.values) for _ in range(r.randrange(0, 4))]
        if schema.type == "map":
            assert schema.keys is not None
            assert schema.values is not None
            return {frozen(self.value(schema.keys)): self.value(schema.values) for _ in range(r.randrange(0, 20))}
        return self.leaf(schema)

    def leaf(self, schema: Schema) -> Any:
        """A value of a primitive or a logical type."""
        r = self.random
        if schema.name == DECIMAL_NAME:
            return scaled(r.choice([0, 1, -1, 12345, -99, 10**30, 128, -128, 255]), schema.scale)
        if schema.name == DATE_NAME:
            return date(1970, 1, 1) + timedelta(days=r.choice([0, 1, -1, 19_000, -300_000, 2_000_000]))
        if schema.name == TIME_NAME:
            return time(r.randrange(24), r.randrange(60), r.randrange(60), r.randrange(1000) * 1000)
        if schema.name == TIMESTAMP_NAME:
            return EPOCH + timedelta(milliseconds=r.choice([0, 1, -1, 86_400_000, 1_700_000_000_123, -5 * 10**13]))
        if schema.type in INTEGERS:
            bound = INTEGERS[schema.type]
            return r.choice([0, 1, -1, 42, bound - 1, -bound])
        if schema.type == "float32":
            return struct.unpack("f", struct.pack("f", r.choice([0.0, 0.1, 1.5, -3.4e38, 1e-45, 16777216.0, 1e10])))[0]
        if schema.type == "float64":
            return r.choice(FLOATS)
        if schema.type == "boolean":
            return r.random() < 0.5
        if schema.type == "string":
            return r.choice(TEXTS)
        return r.choice([b"", b"\x00\xff", b"abc"])

    def plain(self, depth: int = 3) -> Any:
        """Data without a schema, as JSON has it."""
        r = self.random
        pick = r.randrange(0, 7 if depth else 5)
        if pick == 5:
            return [self.plain(depth - 1) for _ in range(r.randrange(0, 4))]
        if pick == 6:
            names = ["a", "b", "name", "id", "Aa", "BB", "é", "value", "time", *(f"field_{i}" for i in range(30))]
            return {name: self.plain(depth - 1) for name in r.sample(names, r.randrange(0, r.choice([4, 16, 30])))}
        return (None, r.random() < 0.5, r.choice([0, -1, 7, 2**40]), r.choice(FLOATS), r.choice(TEXTS))[pick]
