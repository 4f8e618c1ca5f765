"""From a setting's text to its value, and back to what may be shown."""

from __future__ import annotations

from typing import Any

from ....partitioner.errors import ConfigError
from ..api.java import BLANKS
from .keys import BOUNDS, HIDDEN, NO_DEFAULT_VALUE, ConfigKey, Password, Type


def without_secret(key: ConfigKey, error: ConfigError) -> str:
    if key.type is Type.PASSWORD:
        return f"Invalid value {HIDDEN} for configuration {key.name}: {error.fix}"
    return f"Invalid value {error.problem} for configuration {key.name}: {error.fix}"


def parse_type(key: ConfigKey, value: Any) -> Any:
    """One value as its type says. Raises ConfigError."""
    kind = key.type
    text = value.strip(BLANKS) if isinstance(value, str) else value
    if kind is Type.BOOLEAN:
        if isinstance(text, bool):
            return text
        if str(text).lower() in ("true", "false"):
            return str(text).lower() == "true"
        raise ConfigError(key.name, repr(value), "it must be true or false")
    if kind in BOUNDS:
        return _integer(key, value, text, BOUNDS[kind])
    if kind is Type.DOUBLE:
        try:
            return float(text)
        except (TypeError, ValueError):
            raise ConfigError(key.name, repr(value), "it must be a number") from None
    if kind is Type.LIST:
        if isinstance(value, (list, tuple)):
            return [str(item) for item in value]
        return [item.strip(BLANKS) for item in str(text).split(",")] if text else []
    if kind is Type.PASSWORD:
        return value if isinstance(value, Password) else Password(str(text))
    if not isinstance(value, str):
        raise ConfigError(key.name, repr(value), "it must be text")
    return text


def _integer(key: ConfigKey, value: Any, text: Any, bound: int) -> int:
    try:
        if isinstance(text, (bool, float)) or "_" in str(text):  # Python reads 1_000
            raise ValueError
        number = int(text)
    except (TypeError, ValueError):
        raise ConfigError(key.name, repr(value), "it must be a whole number") from None
    if not -bound <= number < bound:
        raise ConfigError(key.name, repr(value), f"it must lie between {-bound} and {bound - 1}")
    return number


def shown(key: ConfigKey, value: Any) -> Any:
    """A value as Connect's REST shows it: text, lists joined, secrets hidden."""
    if value is None or value is NO_DEFAULT_VALUE:
        return None
    if key.type is Type.PASSWORD:
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    return str(value)
