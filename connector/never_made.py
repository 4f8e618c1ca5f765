"""What a client says whose `__init__` never ran: a subclass has forgotten to call it."""

from __future__ import annotations

from collections.abc import Collection


def never_made(client: object, name: str, parts: Collection[str], closed: str) -> Exception:
    """The error for an attribute that is not there, which is all that comes to `__getattr__`.

    parts: what `__init__` sets and methods look at first. As in the client library, which has nothing behind such an
    instance either, they are no missing attributes but a client that cannot be used. closed: the client library's words.
    """
    kind = type(client)
    if name in parts:
        return RuntimeError(
            f"{closed}: {kind.__name__} has not been initialized: its __init__ does not call that of its base"
        )
    return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=client)
