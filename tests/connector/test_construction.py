"""Clients whose construction fails: the error is all that is heard of it."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from confluent_kafka import KafkaException
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.errors import ConfigError


@pytest.mark.parametrize(("client", "more"), [(OrderedConsumer, {"group.id": "g"}), (OrderedProducer, {})])
def test_a_client_that_could_not_be_made_is_freed_in_silence(
    client: Any, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python prints what a finalizer raises, and nobody can catch that."""
    heard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    settings = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "ssl", "ssl.ca.location": "/nowhere"}
    with pytest.raises(KafkaException, match=r"ssl\.ca\.location"):
        client({**settings, **more})
    gc.collect()
    assert heard == []


@pytest.mark.parametrize("group", ["", " ", "\t\n"])
def test_a_group_without_a_name_is_refused(group: str) -> None:
    """The library stops the whole process at one."""
    with pytest.raises(ConfigError, match=r"group\.id must be set"):
        OrderedConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group})
