"""What the client library has raised before it calls Python code, and has not told of yet.

It sets the exception of a fatal error, and before its call returns it serves what else there is: delivery reports, rebalances,
lines of its log. Python code that runs meanwhile loses that exception: in the next `except`, or where it looks up an attribute
that the interpreter's cache does not hold. The call then fails with nothing to raise. confluent-kafka 2.16, `error_cb`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# A call whose result the interpreter looks at: it fails where an exception is there already.
_LOOKED_AT = partial(int)


def taken() -> BaseException | None:
    """An exception that is set although no call has failed, taken away; None as a rule."""
    try:
        _LOOKED_AT()
    except SystemError as shown:
        return shown.__cause__ or shown
    return None


def shielded(callback: Callable[P, R]) -> Callable[P, R]:
    """A function for the client library to call: what it has raised before is raised when the callback has returned."""

    def called(*arguments: P.args, **named: P.kwargs) -> R:
        raised = taken()  # before anything is looked up
        if raised is None:
            return callback(*arguments, **named)
        try:
            callback(*arguments, **named)
        except Exception as error:
            raise raised from error
        raise raised

    return called
