"""What is to be said of one setting: its type, default, importance, and what a user sees of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from .validators import Validator


class Type(Enum):
    """Kafka's types of settings. CLASS is a name: a setting that came by REST must not import what it names."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(Enum):
    """How likely a user has to think of a setting."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(Enum):
    """How wide an input field should be."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


HIDDEN: Final = "[hidden]"
BOUNDS = {Type.SHORT: 2**15, Type.INT: 2**31, Type.LONG: 2**63}


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT_VALUE"


NO_DEFAULT_VALUE: Final = _NoDefault()


class Password:
    """A secret: shown as [hidden] wherever it is printed. `value` has the text."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __str__(self) -> str:
        return HIDDEN

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True)
class Recommender:
    """Suggests values, and whether a setting matters, given the others. Both take (name, parsed settings)."""

    valid_values: Callable[[str, Mapping[str, Any]], list[Any]] = lambda name, parsed: []
    visible: Callable[[str, Mapping[str, Any]], bool] = lambda name, parsed: True


@dataclass(frozen=True)
class ConfigKey:
    """One setting."""

    name: str
    type: Type
    default: Any
    importance: Importance
    documentation: str
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None
    internal: bool = False
    alternative: str | None = None

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is NO_DEFAULT_VALUE


@dataclass
class ConfigValue:
    """What is to be said of one setting's value."""

    name: str
    value: Any = None
    recommended_values: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True
