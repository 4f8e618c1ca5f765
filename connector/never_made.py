"""What a client says whose `__init__` never ran: a subclass has forgotten to call it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn


class NeverMade:
    """Stands in the place of a client's part until `__init__` sets that. Whatever is done with it raises RuntimeError.

    As in the client library, which has nothing behind such an instance either, that is a client that cannot be used, and no
    missing attribute. Not by a `__getattr__` of the client's: with one each read of each attribute is a slow one.
    """

    __slots__ = ("_said",)

    _said: str

    def __init__(self, kind: str, closed: str) -> None:
        said = f"{closed}: {kind} has not been initialized: its __init__ does not call that of its base"
        object.__setattr__(self, "_said", said)

    def _refuse(self, *_: object) -> NoReturn:
        raise RuntimeError(self._said)

    __getattr__ = __setattr__ = __call__ = __contains__ = __bool__ = __len__ = _refuse
    __enter__ = __exit__ = _refuse


def never_made(client: Any, parts: Iterable[str], closed: str) -> None:
    """Put one in the place of each part. parts: what methods look at first. closed: the client library's words."""
    stands = NeverMade(type(client).__name__, closed)
    for part in parts:
        setattr(client, part, stands)


def is_made(part: object) -> bool:
    """Whether `__init__` has set it."""
    return type(part) is not NeverMade
