"""`keyorder controller` as a process, and the events that it tells."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keyorder.connector import clock
from support.cluster import KafkaUnderTest


class Controller:
    """A running controller and the events that it tells."""

    def __init__(self, kafka: KafkaUnderTest, topic: str, *words: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "keyorder", "controller", "--bootstrap-server", kafka.bootstrap_servers,
             "--topic", topic, "--interval", "0.2", "--output", "json", *map(str, words)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.events: list[dict[str, Any]] = []
        self.started: dict[str, Any] = {}
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def until(self, *kinds: str, timeout: float = 120.0) -> dict[str, Any]:
        """The next event of one of these kinds."""
        deadline = clock.now() + timeout
        while True:
            try:
                event = json.loads(self._lines.get(timeout=max(0.0, deadline - clock.now())))
            except queue.Empty:
                raise AssertionError(f"no {kinds} in {timeout} s, but {self.events}") from None
            self.events.append(event)
            if event["event"] in kinds:
                return dict(event)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit status."""
        assert self.process.poll() is None
        self.process.send_signal(number)
        return self.process.wait(120)


@contextmanager
def controller(kafka: KafkaUnderTest, topic: str, *words: object) -> Iterator[Controller]:
    """A controller of one topic that has begun its work; nothing is left running."""
    running = Controller(kafka, topic, *words)
    try:
        running.started = running.until("started")
        yield running
    finally:
        running.process.kill()
        running.process.wait()
