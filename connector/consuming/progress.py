"""How far a turn of a consumer's work is: what an exception at this line would leave half done.

An exception may come at any line: from a signal's handler, or out of a callback that the client library runs inside its
poll, which then throws away what it has fetched.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """What an exception would leave half done, by what it takes to go on.

    REST: nothing. LIBRARY: the client library may have thrown away what it was about to hand over. MOVING: records may be
    in two queues or in none. REBALANCE: partitions may have come or gone unnoticed.
    """

    REST = 0
    LIBRARY = 1
    MOVING = 2
    REBALANCE = 3


class Progress:
    """The phase that one consumer is in. Used by one thread at a time."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.REST
