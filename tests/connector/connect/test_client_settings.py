"""Java's names of client settings: translated, refused when a connector is validated, or named once."""

from __future__ import annotations

import logging

import pytest
from keyorder.connector.connect.runtime.clients import (
    check_clients,
    consumer_config,
    dead_letter_config,
    producer_config,
)
from keyorder.connector.connect.runtime.launch import Parts
from keyorder.connector.connect.runtime.plugins import Plugins
from keyorder.connector.connect.runtime.validation import validate
from keyorder.connector.java_names import ClientSettings
from keyorder.partitioner.errors import ConfigError
from support.logged import logged

WORKER = {"bootstrap.servers": "127.0.0.1:9", "offset.storage.file.filename": "offsets", "listeners": ""}
SOURCE = {"name": "s", "connector.class": "FileStreamSource", "file": "f", "topic": "t"}
SINK = {"name": "s", "connector.class": "FileStreamSink", "file": "f", "topics": "t"}


def errors(config: dict[str, str]) -> dict[str, list[str]]:
    """Setting: its errors, as PUT /connector-plugins/{c}/config/validate answers."""
    plugins = Plugins()
    answer = validate(plugins, WORKER, plugins.connector(config["connector.class"]), config)
    return {c["value"]["name"]: c["value"]["errors"] for c in answer["configs"] if c["value"]["errors"]}


def test_java_s_names_are_translated() -> None:
    """Sizes in the library's units, assignors by their short names."""
    overrides = {
        "producer.override.max.request.size": "2000000",
        "producer.override.buffer.memory": "67108864",
        "producer.override.max.block.ms": "1000",
        "producer.override.linger.ms": "7",
        "producer.override.compression.type": "zstd",
        "producer.override.compression.zstd.level": "5",
    }
    assert errors({**SOURCE, **overrides}) == {}
    made = producer_config(WORKER, overrides, "s", 0, False)
    assert made["message.max.bytes"] == "2000000"
    assert made["queue.buffering.max.kbytes"] == "65536"
    assert (made["linger.ms"], made["compression.level"]) == ("7", "5")
    assert "max.block.ms" not in made
    worker = {**WORKER, "consumer.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"}
    sink = consumer_config(
        worker, {"consumer.override.fetch.max.wait.ms": "50", "consumer.override.max.poll.records": "5"}, "s", 0
    )
    assert (sink["partition.assignment.strategy"], sink["fetch.wait.max.ms"]) == ("range", "50")
    assert "max.poll.records" not in sink


def test_a_sink_reads_what_is_committed_unless_it_is_told_otherwise() -> None:
    """By its own override, or by the worker for all of its sinks."""
    uncommitted = {"consumer.override.isolation.level": "read_uncommitted"}
    assert errors({**SINK, **uncommitted}) == {}
    assert consumer_config(WORKER, SINK, "s", 0)["isolation.level"] == "read_committed"
    assert consumer_config(WORKER, {**SINK, **uncommitted}, "s", 0)["isolation.level"] == "read_uncommitted"
    worker = {**WORKER, "consumer.isolation.level": "read_uncommitted"}
    assert consumer_config(worker, SINK, "s", 0)["isolation.level"] == "read_uncommitted"


def test_overrides_that_the_worker_does_not_allow_are_refused() -> None:
    """The policy is read without the spaces around it, as a worker that starts has checked it."""
    given = {**SINK, "consumer.override.fetch.max.wait.ms": "50"}
    for policy in ("None", " None\n"):
        settings = {**WORKER, "connector.client.config.override.policy": policy}
        parts = Parts.of(settings, distributed=False)
        with pytest.raises(ConfigError, match=r"consumer\.override"):
            consumer_config(parts.settings, given, "s", 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("producer.override.partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner"),
        ("producer.override.partitioner.ignore.keys", "true"),
        ("producer.override.interceptor.classes", "com.example.Interceptor"),
        ("producer.override.transactional.id", "mine"),
        ("producer.override.acks", "1"),
        ("producer.override.linger.ms", "soon"),
        ("producer.override.buffer.memory", "much"),
        ("consumer.override.group.id", "mine"),
        ("consumer.override.partition.assignment.strategy", "com.example.MyAssignor"),
        ("consumer.override.fetch.min.bytes", "-1"),
        ("consumer.override.ssl.truststore.location", "/etc/trust.jks"),
    ],
)
def test_what_cannot_be_obeyed_is_an_error_of_its_own_setting(name: str, value: str) -> None:
    """When the connector is validated, not when its tasks start."""
    config = {**(SOURCE if name.startswith("producer") else SINK), name: value}
    assert list(errors(config)) == [name]


def test_the_producer_of_a_dead_letter_queue_is_set_as_that_of_a_source() -> None:
    """A connector's settings before the worker's; what has no default of Kafka Connect is what the library takes at most."""
    overrides = {"producer.override.linger.ms": "7", "producer.override.sasl.username": "u"}
    worker = {**WORKER, "producer.linger.ms": "9", "producer.keyorder.lease.ms": "60000", "producer.acks": "all"}
    made = dead_letter_config(worker, overrides, "s", 0)
    assert (made["linger.ms"], made["sasl.username"], made["enable.idempotence"]) == ("7", "u", True)
    assert (made["message.max.bytes"], made["delivery.timeout.ms"]) == (1_000_000_000, 300_000)
    assert made["client.id"] == "connector-dlq-producer-s-0"
    assert [name for name in made if name.startswith("keyorder.") or name == "acks"] == []
    made = dead_letter_config(worker, {"producer.override.message.timeout.ms": "5000"}, "s", 0)
    assert made["message.timeout.ms"] == 5000
    assert "delivery.timeout.ms" not in made
    own = {"producer.override.delivery.timeout.ms": "9000"}
    made = dead_letter_config({**WORKER, "producer.message.timeout.ms": "7000"}, own, "s", 0)
    assert int(made.get("message.timeout.ms", made.get("delivery.timeout.ms"))) == 9000


@pytest.mark.parametrize(("name", "value"), [("producer.override.acks", "1"), ("producer.override.linger.ms", "soon")])
def test_a_sink_with_a_dead_letter_queue_has_its_producer_settings_checked(name: str, value: str) -> None:
    """Without one it has no producer."""
    assert errors({**SINK, name: value}) == {}
    assert list(errors({**SINK, "errors.deadletterqueue.topic.name": "d", name: value})) == [name]


def test_a_setting_of_the_worker_that_a_client_does_not_take_is_named_as_the_worker_s() -> None:
    """Nobody finds it in the connector."""
    with pytest.raises(ConfigError) as caught:
        check_clients("sink", {**WORKER, "producer.acks": "1"}, {**SINK, "errors.deadletterqueue.topic.name": "d"})
    assert caught.value.setting == "producer.acks"


def test_unknown_settings_are_left_out_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """As Java's clients name them; keyorder's own pass."""
    settings = ClientSettings()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            given = {"bogus.setting": "1", "metric.reporters": "x", "keyorder.adopt": "false", "client.id": "c"}
            made = settings.translated(given, "producer.override.", "producer")
    assert made == {"keyorder.adopt": "false", "client.id": "c"}
    assert [r.getMessage().split()[2] for r in logged(caplog)] == [
        "producer.override.metric.reporters",
        "producer.override.bogus.setting",
    ]


def test_worker_settings_without_effect_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Those of Kafka Connect that change nothing here, and those that nobody knows, with what may be meant."""
    given = {
        **WORKER,
        "rest.extension.classes": "x",
        "offset.flush.intervall.ms": "5",
        "key.converter.schemas.enable": "false",
        "security.protocol": "PLAINTEXT",
        "producer.linger.ms": "5",
        "bogus": "1",
    }
    with caplog.at_level(logging.WARNING):
        Parts.of(given, distributed=False)
    assert [record.getMessage() for record in logged(caplog)] == [
        "there is no setting bogus",
        "there is no setting offset.flush.intervall.ms: did you mean offset.flush.interval.ms?",
        "the setting rest.extension.classes of Kafka Connect has no effect here",
    ]


@pytest.mark.parametrize(("name", "value"), [("producer.partitioner.class", "X"), ("consumer.fetch.min.bytes", "x")])
def test_a_worker_refuses_client_settings_that_it_cannot_obey(name: str, value: str) -> None:
    """At its start, by name."""
    with pytest.raises(ConfigError) as caught:
        Parts.of({**WORKER, name: value}, distributed=False)
    assert caught.value.setting == name
