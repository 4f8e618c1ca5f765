"""All parts over TLS: with certificates on both sides and with a password, and what is said when TLS is refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.aio import AIOConsumer, AIOProducer
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.runtime.launch import Parts, distributed
from keyorder.connector.control.timeline_writer import TimelineWriter
from keyorder.connector.doctor.examine import examine
from keyorder.connector.refusals import refusal
from keyorder.errors import TlsError
from support.commands import Command
from support.connect_rig import RestClient, alone, group_settings, until, worker_settings
from support.groups import group_config, read, read_by_turns
from support.leaks import Sink
from support.tls import PASSWORD, Door, TlsKafka

pytestmark = pytest.mark.process_supplier("the broker's listeners are set by its node's own properties")

KEY_PASSWORD = "marked-key-5ecret"


@pytest.fixture(params=["mutual", "sasl"])
def door(request: pytest.FixtureRequest, tls: TlsKafka) -> Door:
    """The way in: PEM texts in the settings and a key that has a password, or files and SCRAM."""
    return Door(tls, tls.inline(KEY_PASSWORD) if request.param == "mutual" else tls.sasl())


def write(door: Door, topic: str, values: range) -> None:
    """Three keys in turns."""
    with OrderedProducer(door.client_config()) as producer:
        for value in values:
            producer.produce(topic, str(value), f"k{value % 3}")


def by_key(pairs: list[tuple[bytes | str, bytes | str]]) -> dict[str, list[int]]:
    """The numbers of each key as they came."""
    found: dict[str, list[int]] = {}
    for key, value in pairs:
        found.setdefault(key.decode() if isinstance(key, bytes) else key, []).append(int(value))
    return found


def expected(count: int) -> dict[str, list[int]]:
    """Each key in order, once."""
    return {f"k{i}": list(range(i, count, 3)) for i in range(3)}


def test_clients_a_change_and_a_hand_over(door: Door, topic_name: str) -> None:
    """A topic grows while it is written and read; a second member takes over a part of it. No key loses its order."""
    admin = TopicAdmin(door.client_config())
    admin.create(topic_name, 2)
    write(door, topic_name, range(30))
    first = OrderedConsumer(group_config(door, topic_name))
    first.subscribe([topic_name])
    messages = read(first, 30)
    with OrderedProducer(door.client_config()) as producer:
        for value in range(30, 60):
            producer.produce(topic_name, str(value), f"k{value % 3}")
            if value == 45:
                admin.expand(topic_name, 4)
    second = OrderedConsumer(group_config(door, topic_name))
    second.subscribe([topic_name])
    # Both are polled all the time: whichever is given a partition first has to read it, or the other waits for its share.
    messages += read_by_turns([first, second], lambda count: count >= 30 and bool(second.assignment()))
    write(door, topic_name, range(60, 66))
    messages += read_by_turns([first, second], lambda count: count >= 6)
    first.close()
    second.close()

    assert by_key([(m.key() or b"", m.value() or b"") for m in messages]) == expected(66)


def test_asyncio(door: Door, topic_name: str) -> None:
    """The clients of keyorder.aio."""
    TopicAdmin(door.client_config()).create(topic_name, 2)

    async def run() -> list[tuple[bytes | str, bytes | str]]:
        producer = AIOProducer(door.client_config())
        for value in range(12):
            await (await producer.produce(topic_name, value=str(value), key=f"k{value % 3}"))
        await producer.close()
        consumer = AIOConsumer(group_config(door, topic_name))
        await consumer.subscribe([topic_name])
        found: list[tuple[bytes | str, bytes | str]] = []
        while len(found) < 12:
            message = await consumer.poll(timeout=1.0)
            if message is not None and message.error() is None:
                found.append((message.key() or b"", message.value() or b""))
        await consumer.close()
        return found

    assert by_key(asyncio.run(asyncio.wait_for(run(), 120))) == expected(12)


def test_commands(door: Door, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The settings are in the file of --command-config."""
    keyorder = Command(door, capsys)
    reach = ("--command-config", door.properties(tmp_path / "client.properties"))

    assert keyorder("topics", "create", "--topic", topic_name, "--partitions", 2, *reach).code == 0
    assert keyorder("topics", "expand", "--topic", topic_name, "--partitions", 3, *reach).code == 0
    described = keyorder("topics", "describe", "--topic", topic_name, *reach)
    assert described.code == 0, described
    examined = keyorder("doctor", "--topic", topic_name, *reach, output="table")
    assert "it answers" in examined.out, examined


def test_a_worker_of_connect(door: Door, topic_name: str, tmp_path: Path) -> None:
    """A source task writes what a sink task reads."""
    TopicAdmin(door.client_config()).create(topic_name, 2)
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"k{i % 3}:{i}\n" for i in range(30)))
    with alone(worker_settings(door, tmp_path)) as worker:
        files = {"file": str(source), "topic": topic_name, "key.delimiter": ":"}
        worker.create(f"in-{topic_name}", {"connector.class": "FileStreamSource", **files})
        files = {"file": str(target), "topics": topic_name, "key.delimiter": ":"}
        worker.create(f"out-{topic_name}", {"connector.class": "FileStreamSink", **files})
        until(lambda: target.exists() and len(target.read_text().splitlines()) == 30, "30 lines are there")

    pairs = [tuple(line.split(":")) for line in target.read_text().splitlines()]
    assert by_key([(key, value) for key, value in pairs]) == expected(30)


Refused = Callable[[TlsKafka], dict[str, str]]


def without(settings: dict[str, str], *names: str) -> dict[str, str]:
    """All settings but these."""
    return {name: value for name, value in settings.items() if name not in names}


# What is wrong: the client's settings, the setting that the error has to name, and words that say what to do.
REFUSED: dict[str, tuple[Refused, str, str]] = {
    "another CA": (
        lambda tls: tls.mutual() | {"ssl.ca.location": tls.file("other.pem", tls.other_ca.certificate)},
        "ssl.ca.location",
        "give the certificate of the CA",
    ),
    "another CA, as text": (
        lambda tls: tls.inline(KEY_PASSWORD) | {"ssl.ca.pem": tls.other_ca.certificate},
        "ssl.ca.pem",
        "give the certificate of the CA",
    ),
    "another host": (
        lambda tls: tls.mutual("ELSEWHERE"),
        "ssl.endpoint.identification.algorithm",
        "connect by a name that it has",
    ),
    "no client certificate": (
        lambda tls: without(tls.mutual(), "ssl.certificate.location", "ssl.key.location"),
        "ssl.certificate.location",
        "give one with its key",
    ),
    "a client certificate of another CA": (
        lambda tls: tls.mutual(who=tls.other_ca.issue("app")),
        "ssl.certificate.location",
        "of a CA that the broker trusts",
    ),
    "in the clear to TLS": (
        lambda tls: {"bootstrap.servers": tls.address("MUTUAL")},
        "security.protocol",
        "set it to SSL",
    ),
    "a password in the clear to TLS": (
        lambda tls: tls.sasl() | {"security.protocol": "SASL_PLAINTEXT"},
        "security.protocol",
        "set it to SASL_SSL",
    ),
    "TLS to a port in the clear": (lambda tls: tls.mutual() | tls.plain(), "security.protocol", "name its TLS port"),
    "an expired certificate of the broker": (
        lambda tls: tls.mutual("EXPIRED"),
        "ssl.keystore of the broker",
        "renew it",
    ),
    "an expired certificate of the client": (
        lambda tls: tls.mutual(who=tls.expired_client),
        "ssl.certificate.location",
        "renew it",
    ),
    "an expired certificate of the client, as text": (
        lambda tls: (
            tls.inline(KEY_PASSWORD)
            | {"ssl.certificate.pem": tls.expired_client.certificate}
            | {"ssl.key.pem": tls.expired_client.private(KEY_PASSWORD)}
        ),
        "ssl.certificate.pem",
        "renew it",
    ),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_refusal_names_the_setting_and_the_fix(tls: TlsKafka, topic_name: str, wrong: str) -> None:
    """One TlsError, and no topic comes of what was tried."""
    made, setting, fix = REFUSED[wrong]
    config = made(tls)
    with pytest.raises(TlsError) as refused:
        TopicAdmin(config).create(topic_name, 1, timeout=1.0)
    assert (refused.value.setting, refused.value.retriable) == (setting, True)
    assert fix in refused.value.fix
    assert setting in str(refused.value)
    assert refused.value.fix in str(refused.value)
    with pytest.raises(KafkaException):  # who catches the library's own errors meets it, too
        raise refused.value
    assert topic_name not in AdminClient(tls.plain()).list_topics(timeout=60).topics


def test_a_controller_that_is_refused_when_it_begins(tls: TlsKafka, topic_name: str) -> None:
    """Its own client is another one than that which asked the cluster before: a certificate may run out in between."""
    with pytest.raises(TlsError) as refused:
        TimelineWriter(REFUSED["another CA"][0](tls), topic_name, timeout=1.0).start()
    assert refused.value.setting == "ssl.ca.location"


def test_parts_that_are_refused(
    tls: TlsKafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Producer, asyncio, command, doctor, a worker of Connect say the same; nothing that they were to do is half done."""
    door = Door(tls, REFUSED["another CA"][0](tls))
    admin = TopicAdmin(tls.plain())
    admin.create(topic_name, 1)
    impatient = door.client_config() | {"keyorder.control.timeout.ms": 500}
    with OrderedProducer(impatient) as producer, pytest.raises(TlsError):
        producer.produce(topic_name, "v", "k")

    async def run() -> None:
        aio = AIOProducer(impatient)
        with pytest.raises(TlsError):
            await (await aio.produce(topic_name, value="v", key="k"))
        await aio.close()

    asyncio.run(asyncio.wait_for(run(), 60))
    keyorder = Command(door, capsys)
    reach = ("--command-config", door.properties(tmp_path / "client.properties"), "--timeout", 1)
    expanded = keyorder("topics", "expand", "--topic", topic_name, "--partitions", 3, *reach)
    assert (expanded.code, "ssl.ca.location: no CA in it" in expanded.out) == (1, True), expanded
    examined = keyorder("doctor", *reach, output="table")
    assert (examined.code, "ssl.ca.location: no CA in it" in " ".join(examined.out.split())) == (1, True), examined
    parts = Parts.of(group_settings(door, topic_name), distributed=True)
    with pytest.raises(TlsError):
        distributed(parts, "")

    assert admin.describe(topic_name).partitions == 1
    assert admin.describe(topic_name).writers == ()
    plain = OrderedConsumer(group_config(Door(tls, tls.plain()), topic_name))
    plain.subscribe([topic_name])
    write(Door(tls, tls.plain()), topic_name, range(3))
    assert [m.value() for m in read(plain, 3)] == [b"0", b"1", b"2"]
    plain.close()


def test_no_key_and_no_password_shows(
    tls: TlsKafka, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """PEM texts and passwords go into clients, doctor and a worker of Connect: accepted, refused, and unreadable."""
    caplog.set_level(logging.DEBUG)
    good = tls.inline(KEY_PASSWORD)
    sink = Sink([KEY_PASSWORD, PASSWORD, *good["ssl.key.pem"].splitlines()[1:-1], "PRIVATE KEY"])
    configs = {
        "accepted": good,
        "accepted login": tls.sasl(),
        "refused": good | {"ssl.ca.pem": tls.other_ca.certificate},
        "refused login": tls.sasl() | {"sasl.password": f"{PASSWORD}-no"},
        "another password of the key": good | {"ssl.key.password": f"{KEY_PASSWORD}-no"},
        "no PEM": good | {"ssl.key.pem": good["ssl.key.pem"][:80]},
    }
    TopicAdmin(tls.plain()).create(topic_name, 1)
    raised: dict[str, str] = {}
    for name, config in configs.items():
        error = sink.attempt(name, lambda config=config: TopicAdmin(config).create(f"{topic_name}-x", 1, timeout=1.0))
        raised[name] = type(error).__name__
        sink.attempt(name, lambda config=config: refusal(config))
        group = {**config, "group.id": topic_name}
        sink.attempt(name, lambda group=group: OrderedConsumer(group).close())
        sink.attempt(name, lambda config=config: OrderedProducer(config).close(0))
        if "accepted" in name:
            sink.attempt(name, lambda config=config: [str(f) for f in examine(config, (topic_name,), 10, 3.0)])
    settings = {**worker_settings(Door(tls, good), tmp_path), "listeners": "http://127.0.0.1:0"}
    with WorkerProcess(settings, in_group=False) as worker:
        rest = RestClient(worker.url)
        sink_of = {"connector.class": "FileStreamSink", "file": str(tmp_path / "f"), "topics": topic_name}
        sink.saw("created", rest("POST", "/connectors", {"name": "c", "config": sink_of}).text)
        for path in ("/", "/connectors?expand=status&expand=info", "/metrics", "/health", "/connectors/c/offsets"):
            sink.saw(path, rest("GET", path).text)
    sink.texts += [(str(file), file.read_text()) for file in tmp_path.rglob("*.json")]
    out, err = capfd.readouterr()
    sink.texts += [("stdout", out), ("stderr", err), ("log", caplog.text)]

    assert sink.leaks() == []
    assert raised["refused"] == "TlsError"
    assert raised["refused login"] == "NotAuthorizedError"
    assert {raised["another password of the key"], raised["no PEM"]} == {"KafkaException"}
