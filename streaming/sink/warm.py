"""What a worker process keeps between tasks: a producer that has joined its topics costs round trips to make."""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ...connector.producing.producer import OrderedProducer
from .markers import MarkerReader

Settings = tuple[tuple[str, str], ...]
_LIMIT = 32


class Warm:
    """Producers and marker readers of this process, by their settings. The least recently used goes when it is full."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._producers: OrderedDict[Settings, OrderedProducer] = OrderedDict()
        self._readers: dict[Settings, MarkerReader] = {}

    def producer(self, config: Mapping[str, Any]) -> tuple[OrderedProducer, bool]:
        """A producer with these settings, and whether it was made just now."""
        key = _settings(config)
        with self._lock:
            known = self._producers.get(key)
            if known is not None:
                self._producers.move_to_end(key)
                return known, False
            while len(self._producers) >= _LIMIT:
                self._producers.popitem(last=False)[1].close(10)
            made = self._producers[key] = OrderedProducer(dict(config))
            return made, True

    def markers(self, config: Mapping[str, Any]) -> MarkerReader:
        """A reader of markers on that cluster."""
        key = _settings({name: value for name, value in config.items() if name != "transactional.id"})
        with self._lock:
            if key not in self._readers:
                self._readers[key] = MarkerReader(config)
            return self._readers[key]

    def discard(self, config: Mapping[str, Any]) -> None:
        """Forget a producer after a failure: nothing that it still holds may come behind the next attempt's rows."""
        with self._lock:
            producer = self._producers.pop(_settings(config), None)
        if producer is not None:
            producer.purge()
            producer.close(10)

    def close(self) -> None:
        """Leave the writer set, so that the next layout change does not wait for this process."""
        with self._lock:
            producers, self._producers = list(self._producers.values()), OrderedDict()
            readers, self._readers = list(self._readers.values()), {}
        for producer in producers:
            producer.close(5)
        for reader in readers:
            reader.close()


def _settings(config: Mapping[str, Any]) -> Settings:
    return tuple(sorted((name, str(value)) for name, value in config.items()))


WARM = Warm()
atexit.register(WARM.close)
