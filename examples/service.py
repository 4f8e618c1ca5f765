"""A service that handles each customer's orders in order, and shows what it does at http://localhost:9405/metrics.

    python examples/service.py localhost:9092 orders billing

The topic may grow and shrink while it runs. SIGTERM ends it after the order at hand.
"""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType

from confluent_kafka import Message
from keyorder import OrderedConsumer

log = logging.getLogger("service")


class Service:
    """Reads a topic as a member of a group, handles each record and commits what was handled."""

    def __init__(self, servers: str, topic: str, group: str, port: int) -> None:
        self._stopped = False
        self._topic = topic
        self._consumer = OrderedConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.offset.store": False,  # a record counts as processed when handle() has returned
                "keyorder.metrics.port": port,
            }
        )

    def stop(self, number: int, frame: FrameType | None) -> None:
        """For a signal: the loop ends with the record at hand."""
        self._stopped = True

    def run(self) -> None:
        """Until it is stopped. Leaves the group, with everything committed that was handled."""
        with self._consumer as consumer:
            consumer.subscribe([self._topic])
            while not self._stopped:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error() is not None:
                    log.warning("the client reports %s", message.error())
                    continue
                self.handle(message)
                consumer.store_offsets(message)

    def handle(self, order: Message) -> None:
        """The service's own work."""
        log.info("%s: %s", (order.key() or b"").decode(), (order.value() or b"").decode())


def main(servers: str, topic: str, group: str, port: str = "9405") -> None:
    """Run the service."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stdout)
    service = Service(servers, topic, group, int(port))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, service.stop)
    service.run()


if __name__ == "__main__":
    main(*sys.argv[1:5])
