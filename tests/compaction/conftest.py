"""A broker with a quick log cleaner, one for all of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.cleaning import CLEANER
from support.cluster import ClusterSpec, KafkaUnderTest


@pytest.fixture(scope="session")
def cleaning_kafka(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """One broker whose cleaner looks every 100 ms."""
    started = start_kafka(ClusterSpec(1, properties=CLEANER))
    yield started
    started.stop()
