"""Values as text and back, as Kafka Connect's `Values` writes and reads them: headers, literals, casts to a string."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from .date_patterns import DatePattern
from .errors import DataError
from .java import double_text, float_text, to_float32
from .schema import BOOLEAN, DATE, STRING, TIME, TIMESTAMP, Schema, decimal_schema, decode_logical, epoch_ms, frozen

_DAY_MS = 86_400_000
_DATE, _TIME = DatePattern("yyyy-MM-dd"), DatePattern("HH:mm:ss.SSS'Z'")
_TIMESTAMP = DatePattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
# Length of a text: what it may be.
_TEMPORAL = {10: (_DATE, DATE), 13: (_TIME, TIME), 24: (_TIMESTAMP, TIMESTAMP)}


def to_text(schema: Schema | None, value: Any) -> str:
    """The text of a header's value: JSON-like for lists, maps and structs. Raises DataError for what has none."""
    return _text(schema, value, embedded=False)


def time_text(value: date | time | datetime) -> str:
    """A date, a time of day or a moment, in UTC. Java's form goes by the value: one of the first day of 1970 is a time of day."""
    found = epoch_ms(value)
    return (_TIME if found < _DAY_MS else _DATE if found % _DAY_MS == 0 else _TIMESTAMP).format(found)


def number_text(schema: Schema | None, value: float) -> str:
    """An int or a float as Java writes it; a float32 by its own digits."""
    if isinstance(value, float):
        return float_text(value) if schema is not None and schema.type == "float32" else double_text(value)
    if schema is not None and schema.type in ("float32", "float64"):
        return number_text(schema, float(value))
    return str(value)


def _text(schema: Schema | None, value: Any, embedded: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(schema, value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (date, time)):
        return time_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = base64.b64encode(bytes(value)).decode()
        return f'"{value}"' if embedded else value
    if isinstance(value, str):
        if not embedded:
            return value
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        inner = None if schema is None else schema.values
        return f"[{','.join(_text(inner, item, True) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(_entries(schema, value))}}}"
    raise DataError(f"a value of type {type(value).__name__} has no text form")


def _entries(schema: Schema | None, value: Mapping[Any, Any]) -> list[str]:
    if schema is not None and schema.type == "struct":
        return [
            f'"{f.name}":{_text(f.schema, f.schema.default if (v := value.get(f.name)) is None else v, True)}'
            for f in schema.fields
        ]
    keys, values = (None, None) if schema is None else (schema.keys, schema.values)
    return [f"{_text(keys, k, True)}:{_text(values, v, True)}" for k, v in value.items()]


def json_text(value: Any) -> str:
    """Plain JSON for a table or a file, its keys sorted: bytes as base64, Decimals and times as text. Raises DataError."""
    try:
        return json.dumps(value, sort_keys=True, default=lambda inner: _text(None, inner, False))
    except (TypeError, ValueError) as error:
        raise DataError(f"the value has no JSON: {error}") from error


_JAVA_DATE = DatePattern("EEE MMM dd HH:mm:ss zzz y")


def java_string(schema: Schema | None, value: Any) -> str:
    """What Java's toString() makes of a value: `[1, 2]`, `{a=1}`, `Struct{a=1}`. Raises DataError for bytes inside of it."""
    if value is None or isinstance(value, (bool, int, float, Decimal)):
        return _text(schema, value, False)
    if isinstance(value, str):
        return value
    if isinstance(value, (date, time)):
        return _JAVA_DATE.format(epoch_ms(value))
    if isinstance(value, (list, tuple)):
        inner = None if schema is None else schema.values
        return f"[{', '.join(java_string(inner, item) for item in value)}]"
    if isinstance(value, Mapping):
        if schema is not None and schema.type == "struct":
            present = ((f, value[f.name]) for f in schema.fields if value.get(f.name) is not None)
            return f"Struct{{{','.join(f'{f.name}={java_string(f.schema, v)}' for f, v in present)}}}"
        keys, values = (None, None) if schema is None else (schema.keys, schema.values)
        return f"{{{', '.join(f'{java_string(keys, k)}={java_string(values, v)}' for k, v in value.items())}}}"
    raise DataError(f"a {type(value).__name__} inside of a value has no text: use JsonConverter, or cast it before")


# -- reading ---------------------------------------------------------------------------------------------------------

Found = tuple["Schema | None", Any]
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")
_INT_KINDS = (("int8", 2**7), ("int16", 2**15), ("int32", 2**31), ("int64", 2**63))
_ORDER = ("int8", "int16", "int32", "int64", "float32", "float64")


def parse_text(text: str) -> Found:
    """(schema, value) by the text's look: null, booleans, numbers of the smallest type that holds them, dates, lists, maps; all
    else is a string. Kafka Connect's `Values.parseString`.
    """
    if not text:
        return STRING, text
    try:
        return _Parser(_Tokens(text)).parse(embedded=False)
    except RecursionError:  # deeper lists and maps than anybody has a use for
        return STRING, text


class _NoValueError(Exception):
    """The text is no list, map or embedded value; it is taken for a string."""


class _Tokens:
    """A text cut at : , { } [ ] and quotes that no backslash precedes."""

    def __init__(self, text: str) -> None:
        self.text, self._at = text, 0
        self._next: str | None = None
        self.previous: str | None = None

    def mark(self) -> int:
        return self._at - len(self._next or "")

    def rewind(self, position: int) -> None:
        self._at, self._next, self.previous = position, None, None

    def has_next(self) -> bool:
        return self._next is not None or self._at < len(self.text)

    def next(self) -> str:
        if self._next is None:
            self._next = self._cut()
        self.previous, self._next = self._next, None
        return self.previous

    def take(self, count: int) -> str | None:
        """The text of so many tokens, None if there are fewer."""
        start = self.mark()
        for _ in range(count):
            if not self.has_next():
                self.rewind(start)
                return None
            self.next()
        return self.text[start : self._at]

    def _cut(self) -> str:
        start, escaped = self._at, False
        while self._at < len(self.text):
            c = self.text[self._at]
            if c == "\\":
                escaped = not escaped
            elif c in ':,{}[]"' and not escaped:
                if start == self._at:
                    self._at += 1
                return self.text[start : self._at]
            else:
                escaped = False
            self._at += 1
        return self.text[start:]

    def consume(self, expected: str) -> bool:
        """Take the next token if it is this one; blank ones before it are skipped."""
        if self._next is None:
            if not self.has_next():
                return False
            self._next = self._cut()
        while not self._next.strip() and self._at < len(self.text):
            self._next = self._cut()
        if self._next.strip() != expected:
            return False
        self._next = None
        return True


class _Parser:
    def __init__(self, tokens: _Tokens) -> None:
        self._tokens = tokens

    def parse(self, embedded: bool) -> Found:
        tokens = self._tokens
        if not tokens.has_next():
            return None, None
        if embedded and tokens.consume('"'):
            return self._quoted()
        for word, found in (("null", (None, None)), ("true", (BOOLEAN, True)), ("false", (BOOLEAN, False))):
            start = tokens.mark()
            if tokens.consume(word) and (embedded or not tokens.has_next()):
                return found
            tokens.rewind(start)
        start = tokens.mark()
        try:
            if tokens.consume("["):
                return self._array()
            if tokens.consume("{"):
                return self._map()
        except _NoValueError:
            tokens.rewind(start)
        token = tokens.next()
        if not token.strip():
            return STRING, token
        return self._plain(embedded, token.strip())

    def _plain(self, embedded: bool, token: str) -> Found:
        if token[0].isdigit():
            start = self._tokens.mark()
            rest = self._tokens.take(4)
            found = _temporal(token + rest) if rest is not None else None
            if found is not None:
                return found
            self._tokens.rewind(start)
            found = _temporal(token)
            if found is not None:
                return found
        if token[0].isdigit() or token[0] in "+-":
            found = _number(token)
            if found is not None:
                return found
        if embedded:
            raise _NoValueError
        return STRING, self._tokens.text

    def _quoted(self) -> Found:
        parts = []
        while self._tokens.has_next() and not self._tokens.consume('"'):
            parts.append(self._tokens.next())
        content = "".join(parts)
        return _temporal(content) or (STRING, content)

    def _array(self) -> Found:
        tokens, merged = self._tokens, _Merged()
        items: list[Any] = []
        while tokens.has_next():
            if tokens.consume("]"):
                if merged.schema is None:
                    return Schema("array"), items
                return Schema("array", values=merged.schema), [_aligned(merged.schema, item) for item in items]
            if tokens.consume(","):
                raise _NoValueError
            schema, value = self.parse(embedded=True)
            merged.add(schema)
            items.append(value)
            start = tokens.mark()
            if tokens.consume("]"):
                tokens.rewind(start)
            elif not tokens.consume(","):
                raise _NoValueError
        raise _NoValueError

    def _map(self) -> Found:
        tokens, keys, values = self._tokens, _Merged(), _Merged()
        found: dict[Any, Any] = {}
        while tokens.has_next():
            if tokens.consume("}"):
                if keys.schema is None:
                    return Schema("map"), found
                if values.schema is None:
                    return Schema("map", keys=keys.schema), {_aligned(keys.schema, k): v for k, v in found.items()}
                schema = Schema("map", keys=keys.schema, values=values.schema)
                return schema, {_aligned(keys.schema, k): _aligned(values.schema, v) for k, v in found.items()}
            if tokens.consume(","):
                raise _NoValueError
            key_schema, key = self.parse(embedded=True)
            if key is None or not tokens.consume(":"):
                raise _NoValueError
            value_schema, value = self.parse(embedded=True)
            found[frozen(key)] = value
            tokens.consume(",")
            keys.add(key_schema)
            values.add(value_schema)
        raise _NoValueError


@dataclass
class _Merged:
    """The schema that all elements have; once two have nothing in common there is none any more."""

    schema: Schema | None = None
    compatible: bool = True

    def add(self, latest: Schema | None) -> None:
        if latest is None or not self.compatible:
            return
        self.schema = latest if self.schema is None else _common(self.schema, latest)
        self.compatible = self.schema is not None


def _common(one: Schema, other: Schema) -> Schema | None:
    if one.type == other.type:
        return other
    if one.type in _ORDER and other.type in _ORDER:
        return one if _ORDER.index(one.type) > _ORDER.index(other.type) else other
    return None


def _aligned(schema: Schema, value: Any) -> Any:
    """A value as its list's or map's common type has it."""
    if value is None or (schema.name is not None and isinstance(value, (int, float))):
        raise _NoValueError
    if schema.type == "float32":
        return to_float32(float(value))
    return float(value) if schema.type == "float64" else value


def _temporal(token: str) -> Found | None:
    token = token.replace("\\:", ":")
    if len(token) not in _TEMPORAL:
        return None
    pattern, schema = _TEMPORAL[len(token)]
    try:
        found, _ = pattern.parse_prefix(token)
    except ValueError:
        return None
    raw = found // _DAY_MS if schema is DATE else found
    try:
        return schema, decode_logical(schema, raw)
    except DataError:  # a time of day beyond the day, a year beyond 9999
        return None


def java_decimal(text: str) -> Decimal | None:
    """The number of a text as Java's BigDecimal reads it; None if it is none."""
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def _number(token: str) -> Found | None:
    decimal = java_decimal(token)
    if decimal is None:
        return None
    exponent = decimal.as_tuple().exponent
    assert isinstance(exponent, int)
    magnitude = decimal.copy_abs()
    if magnitude <= Decimal("1e19") and (magnitude >= 1 or not magnitude) and decimal == decimal.to_integral_value():
        whole = int(decimal)
        for kind, bound in _INT_KINDS:
            if -bound <= whole < bound:
                return Schema(kind), whole
    if exponent != 0:
        single = to_float32(float(decimal))
        if abs(single) != float("inf"):
            return Schema("float32"), single
        if abs(float(decimal)) != float("inf"):
            return Schema("float64"), float(decimal)
    return decimal_schema(-exponent), decimal
