"""`keyorder.metrics.port`: the clients of a process behind one HTTP port, for as long as one of them is open."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from ..figures import Client
from .client_metrics import ClientCollector
from .serving import MonitoringServer, process_registry


@dataclass(slots=True)
class _Shown:
    collector: ClientCollector
    server: MonitoringServer
    clients: int = 0


_lock = threading.RLock()  # a finalizer may run anywhere, also beneath `show`
_shown: dict[tuple[str, int], _Shown] = {}


def show(client: Client, host: str, port: int) -> Callable[[], object]:
    """Serve the client's figures on http://host:port/metrics, beside those of others of this process at the same address.

    Returns what ends that; it may be called again, and a client that is dropped ends it too. Raises ConfigError when the
    address cannot be had.
    """
    place = host, port
    with _lock:
        found = _shown.get(place)
        if found is None:
            registry = process_registry()
            collector = ClientCollector()
            registry.register(collector)
            found = _shown[place] = _Shown(
                collector, MonitoringServer(registry, {}, host, port, "keyorder.metrics.port")
            )
        found.clients += 1
        found.collector.add(client)
    seen = weakref.ref(client)

    def gone() -> None:
        alive = seen()
        with _lock:
            if alive is not None:
                found.collector.remove(alive)
            found.clients -= 1
            if found.clients:
                return
            del _shown[place]
        if alive is not None:
            found.server.close()
        else:  # the garbage collector runs on any thread, also on the server's own, which cannot wait for itself
            threading.Thread(target=found.server.close, name="keyorder-http-end", daemon=True).start()

    ended = weakref.finalize(client, gone)
    ended.atexit = False
    return ended
