"""Which application a plan names."""

from __future__ import annotations

from typing import Any

from .async_clients import AsyncConsumer, AsyncProducer
from .consumers import AssigningConsumer, HardConsumer, PollingThreads
from .producers import HardProducer
from .side import Side
from .transactions import Transformer

APPLICATIONS: dict[str, Any] = {
    "consumer": HardConsumer,
    "assigning": AssigningConsumer,
    "polling-threads": PollingThreads,
    "async-consumer": AsyncConsumer,
    "producer": HardProducer,
    "async-producer": AsyncProducer,
    "transactions": Transformer,
}


def application_of(side: Side) -> Any:
    """The application of this side's plan."""
    return APPLICATIONS[side.plan["kind"]](side)
