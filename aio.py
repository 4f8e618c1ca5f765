"""`keyorder.aio`: the ordered clients for asyncio, with the names of confluent_kafka.aio."""

from .connector.aio.consumer import AIOConsumer
from .connector.aio.producer import AIOProducer

__all__ = ["AIOConsumer", "AIOProducer"]
