"""A marked password goes into clients, commands, the doctor, a controller and a Connect worker; it comes out nowhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.doctor.examine import examine
from support.cluster import ClusterSpec, KafkaUnderTest
from support.commands import Command
from support.connect_rig import RestClient, worker_settings
from support.leaks import Sink

RIGHT, WRONG, KEY = "marked-right-5ecret", "marked-wrong-5ecret", "marked-key-5ecret"
MARKS = (RIGHT, WRONG, KEY)


@pytest.fixture(scope="module")
def guarded(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker that wants passwords."""
    started = start_kafka(ClusterSpec(1, {"root": RIGHT}))
    yield started
    started.stop()


def test_the_scan_finds_what_leaks() -> None:
    """A text that has a mark is found, wherever it stands."""
    sink = Sink(MARKS)
    sink.saw("nowhere", "nothing")
    sink.attempt("an error", lambda: TopicAdmin({"bootstrap.servers": "a:1", "keyorder.unknown": RIGHT}))
    sink.saw("a config", {"sasl.password": KEY})
    assert {where for where, _ in sink.leaks()} >= {"a config"}


def test_clients_and_their_errors(
    guarded: KafkaUnderTest, topic_name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Producer, consumer, admin, doctor; logged in, refused, and with a private key that cannot be read."""
    caplog.set_level(logging.DEBUG)
    sink = Sink(MARKS)
    good = guarded.client_config()
    bad = {**good, "sasl.password": WRONG, "keyorder.control.timeout.ms": 3000}
    admin = TopicAdmin(good, lambda step: sink.saw("a change's steps", step))
    sink.attempt("create", lambda: admin.create(topic_name, 2))
    with OrderedProducer(good) as producer:
        sink.saw("producer", producer)
        producer.produce(topic_name, b"v", b"k", on_delivery=lambda *seen: sink.saw("delivery", seen))
    with OrderedConsumer({**good, "group.id": topic_name, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic_name])
        assert consumer.poll(30) is not None
        sink.saw("consumer", consumer)
        sink.saw("gates", consumer.gates())
    assert sink.attempt("expand", lambda: admin.expand(topic_name, 3)) is None
    sink.attempt("describe", lambda: admin.describe(topic_name))
    sink.attempt("plan", lambda: admin.plan(topic_name, 4))
    sink.attempt("status", lambda: admin.change_status(topic_name))
    for config in (good, {k: v for k, v in bad.items() if not k.startswith("keyorder.")}):
        sink.attempt("doctor", lambda config=config: [str(f) for f in examine(config, (topic_name,), 10, 3.0)])
    refused = OrderedProducer(bad)
    sink.attempt("refused producer", lambda: refused.produce(topic_name, b"v", b"k"))
    sink.attempt("refused producer's end", lambda: refused.close(1))
    broken = {**good, "security.protocol": "SASL_SSL", "ssl.key.pem": f"-----BEGIN {KEY}", "ssl.key.password": KEY}
    for kind in (OrderedProducer, OrderedConsumer, TopicAdmin):
        for setting in (broken, {**good, "sasl.pasword": KEY}):
            raised = sink.attempt(kind.__name__, lambda kind=kind, setting=setting: kind({**setting, "group.id": "g"}))
            assert raised is not None or kind is TopicAdmin
    out, err = capfd.readouterr()
    sink.texts += [("stdout", out), ("stderr", err), ("log", caplog.text)]

    assert sink.leaks() == []
    assert caplog.text or err, "nothing was looked at"


def test_commands(guarded: KafkaUnderTest, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that reach a cluster, with a right and a wrong password in --command-config, as text and JSON."""
    keyorder = Command(guarded, capsys)
    sink = Sink(MARKS)
    words = (
        ("topics", "create", "--topic", topic_name, "--partitions", 2),
        ("topics", "describe", "--topic", topic_name),
        ("topics", "list"),
        ("topics", "plan", "--topic", topic_name, "--partitions", 3),
        ("topics", "expand", "--topic", topic_name, "--partitions", 3),
        ("groups", "describe", "--group", "g"),
        ("status",),
        ("doctor",),
        ("controller", "--once"),
    )
    codes = []
    for password in (RIGHT, WRONG):
        file = tmp_path / f"{password}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="root" password="{password}";\n'
        )
        hidden = file.rename(tmp_path / ("right.properties" if password == RIGHT else "wrong.properties"))
        # A wrong one is noticed by nobody but the time-out, as with a lost connection.
        for command in words if password == RIGHT else words[1:4]:
            form = "table" if command[0] == "doctor" else "json"
            patience = ("--timeout", 30 if password == RIGHT else 2)
            run = keyorder(*command, *patience, "--command-config", hidden, output=form)
            sink.saw(" ".join(map(str, command)), run.out + run.err)
            codes.append((command[0], password == RIGHT, run.code))

    assert sink.leaks() == []
    assert ("topics", True, 0) in codes
    assert {code for kind, right, code in codes if not right and kind == "topics"} == {1}


def test_a_connect_worker(
    guarded: KafkaUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its REST, its log and its metrics; the worker itself logs in with the marked password."""
    caplog.set_level(logging.DEBUG)
    sink = Sink(MARKS)
    settings = {**worker_settings(guarded, tmp_path), "listeners": "http://127.0.0.1:0"}
    assert RIGHT in settings.values()
    with WorkerProcess(settings, in_group=False) as worker:
        rest = RestClient(worker.url)
        for path in ("/", "/connectors", "/connector-plugins", "/metrics", "/health", "/admin/loggers", "/nothing"):
            sink.saw(path, rest("GET", path).text)
        body = {"name": "c", "config": {"connector.class": "NoSuch", "sasl.password": KEY}}
        sink.saw("refused", rest("POST", "/connectors", body).text)
    out, err = capfd.readouterr()
    sink.texts += [("stdout", out), ("stderr", err), ("log", caplog.text)]

    assert sink.leaks() == []
