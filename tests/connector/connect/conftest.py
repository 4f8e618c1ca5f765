"""PostgreSQL, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL, shared: tests take a table name of their own."""
    started = Postgres()
    yield started
    started.stop()
