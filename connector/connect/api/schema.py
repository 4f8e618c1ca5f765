"""Schemas of keys and values, with the types of Kafka Connect. A record without one carries plain Python data.

The Python value of each type: int8 to int64 `int`; float32 and float64 `float`; boolean `bool`; string `str`; bytes `bytes`;
array `list`; map `dict` (a key that is an array is a `tuple`, one that is a struct or a map a `FrozenDict`); struct `dict` by
field name, where an absent field is null. The logical types: Decimal `decimal.Decimal`, Date `datetime.date`, Time
`datetime.time`, Timestamp `datetime.datetime` with a time zone (what is read is in UTC, of whole milliseconds).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NoReturn

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
INTEGERS = {"int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63}

_PACKAGE = "org.apache.kafka.connect.data."
DECIMAL_NAME, DATE_NAME = f"{_PACKAGE}Decimal", f"{_PACKAGE}Date"
TIME_NAME, TIMESTAMP_NAME = f"{_PACKAGE}Time", f"{_PACKAGE}Timestamp"
LOGICAL = (DECIMAL_NAME, DATE_NAME, TIME_NAME, TIMESTAMP_NAME)
_FLOAT32_MAX = 3.4028235677973366e38  # halfway to the next one, which would be infinite
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_MS = 86_400_000


class FrozenDict(dict[Any, Any]):
    """A struct or a map as the key of a map: a dict that is not changed and so can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset((name, frozen(value)) for name, value in self.items()))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a FrozenDict cannot be changed")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = _refuse


def frozen(value: Any) -> Any:
    """A value that may be the key of a map."""
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if isinstance(value, Mapping):
        return FrozenDict(value)
    return value


# Java's scales, and how far a number may outgrow its text.
_SCALES, _MOST_ZEROS = 2**31, 100_000


@dataclass(frozen=True, slots=True)
class Field:
    """One named field of a struct."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """What a value looks like.

    type: one of TYPES. optional: None is allowed. name, version, doc, parameters: as in Connect; a name of LOGICAL makes it a
    logical type. default: a Python value of the type. fields: of a struct. values: of an array or a map. keys: of a map.
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
        self._check_facts()
        if self.type == "struct" and len({f.name for f in self.fields}) != len(self.fields):
            raise DataError(f"two fields of struct {self.name or ''!r} have one name: give each its own")
        if any(not f.name for f in self.fields):
            raise DataError(f"a field of struct {self.name or ''!r} has no name: give it one")

    def _check_facts(self) -> None:
        """Schemas are also made of what others have registered."""
        wrong = [n for n in ("name", "doc") if not isinstance(getattr(self, n), (str, type(None)))]
        if not isinstance(self.version, (int, type(None))):
            wrong.append("version")
        if not isinstance(self.parameters, Mapping) or not all(
            isinstance(text, str) for pair in self.parameters.items() for text in pair
        ):
            wrong.append("parameters")
        if wrong or not all(isinstance(f.name, str) for f in self.fields):
            raise DataError(
                f"{', '.join(wrong) or 'the name of a field'} of a schema has the wrong type: names, docs and parameters are "
                "text, a version is a whole number"
            )

    def field(self, name: str) -> Schema | None:
        """The schema of a struct's field."""
        return next((f.schema for f in self.fields if f.name == name), None)

    def with_fields(self, fields: tuple[Field, ...]) -> Schema:
        """The same struct with other fields."""
        return replace(self, fields=fields)

    @property
    def scale(self) -> int:
        """Of a Decimal: digits behind the point. Raises DataError when the parameter is missing."""
        try:
            found = int(self.parameters["scale"])
        except (KeyError, ValueError):
            found = _SCALES
        if not -_SCALES <= found < _SCALES:
            raise DataError("the schema of a Decimal needs the parameter scale, a whole number of 32 bits") from None
        return found

    def check(self, value: Any, where: str = "value") -> None:
        """Raise DataError, which names the place, when the value does not fit."""
        if value is None:
            if not self.optional and self.default is None:
                raise DataError(f"{where} is null, but its schema is not optional")
        elif self.name in LOGICAL:
            encode_logical(self, value, where)
        elif self.type in PRIMITIVES:
            self._check_primitive(value, where)
        elif self.type == "struct":
            if not isinstance(value, Mapping):
                raise DataError(f"{where} is {type(value).__name__}, its schema says struct: give a dict")
            for f in self.fields:
                f.schema.check(value.get(f.name), f"{where}.{f.name}")
        elif self.type == "array":
            if not isinstance(value, (list, tuple)):
                raise DataError(f"{where} is {type(value).__name__}, its schema says array: give a list")
            inner = self._inner(self.values, where)
            for i, item in enumerate(value):
                inner.check(item, f"{where}[{i}]")
        else:
            if not isinstance(value, Mapping):
                raise DataError(f"{where} is {type(value).__name__}, its schema says map: give a dict")
            keys, values = self._inner(self.keys, where), self._inner(self.values, where)
            for key, item in value.items():
                keys.check(key, f"a key of {where}")
                values.check(item, f"{where}[{key!r}]")

    def _check_primitive(self, value: Any, where: str) -> None:
        kind = self.type
        fits = isinstance(value, PRIMITIVES[kind]) and (kind == "boolean") == isinstance(value, bool)
        if not fits:
            raise DataError(f"{where} is {type(value).__name__}, its schema says {kind}")
        if kind in INTEGERS and not -INTEGERS[kind] <= value < INTEGERS[kind]:
            raise DataError(f"{where} is {value}, which does not fit {kind}")
        if kind == "float32" and _FLOAT32_MAX <= abs(value) != float("inf"):
            raise DataError(f"{where} is {value}, which does not fit float32")

    @staticmethod
    def _inner(schema: Schema | None, where: str) -> Schema:
        if schema is None:
            raise DataError(f"the schema of {where} does not say what it holds")
        return schema


STRING, BYTES, BOOLEAN = Schema("string"), Schema("bytes"), Schema("boolean")
INT32, INT64, FLOAT64 = Schema("int32"), Schema("int64"), Schema("float64")
DATE = Schema("int32", name=DATE_NAME, version=1)
TIME = Schema("int32", name=TIME_NAME, version=1)
TIMESTAMP = Schema("int64", name=TIMESTAMP_NAME, version=1)


def decimal_schema(scale: int, optional: bool = False) -> Schema:
    """The schema of a Decimal with so many digits behind the point."""
    return Schema("bytes", optional, DECIMAL_NAME, 1, parameters={"scale": str(scale)})


# -- logical types ---------------------------------------------------------------------------------------------------


def encode_logical(schema: Schema, value: Any, where: str = "value") -> Any:
    """The plain value behind a logical one: bytes of a Decimal, days, milliseconds. Raises DataError."""
    return _ENCODERS[schema.name or ""](schema, value, where)


def decode_logical(schema: Schema, raw: Any) -> Any:
    """The reverse. Raises DataError where Python's type has no such value: a year behind 9999, an hour 24."""
    return _DECODERS[schema.name or ""](schema, raw)


def _encode_decimal(schema: Schema, value: Any, where: str) -> bytes:
    return _two_complement(unscaled(value, schema.scale, where))


def unscaled(value: Any, scale: int, where: str = "value") -> int:
    """A Decimal as a whole number of its last digit. A value with fewer digits than `scale` is exact; more are refused."""
    if not isinstance(value, Decimal) or not value.is_finite():
        raise DataError(f"{where} is {_shown(value)}, its schema says Decimal: give a finite decimal.Decimal")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number, zeros = int(Decimal((0, digits, 0))), exponent + scale
    if number and zeros > _MOST_ZEROS:
        raise DataError(
            f"{where} has more than {_MOST_ZEROS} zeros at its schema's scale {scale}: a short text, a huge number"
        )
    if zeros >= 0:
        number *= int(10**zeros) if number else 1
    else:
        # A divisor with more digits than the number leaves all of it.
        number, left = divmod(number, int(10 ** min(-zeros, len(digits))))
        if left:
            raise DataError(f"{where} has more digits behind the point than its schema's scale {scale}")
    return -number if sign else number


def _decode_decimal(schema: Schema, raw: bytes) -> Decimal:
    return scaled(int.from_bytes(raw, "big", signed=True), schema.scale)


def scaled(number: int, scale: int) -> Decimal:
    """A whole number of the last digit as a Decimal, exactly."""
    return Decimal((int(number < 0), Decimal(abs(number)).as_tuple().digits, -scale))  # str() ends at 4300 digits


def _two_complement(number: int) -> bytes:
    """As few bytes as it takes, as Java's BigInteger has them."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _encode_date(schema: Schema, value: Any, where: str) -> int:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise DataError(f"{where} is {_shown(value)}, its schema says Date: give a datetime.date")
    return (value - _EPOCH.date()).days


def _encode_time(schema: Schema, value: Any, where: str) -> int:
    if not isinstance(value, time) or value.tzinfo not in (None, timezone.utc):
        raise DataError(f"{where} is {_shown(value)}, its schema says Time: give a datetime.time, in UTC")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def _encode_timestamp(schema: Schema, value: Any, where: str) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise DataError(
            f"{where} is {_shown(value)}, its schema says Timestamp: give a datetime.datetime with a time zone"
        )
    return (value - _EPOCH) // timedelta(milliseconds=1)


def _decode_date(schema: Schema, days: int) -> date:
    try:
        return date.fromordinal(days + _EPOCH.toordinal())
    except (ValueError, OverflowError):
        raise DataError(f"{days} days from 1970 lie outside of the years 1 to 9999") from None


def _decode_time(schema: Schema, milliseconds: int) -> time:
    if not 0 <= milliseconds < _DAY_MS:
        raise DataError(f"{milliseconds} is no time of day: it has 0 to {_DAY_MS - 1} milliseconds")
    return (_EPOCH + timedelta(milliseconds=milliseconds)).time()


def _decode_timestamp(schema: Schema, milliseconds: int) -> datetime:
    return moment(milliseconds)


def moment(milliseconds: int) -> datetime:
    """Milliseconds since 1970 as a datetime in UTC. Raises DataError outside of the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise DataError(f"{milliseconds} ms from 1970 lie outside of the years 1 to 9999") from None


def epoch_ms(value: date | time | datetime) -> int:
    """What a java.util.Date of the same logical value holds. Raises DataError for a datetime without a time zone."""
    if isinstance(value, datetime):
        return _encode_timestamp(TIMESTAMP, value, "value")
    return _encode_time(TIME, value, "value") if isinstance(value, time) else _encode_date(DATE, value, "") * _DAY_MS


def _shown(value: Any) -> str:
    return "a datetime without a time zone" if isinstance(value, datetime) else type(value).__name__


_ENCODERS: dict[str, Callable[[Schema, Any, str], Any]] = {
    DECIMAL_NAME: _encode_decimal,
    DATE_NAME: _encode_date,
    TIME_NAME: _encode_time,
    TIMESTAMP_NAME: _encode_timestamp,
}
_DECODERS: dict[str, Callable[[Schema, Any], Any]] = {
    DECIMAL_NAME: _decode_decimal,
    DATE_NAME: _decode_date,
    TIME_NAME: _decode_time,
    TIMESTAMP_NAME: _decode_timestamp,
}


# -- inference -------------------------------------------------------------------------------------------------------

_PLAIN: tuple[tuple[type | tuple[type, ...], Schema], ...] = (
    (bool, BOOLEAN),
    (int, INT64),
    (float, FLOAT64),
    (str, STRING),
    ((bytes, bytearray, memoryview), BYTES),
    (datetime, TIMESTAMP),
    (date, DATE),
    (time, TIME),
)


def infer(value: Any, optional: bool = True) -> Schema | None:
    """The schema that a plain Python value stands for; None for None. Raises DataError for what has none."""
    if value is None:
        return None
    for kinds, schema in _PLAIN:
        if isinstance(value, kinds):
            return replace(schema, optional=optional)
    if isinstance(value, Decimal) and value.is_finite():
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        return decimal_schema(-exponent, optional)
    if isinstance(value, Mapping):
        fields = [Field(str(k), infer(v) or Schema("string", True)) for k, v in value.items()]
        return Schema("struct", optional, fields=tuple(fields))
    if isinstance(value, (list, tuple)):
        first = next((item for item in value if item is not None), "")
        return Schema("array", optional, values=infer(first))
    raise DataError(f"a value of type {type(value).__name__} has no schema: convert it to plain data first")
