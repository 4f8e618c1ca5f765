"""What Java makes of plain values: the text of a number, the order of a HashMap. JSON and text carry both into keys' bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

from .schema import Schema, epoch_ms

# What `trim` takes off a text.
BLANKS = "".join(map(chr, range(33)))


def double_text(value: float) -> str:
    """Java's Double.toString: the shortest text that reads back as the same double."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if str(value)[0] == "-" else "0.0"
    digits, exponent = _digits(repr(value))
    if len(digits) == 1:  # two digits are written anyway, so they are the nearest two
        digits, exponent = _digits(f"{value:.1e}")
    return _laid_out(value < 0, digits, exponent)


def float_text(value: float) -> str:
    """Java's Float.toString of the float32 next to `value`."""
    single = to_float32(value)
    if single == 0 or single != single or abs(single) == float("inf"):
        return double_text(single)
    for precision in range(1, 9):
        text = f"{single:.{precision}e}"
        if to_float32(float(text)) == single:
            break
    digits, exponent = _digits(text)
    return _laid_out(single < 0, digits, exponent)


def to_float32(value: float) -> float:
    """The float32 next to a number, infinite where it is too large."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _digits(text: str) -> tuple[str, int]:
    """Digits without zeros at the end, and the exponent of the first one."""
    _, numbers, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, numbers))
    return digits.rstrip("0"), len(digits) + exponent - 1


def _laid_out(negative: bool, digits: str, exponent: int) -> str:
    sign = "-" if negative else ""
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


# -- the order of a HashMap ------------------------------------------------------------------------------------------


def hash_order(
    data: Mapping[Any, Any], keys: Schema | None = None, copied: int | None = None, sized: int | None = None
) -> dict[Any, Any]:
    """The entries in the order in which a Java HashMap gives them out, if they were put into it as they stand here.

    keys: the schema of the keys, None for plain values. copied: made as a copy of a map of so many entries. sized: made with
    that capacity. Keys whose Java hash is not a matter of their value (bytes, structs) leave all as it stands.
    """
    if len(data) < 2:
        return dict(data)
    capacity = _power(-(-copied * 4 // 3)) if copied else 16 if sized is None else _power(sized)
    while len(data) > int(capacity * 0.75):
        capacity *= 2
    hashes = [_hash(key, keys) for key in data]
    if None in hashes:
        return dict(data)
    mask = capacity - 1
    order = sorted(zip(hashes, data, strict=True), key=lambda pair: (pair[0] ^ (pair[0] >> 16)) & mask)  # type: ignore[operator]
    return {key: data[key] for _, key in order}


def _power(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


@lru_cache(maxsize=4096)
def _text_hash(text: str) -> int:
    found = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        found = (found * 31 + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return found


def _hash(key: Any, schema: Schema | None) -> int | None:
    """Java's hashCode as an unsigned number of 32 bits."""
    if isinstance(key, str):
        return _text_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if schema is not None and schema.type in ("int8", "int16", "int32"):
            return key & 0xFFFFFFFF
        return _folded(key)
    if isinstance(key, float):
        if schema is not None and schema.type == "float32":
            return int(struct.unpack(">I", struct.pack(">f", key))[0])
        return _folded(int(struct.unpack(">Q", struct.pack(">d", key))[0]))
    if isinstance(key, (date, time)):
        return _folded(epoch_ms(key))
    return 0 if key is None else None


def _folded(number: int) -> int:
    number &= 0xFFFFFFFFFFFFFFFF
    return (number ^ (number >> 32)) & 0xFFFFFFFF
