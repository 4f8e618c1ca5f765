"""A writer that begins with a stock producer and goes on with OrderedProducer, as services do when they are replaced."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from types import TracebackType
from typing import Any

from confluent_kafka import Producer
from keyorder import OrderedProducer

_KEYS = 40


class ReplacedWriter(threading.Thread):
    """Writes until finish(). sent: by key the values in the order in which they were produced.

    partitions: key `k<n>` goes to partition n modulo this, which is no client's hash; by default the stock producer
    places keys by CRC-32.
    """

    def __init__(self, config: dict[str, str], topic: str, partitions: int | None = None) -> None:
        super().__init__(daemon=True)
        self._config = config
        self._producer: Any = Producer(
            {**config, "partitioner": "consistent", "enable.idempotence": True, "linger.ms": 5}
        )
        self._topic, self._partitions = topic, partitions
        self._lock = threading.Lock()
        self._done = threading.Event()
        self.sent: dict[str, list[int]] = defaultdict(list)

    def run(self) -> None:
        """The thread's work."""
        rng = random.Random(3)
        while not self._done.wait(0.01):
            with self._lock:
                for _ in range(3):
                    number = rng.randrange(_KEYS)
                    values = self.sent[f"k{number}"]
                    values.append(len(values))
                    place = {} if self._partitions is None else {"partition": number % self._partitions}
                    self._producer.produce(self._topic, str(values[-1]), f"k{number}", **place)
                self._producer.poll(0)

    def count(self) -> int:
        """How many records were produced."""
        with self._lock:
            return sum(map(len, self.sent.values()))

    def hold(self) -> None:
        """Return when all that was produced is acknowledged; nothing more is until go_on()."""
        self._lock.acquire()
        assert self._producer.flush(300) == 0

    def go_on(self, topic: str) -> None:
        """Write on, to this topic and with an OrderedProducer."""
        self._producer.close()
        self._producer = OrderedProducer({**self._config, "delivery.timeout.ms": 120_000})  # the machine may be busy
        self._topic, self._partitions = topic, None
        self._lock.release()

    def finish(self) -> None:
        """End it; everything is acknowledged then."""
        self._done.set()
        self.join(300)
        self._producer.close()

    def __enter__(self) -> ReplacedWriter:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
