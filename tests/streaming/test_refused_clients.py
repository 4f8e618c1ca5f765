"""Client settings that the tasks' clients would not take: told in the driver, by the name that was given."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from keyorder.connector.config import producer_settings
from keyorder.partitioner.errors import ConfigError
from keyorder.streaming.client_options import client_config
from keyorder.streaming.sink.options import sink_options
from keyorder.streaming.source.cluster import QueryCluster
from keyorder.streaming.source.options import source_options
from support.logged import logged

BASE = {"kafka.bootstrap.servers": "127.0.0.1:1"}
EXACTLY_ONCE = {"keyorder.sink.exactly.once": "true"}


def sink(options: Mapping[str, str]) -> Any:
    """What the driver makes of a write's options."""
    return sink_options({**BASE, "topic": "t", **options})


def source(options: Mapping[str, str]) -> Any:
    """The cluster as a query with these options sees it."""
    return QueryCluster(source_options({**BASE, "subscribe": "t", **options}, streaming=True))


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("retries", "0", {}),
        ("retries", "-1", {}),
        ("message.send.max.retries", " 0 ", {}),
        ("retries", "1", {"retries": "1"}),
        (
            "max.in.flight.requests.per.connection",
            "10",
            {"max.in.flight.requests.per.connection": "5"},
        ),
        ("max.in.flight", "6", {"max.in.flight": "5"}),
        ("max.in.flight.requests.per.connection", "5", {"max.in.flight.requests.per.connection": "5"}),
        ("max.in.flight.requests.per.connection", "1", {"max.in.flight.requests.per.connection": "1"}),
    ],
)
def test_what_idempotence_forbids_is_made_to_fit(
    name: str, value: str, kept: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's own sink runs with it. Said, where the number is another one then."""
    with caplog.at_level(logging.WARNING, "keyorder.streaming"):
        options = sink({f"kafka.{name}": value})
    assert options.client == {"bootstrap.servers": "127.0.0.1:1", **kept}
    told = [record.getMessage() for record in logged(caplog)]
    assert any(text.startswith(f"kafka.{name}=") for text in told) == (kept.get(name) != value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"kafka.delivery.timeout.ms": "600000", **EXACTLY_ONCE},
            r"^kafka\.delivery\.timeout\.ms: .*delivery\.timeout\.ms=600000, transaction\.timeout\.ms=300000",
        ),
        (
            {"kafka.transaction.timeout.ms": "60000", "kafka.delivery.timeout.ms": "120000", **EXACTLY_ONCE},
            r"^kafka\.(delivery|transaction)\.timeout\.ms: .*=120000, transaction\.timeout\.ms=60000",
        ),
        ({"kafka.delivery.timeout.ms": "1000", "kafka.linger.ms": "2000"}, r"^kafka\.(delivery\.timeout|linger)\.ms: "),
        ({"kafka.linger.ms": "30000"}, r"^kafka\.linger\.ms: .*delivery\.timeout\.ms=20000"),
        ({"kafka.delivery.timeout.ms": "0"}, r"^kafka\.delivery\.timeout\.ms: "),
        ({"kafka.partitioner": "random"}, r"^kafka\.partitioner: "),
        (
            {"kafka.max.in.flight.requests.per.connection": "many"},
            r"^kafka\.max\.in\.flight\.requests\.per\.connection: ",
        ),
        ({"kafka.default.topic.config": "x"}, r"^kafka\.default\.topic\.config: "),
        ({"kafka.max.request.size": "x"}, r"^kafka\.max\.request\.size: "),
        ({"keyorder.lease.ms": "x"}, r"^keyorder\.lease\.ms: "),
    ],
)
def test_what_a_sinks_task_would_fail_at(options: dict[str, str], words: str) -> None:
    """Together with what the sink sets itself: the driver says it, of one setting that was given."""
    with pytest.raises(ConfigError, match=words):
        sink(options)


@pytest.mark.parametrize("side", [source, sink], ids=["source", "sink"])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kafka.security.protocol": "SSL", "kafka.ssl.keystore.key": "hunter2"}, "kafka.ssl.keystore.key"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.key.pem": "hunter2"}, "kafka.ssl.key.pem"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.certificate.chain": "hunter2"},
            "kafka.ssl.keystore.certificate.chain",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/nowhere/ca.pem"},
            "kafka.ssl.truststore.location",
        ),
        (
            {
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "PLAINX",
                "kafka.sasl.jaas.config": 'PlainLoginModule required username="u" password="hunter2";',
            },
            "kafka.sasl.mechanism",
        ),
        ({"kafka.fetch.max.wait.ms": "x"}, "kafka.fetch.max.wait.ms"),
        ({"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "x"}, "kafka.compression.gzip.level"),
        ({"kafka.default.topic.config": "x"}, "kafka.default.topic.config"),
        ({"kafka.error_cb": "x"}, "kafka.error_cb"),
        ({"kafka.security.protocol": "SSLX"}, "kafka.security.protocol"),
    ],
)
def test_the_setting_that_is_to_blame_is_named(side: Any, options: dict[str, str], named: str) -> None:
    """As it was given, also where it is wrong only beside others; its value is not shown where it is a secret."""
    with pytest.raises(ConfigError) as raised:
        side(options)
    assert raised.value.setting == named
    assert "hunter2" not in str(raised.value)


def test_what_the_sink_takes_its_producers_take() -> None:
    """Each setting that is common in jobs of Spark's own sink, with and without transactions."""
    common = {
        "kafka.acks": "1", "kafka.retries": "0", "kafka.max.in.flight.requests.per.connection": "100",
        "kafka.linger.ms": "50", "kafka.batch.size": "65536", "kafka.compression.type": "lz4",
        "kafka.delivery.timeout.ms": "120000", "kafka.request.timeout.ms": "30000", "kafka.buffer.memory": "33554432",
        "kafka.max.request.size": "5242880", "kafka.enable.idempotence": "false",
    }  # fmt: skip
    for more in ({}, EXACTLY_ONCE):
        options = sink({**common, **more})
        assert producer_settings(options.client)[0].terms.delivery_timeout == 120
        assert options.client["max.in.flight.requests.per.connection"] == "5"
    assert client_config({**BASE, **common}, producer=True)["retries"] == "0"
