"""A forked child has its parent's clients and none of their threads: freeing one there waits for them, or crashes.

The client library cannot be told so. What the child does not drop by itself stays: garbage of the parent's, such as a closed
consumer in a circle that was not collected yet, is left alone by the child's garbage collector.
"""

from __future__ import annotations

import gc
import os
from weakref import WeakSet

_CLIENTS: WeakSet[object] = WeakSet()


def not_freed_in_children(client: object) -> None:
    """Let no forked child collect this client, closed or not, nor what belongs to it."""
    _CLIENTS.add(client)


def _keep() -> None:
    if _CLIENTS:
        gc.freeze()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep)
