"""The same test of a library on both clients."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["stock", "ordered"])
def stock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the library works on confluent_kafka's clients; else on ours, which the test's module names.

    OURS: (module of the library, name in it, class in its place).
    """
    if request.param == "ordered":
        for module, name, client in request.module.OURS:
            monkeypatch.setattr(module, name, client)
    return bool(request.param == "stock")
