"""A worker's line to the demonstration: its orders come in on stdin, what it has to tell goes out on stdout.

The first line of stdin is a JSON object, the worker's spec. Later lines are single words. The end of stdin means that
nobody is left to work for, so a worker never outlives the demonstration, however that ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any


class Line:
    """Orders in, facts out."""

    def __init__(self) -> None:
        # The terminal's Ctrl-C reaches every process of the group: it is the demonstration that ends its workers.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.spec: dict[str, Any] = json.loads(sys.stdin.readline())
        self.go = threading.Event()
        self.stop = threading.Event()
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def tell(self, **facts: Any) -> None:
        """Say something. Ends the process when nobody listens any more."""
        try:
            sys.stdout.write(json.dumps(facts) + "\n")
            sys.stdout.flush()
        except OSError:
            os._exit(1)

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "go":
                self.go.set()
            else:
                break
        else:
            # Nobody is left: there is no one to flush or to drain for.
            os._exit(1)
        self.go.set()
        self.stop.set()
        for _ in sys.stdin:
            pass
        os._exit(1)
