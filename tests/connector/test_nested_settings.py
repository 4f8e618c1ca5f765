"""`default.topic.config`: a dict of settings among the settings, whose own the client library puts in the place of others."""

from __future__ import annotations

from typing import Any

import pytest
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.connector.config import consumer_settings, producer_settings
from keyorder.partitioner.errors import ConfigError

AT = {"bootstrap.servers": "127.0.0.1:1"}


def nested(**settings: Any) -> dict[str, Any]:
    """With `_` for each dot."""
    return {"default.topic.config": {name.replace("_", "."): value for name, value in settings.items()}}


@pytest.mark.parametrize(
    ("name", "value"),
    [("acks", 1), ("request_required_acks", 0), ("enable_idempotence", False), ("partitioner", "random")],
)
def test_what_is_refused_is_refused_there_too(name: str, value: object) -> None:
    """By the same error, before a client is made."""
    with pytest.raises(ConfigError, match=name.replace("_", ".")) as beside:
        OrderedProducer({**AT, name.replace("_", "."): value})
    with pytest.raises(ConfigError) as within:
        OrderedProducer({**AT, **nested(**{name: value})})
    assert str(within.value) == str(beside.value)


@pytest.mark.parametrize("name", ["message_timeout_ms", "delivery_timeout_ms"])
def test_the_lease_follows_a_delivery_timeout_from_there(name: str) -> None:
    """A record must not outlive the lease under which it was sent."""
    settings, theirs = producer_settings({**AT, **nested(**{name: 300_000})})
    assert settings.terms.delivery_timeout == 300
    assert settings.terms.lease > 300
    assert theirs[name.replace("_", ".")] == 300_000
    assert "default.topic.config" not in theirs


MESSAGE, DELIVERY = "message.timeout.ms", "delivery.timeout.ms"


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({MESSAGE: 5_000, DELIVERY: 300_000}, 300),
        ({DELIVERY: 300_000, MESSAGE: 5_000}, 5),
        ({MESSAGE: 5_000, "default.topic.config": {DELIVERY: 300_000}}, 300),
        ({MESSAGE: 5_000, DELIVERY: 6_000, "default.topic.config": {MESSAGE: 300_000}}, 300),
    ],
)
def test_of_two_names_of_the_delivery_timeout_the_last_one_counts(config: dict[str, Any], seconds: int) -> None:
    """As in the client library: a lease by the other one would end before the records that were sent under it."""
    settings, theirs = producer_settings({**AT, **config})
    assert settings.terms.delivery_timeout == seconds
    assert [theirs[name] for name in (MESSAGE, DELIVERY) if name in theirs] == [seconds * 1000]


def test_a_delivery_timeout_without_end_is_refused_by_either_name() -> None:
    """Whatever the other one says."""
    for config in ({MESSAGE: 5_000, DELIVERY: 0}, {DELIVERY: 5_000, MESSAGE: 0}):
        with pytest.raises(ConfigError, match="timeout"):
            OrderedProducer({**AT, **config})


def test_a_consumer_goes_by_them() -> None:
    """They win over those beside them, as in the client library; what keyorder sets for itself stays."""
    config = {**AT, "group.id": "g", "enable.auto.commit": True, "auto.offset.reset": "latest"}
    given = nested(auto_offset_reset="earliest", enable_auto_commit=False, enable_partition_eof=False)
    settings, theirs = consumer_settings({**config, **given})
    assert (settings.start_at_latest, settings.auto_commit, settings.partition_eof) == (False, False, False)
    assert theirs["auto.offset.reset"] == "error"
    assert theirs["enable.partition.eof"] is True
    assert "default.topic.config" not in theirs


@pytest.mark.parametrize("value", [None, 5, "acks=1", ["acks"]])
def test_it_has_to_be_a_dict(value: object) -> None:
    """One error that names it."""
    with pytest.raises(ConfigError, match=r"default\.topic\.config"):
        OrderedConsumer({**AT, "group.id": "g", "default.topic.config": value})
