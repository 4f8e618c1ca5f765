"""A program may end without close(), as confluent_kafka lets it: its lease must not keep the next change waiting."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from .producer import OrderedProducer

_OPEN: WeakSet[OrderedProducer] = WeakSet()


def leave_at_exit(producer: OrderedProducer) -> None:
    """Let this producer leave the writer set when the program ends, unless it was closed before."""
    _OPEN.add(producer)


@atexit.register
def _leave_all() -> None:
    for producer in list(_OPEN):
        producer.leave()
