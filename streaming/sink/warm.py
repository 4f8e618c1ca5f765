"""What a worker process keeps between tasks: a producer that has joined its topics costs round trips to make.

Spark ends such a process by a signal or by closing its socket, and no exit hook runs. A writer that ends so keeps the next layout
change waiting for its lease: so a producer is closed when no task has used it for a while, and all are when the process ends.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ...connector import clock
from ...connector.producing.producer import OrderedProducer
from .markers import MarkerReader
from .worker_loop import around_tasks

Settings = tuple[tuple[str, str], ...]
_LIMIT = 32
_IDLE_SECONDS = 10.0
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Warm:
    """Producers and marker readers of this process, by their settings. The least recently used goes when it is full.

    idle: seconds after which a producer goes that no task uses.
    """

    def __init__(self, idle: float = _IDLE_SECONDS) -> None:
        self._idle = idle
        self._lock = threading.RLock()  # the process may be asked to end while it is held
        self._idle_since: dict[Settings, float] = {}
        self._retiring: threading.Thread | None = None
        self._producers: OrderedDict[Settings, OrderedProducer] = OrderedDict()
        self._readers: dict[Settings, MarkerReader] = {}
        self._closing = False
        self._ended_by: int | None = None

    def producer(self, config: Mapping[str, Any]) -> tuple[OrderedProducer, bool]:
        """A producer with these settings, and whether it was made just now. `done` has to follow, or `discard`."""
        key = _settings(config)
        self._leave_when_ended()
        around_tasks(self._leave_when_ended, self.close)
        with self._lock:
            self._idle_since.pop(key, None)
            known = self._producers.get(key)
            if known is not None:
                self._producers.move_to_end(key)
                return known, False
            while len(self._producers) >= _LIMIT:
                self._producers.popitem(last=False)[1].close(10)
            made = self._producers[key] = OrderedProducer(dict(config))
            return made, True

    def done(self, config: Mapping[str, Any]) -> None:
        """A task has ended that used the producer with these settings, and may be followed by another."""
        with self._lock:
            self._idle_since[_settings(config)] = clock.now()
            if self._retiring is None:
                self._retiring = threading.Thread(target=self._retire, name="keyorder-sink-idle", daemon=True)
                self._retiring.start()

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

    def _retire(self) -> None:
        """Close what has been idle for long; ends when nothing is idle any more."""
        while True:
            with self._lock:
                now = clock.now()
                over = [key for key, since in self._idle_since.items() if now - since >= self._idle]
                producers = [self._producers.pop(key, None) for key in over]
                for key in over:
                    del self._idle_since[key]
                if not over and not self._idle_since:
                    self._retiring = None
                    return
                first = min(self._idle_since.values(), default=now)
            for producer in producers:
                if producer is not None:
                    producer.close(10)
            if not over:
                threading.Event().wait(max(0.01, first + self._idle - now))

    def _leave_when_ended(self) -> None:
        """Let the signals that end this process close its producers first, unless somebody else listens to them."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._ended)

    def _ended(self, number: int, _: object) -> None:
        self._ended_by = number
        if not self._closing:  # else the signal is raised again when what has begun is done
            self.close()

    def close(self) -> None:
        """Leave the writer set, so that the next layout change does not wait for this process."""
        self._closing = True
        try:
            with self._lock:
                producers, self._producers = list(self._producers.values()), OrderedDict()
                readers, self._readers = list(self._readers.values()), {}
            for producer in producers:
                producer.close(5)
            for reader in readers:
                reader.close()
        finally:
            self._closing = False
            if self._ended_by is not None:
                signal.signal(self._ended_by, signal.SIG_DFL)
                os.kill(os.getpid(), self._ended_by)


def _settings(config: Mapping[str, Any]) -> Settings:
    return tuple(sorted((name, str(value)) for name, value in config.items()))


WARM = Warm()
atexit.register(WARM.close)
