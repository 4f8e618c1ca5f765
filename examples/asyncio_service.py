"""A service for asyncio that handles each customer's orders in order, and shows what it does at http://localhost:9405/metrics.

    python examples/asyncio_service.py localhost:9092 orders billing

The topic may grow and shrink while it runs. SIGTERM ends it after the order at hand.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from keyorder.aio import AIOConsumer

log = logging.getLogger("service")


async def main(servers: str, topic: str, group: str, port: str = "9405") -> None:
    """Read, handle, and commit what was handled."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stdout)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    consumer = AIOConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,  # a record counts as processed when handle() has returned
            "keyorder.metrics.port": int(port),
        }
    )
    try:
        await consumer.subscribe([topic])
        while not stopped.is_set():
            message = await consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                log.warning("the client reports %s", message.error())
                continue
            await handle(message.key(), message.value())
            await consumer.store_offsets(message)
    finally:
        await consumer.close()


async def handle(customer: bytes | None, order: bytes | None) -> None:
    """The service's own work."""
    log.info("%s: %s", (customer or b"").decode(), (order or b"").decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
