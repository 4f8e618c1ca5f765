"""Random records through transforms with random settings, and random regular expressions of Java's. One seed is one case."""

from __future__ import annotations

import random
from typing import Any

from keyorder.connector.connect import Schema, SourceRecord
from support.connect_cases import Case, sink
from support.connect_values import Values

NAMES = ("a", "b", "c", "long name", "é", "z9", "_x")
_TYPES = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "INT32", "String")
_PATTERNS = (
    "yyyy-MM-dd",
    "yyyyMMdd HH:mm:ss.SSS",
    "EEE d MMM yy h a",
    "yyyy-MM-dd'T'HH:mm:ssXXX",
    "",
    "  ",
    "u",
    "G yyyy DDD",
)
_REPLACEMENTS = ("0", "12", "x", "1e2", "-5", "007", " 5", "+5", "1.0", "128", "99999999999", "true", "NaN", "0x1")
_PIECES = (
    "a", "b", "s", "-", "_", "\\.", ".", "\\w", "\\d", "\\D", "\\W", "\\s", "\\S", "\\b", "\\B", "^", "$", "\\A", "\\z",
    "\\Z", "*", "+", "?",
    "*?", "+?", "??", "*+", "++", "{2}", "{1,2}", "{,3}", "{1,}", "{0,1}?", "(", ")", "(?:", "(?i)", "(?i:", "(?s)", "(?x)",
    "(?u)", "(?a)",
    "(?d)", "(?-i)", "(?i-s:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>", "(?P<n>", "\\1", "\\2", "\\k<n>", "(?P=n)",
    "|", "[", "]", "[^",
    "[a-z]", "[^a-z]", "[a[b]]", "[a-z&&[^s]]", "[]a]", "[a-]", "[-a]", "[\\w.]", "[[:alpha:]]", "&&", "--", "||", "\\Q",
    "\\E", "\\Q.\\E",
    "\\p{L}", "\\p{Alpha}", "\\P{Alpha}", "\\pL", "\\x61", "\\u0061", "\\x{61}", "\\0141", "\\141", "\\cA", "\\e", "\\a",
    "\\v", "\\h", "\\R",
    "\\N{LATIN SMALL LETTER A}", "\\_", "\\-", "\\i", "\\y", "(?#c)", "{", "}", "#", " ", "é", "some", "topic", "1",
)  # fmt: skip
_TOPICS = ("some.topic", "a", "ab-1", "sos", "aab", "t_1.x", "S.O", "aa")
_FOR_GROUPS = ("<$0>", "$1", "x", "${n}", "$1$2", "\\$1", "$10", "$", "\\", "${1}", "a$0b", "", "${n", "$n")


def random_router(seed: int) -> Case:
    """A RegexRouter whose expression is put together from pieces, so that many are none."""
    r = random.Random(seed)
    regex = "".join(r.choice(_PIECES) for _ in range(r.randrange(1, 6)))
    if r.random() < 0.5:
        regex = f"({regex}){r.choice(['.*', '*', '', '(?<n>.*)'])}"
    if r.random() < 0.5:
        regex += ".*"
    config = {"regex": regex, "replacement": r.choice(_FOR_GROUPS[:3] if r.random() < 0.8 else _FOR_GROUPS)}
    return Case("RegexRouter", "", config, sink("v", Schema("string"), topic=r.choice(_TOPICS)))


def random_case(seed: int) -> Case:
    """A transform of fields with random settings, and a record of which some fit them."""
    values = _WithNulls(seed)
    r = values.random
    kind = r.choice(tuple(_CONFIGS))
    config = _CONFIGS[kind](_Pick(r))
    if kind not in ("Flatten", "HoistField") and r.random() < 0.3:
        config["replace.null.with.default"] = r.choice(["false", "true", "FALSE"])
    half = "" if kind == "ValueToKey" else "$Value" if r.random() < 0.8 else "$Key"
    schema: Schema | None = values.schema(3, "struct") if r.random() < 0.65 else values.schema(2)
    data: Any = values.value(schema)
    if r.random() < 0.2:
        schema, data = None, {name: values.plain(1) for name in r.sample(NAMES, r.randrange(0, 6))}
    time = r.choice([0, 1_580_702_706_789, None, -5])
    if half == "$Key":
        record = sink("v", Schema("string"), key=data, key_schema=schema, timestamp=time)
    else:
        record = sink(data, schema, timestamp=time)
    if r.random() < 0.2:
        given = {name: getattr(record, name) for name in ("key", "key_schema", "value", "value_schema", "timestamp")}
        return Case(kind + half, "", config, SourceRecord(topic="t", **given))
    return Case(kind + half, "", config, record)


class _WithNulls(Values):
    """Also null in fields that have a default."""

    def value(self, schema: Schema) -> Any:
        if schema.type != "struct" or (schema.optional and self.random.random() < 0.25):
            return super().value(schema)
        return {
            f.name: None if f.schema.default is not None and self.random.random() < 0.2 else self.value(f.schema)
            for f in schema.fields
        }


class _Pick:
    """Names of fields, of which some are not there, and lists of them."""

    def __init__(self, r: random.Random) -> None:
        self.random, self._between = r, r.choice([",", ", ", " , "])

    def name(self) -> str:
        r = self.random
        return r.choice((*NAMES, "none")) if r.random() < 0.95 else r.choice(["", " a", "A"])

    def names(self) -> list[str]:
        return [self.name() for _ in range(self.random.randrange(1, 4))]

    def list(self, words: list[str]) -> str:
        return self._between.join(words)

    def maybe(self, chance: float, **settings: Any) -> dict[str, str]:
        """Each setting by that chance; its value, one of its values, or what a function gives."""
        found = {}
        for name, value in settings.items():
            if self.random.random() < chance:
                value = value() if callable(value) else self.random.choice(value)
                found[name.replace("_", ".")] = value
        return found


def _cast(p: _Pick) -> dict[str, str]:
    kind = p.random.choice
    if p.random.random() < 0.3:
        return {"spec": kind((*_TYPES, "bytes"))}
    return {"spec": p.list([f"{name}:{kind(_TYPES)}" for name in p.names()])}


def _extract(p: _Pick) -> dict[str, str]:
    if p.random.random() < 0.4:
        return {"field": p.name()}
    return {"field": ".".join(p.names()), "field.syntax.version": p.random.choice(["V1", "V2", "v2"])}


def _header_from(p: _Pick) -> dict[str, str]:
    fields = p.names()
    headers = [p.random.choice(["h", "x", "y", "", " z"]) for _ in fields]
    return {
        "fields": p.list(fields),
        "headers": p.list(headers),
        "operation": p.random.choice(["move", "copy", "Move"]),
    }


def _insert(p: _Pick) -> dict[str, str]:
    def name() -> str:
        return p.name() + p.random.choice(["", "?", "!", "??", "?!"])

    where = {f"{kind}_field": name for kind in ("topic", "partition", "offset", "timestamp", "static")}
    return p.maybe(0.4, **where) | p.maybe(0.5, static_value=["", "v", "1"])


def _replace(p: _Pick) -> dict[str, str]:
    def renames() -> str:
        return p.list([f"{name}:{p.random.choice((*NAMES, 'q'))}" for name in p.names()])

    return p.maybe(0.4, exclude=lambda: p.list(p.names()), include=lambda: p.list(p.names())) | p.maybe(
        0.6, renames=renames
    )


def _times(p: _Pick) -> dict[str, str]:
    target = p.random.choice(["string", "unix", "Date", "Time", "Timestamp", "timestamp"])
    units = ["seconds", "milliseconds", "microseconds", "nanoseconds"]
    return {"target.type": target} | p.maybe(0.7, field=p.name, format=_PATTERNS, unix_precision=units)


_CONFIGS = {
    "Cast": _cast,
    "ExtractField": _extract,
    "Flatten": lambda p: p.maybe(0.6, delimiter=[".", "_", "", "é", " ", "::"]),
    "HeaderFrom": _header_from,
    "HoistField": lambda p: {"field": p.name()},
    "InsertField": _insert,
    "MaskField": lambda p: {"fields": p.list(p.names())} | p.maybe(0.6, replacement=_REPLACEMENTS),
    "ReplaceField": _replace,
    "SetSchemaMetadata": lambda p: p.maybe(
        0.7, schema_name=["N", "", "a b"], schema_version=["1", "0", "-3", "x", "2147483648", " 4"]
    ),
    "TimestampConverter": _times,
    "ValueToKey": lambda p: {"fields": p.list(p.names())},
}
