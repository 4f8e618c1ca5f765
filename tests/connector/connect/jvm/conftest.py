"""The judge, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.connect_judge import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """Kafka Connect's own classes."""
    started = Judge()
    yield started
    started.stop()
