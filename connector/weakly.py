"""Calls of methods by threads and parts that must not keep the methods' objects alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def weakly(method: Callable[P, R]) -> Callable[P, R | None]:
    """The method, as long as somebody else holds its object; afterwards nothing is called, and the answer is None."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: P.args, **named: P.kwargs) -> R | None:
        found = reference()
        return None if found is None else found(*arguments, **named)

    return call
