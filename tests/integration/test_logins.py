"""Logins over TLS that end and are renewed while clients run: passwords and tokens, with the authorizer on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.errors import NotAuthorizedError
from support.groups import group_config, read
from support.rights import grant_exactly, rights
from support.tls import PASSWORD, Door, TlsKafka, token

pytestmark = pytest.mark.process_supplier("the broker's listeners are set by its node's own properties")


class Tokens:
    """An application's `oauth_cb`. lasts: seconds that each token is good for."""

    def __init__(self, user: str = "app", lasts: float = 6.0) -> None:
        self.user, self.lasts, self.given = user, lasts, 0

    def __call__(self, config: str) -> tuple[str, float]:
        self.given += 1
        until = clock.wall_ms() / 1000 + self.lasts
        return token(self.user, until), until


WAYS = ("a password", "tokens of the application", "tokens of the client library")


def settings(tls: TlsKafka, way: str) -> dict[str, Any]:
    """Of a client that has to log in again all the time."""
    if way == "a password":
        return {**tls.sasl("RELOGIN")}
    if way == "tokens of the application":
        return {**tls.bearer(), "oauth_cb": Tokens()}
    # Longer than the test: the library renews these, made for tests, only when the client is polled (those of OIDC always).
    unsecured = "principal=app lifeSeconds=3600"
    return {**tls.bearer(), "enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": unsecured}


class Logins(logging.Handler):
    """Connections that were there and logged in again, as the client library tells of them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.again, self.heard = 0, threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        if "reauth" in record.getMessage().lower():
            self.again += 1
            self.heard.release()

    def wait(self, count: int) -> None:
        """Return when there were so many more."""
        for _ in range(count):
            assert self.heard.acquire(timeout=120), "no connection logs in again"


@pytest.mark.parametrize("way", WAYS)
def test_a_topic_grows_and_shrinks_while_every_login_ends(tls: TlsKafka, topic_name: str, way: str) -> None:
    """Records flow through a growth and a shrink until connections have logged in again many times: all in order, once."""
    door = Door(tls, settings(tls, way))
    logger, logins = logging.getLogger("test.logins"), Logins()
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(logins)
    told = {"debug": "security", "logger": logger}
    admin = TopicAdmin(door.client_config())
    admin.create(topic_name, 2)
    consumer = OrderedConsumer(group_config(door, topic_name))
    consumer.subscribe([topic_name])
    failed: list[Any] = []
    sent = 0
    values: dict[str, list[int]] = {}

    def change() -> None:
        logins.wait(3)
        admin.expand(topic_name, 4, timeout=240)
        logins.wait(3)
        admin.shrink(topic_name, 3, timeout=240)
        logins.wait(3)

    with OrderedProducer({**door.client_config(), **told}) as producer, ThreadPoolExecutor(1) as beside:
        changed = beside.submit(change)
        while not changed.done():
            producer.produce(
                topic_name, str(sent), f"k{sent % 7}", on_delivery=lambda error, _: failed.append(error) if error else 0
            )
            sent += 1
            producer.poll(0.02)
            message = consumer.poll(0.02)
            if message is not None:
                note(values, message)
        changed.result()
        assert producer.flush(120) == 0
    for message in read(consumer, sent - sum(map(len, values.values()))):
        note(values, message)
    consumer.close()

    assert failed == []
    assert admin.describe(topic_name).layout.count == 3
    assert values == {f"k{i}": list(range(i, sent, 7)) for i in range(7)}


def note(values: dict[str, list[int]], message: Any) -> None:
    assert message.error() is None, message.error()
    values.setdefault(message.key().decode(), []).append(int(message.value()))


def narrow(tls: TlsKafka, way: str) -> tuple[str, dict[str, Any]]:
    """(principal, settings) of a user who has no rights but those that are granted."""
    if way == "a certificate":
        return "CN=narrow", {**tls.mutual(who=tls.ca.issue("narrow"))}
    if way == "a password":
        tls.register("narrow", PASSWORD)
        return "narrow", {**tls.sasl(), "sasl.username": "narrow"}
    return "bearer", {**tls.bearer(), "oauth_cb": Tokens("bearer")}


@pytest.mark.parametrize("way", ["a certificate", "a password", "tokens"])
def test_the_rights_of_a_login_over_tls(tls: TlsKafka, topic_name: str, way: str) -> None:
    """What the table of rights says is enough; without one of them the error names the topic, and TLS is not blamed."""
    principal, config = narrow(tls, way)
    config = {**config, "log_level": 0}
    TopicAdmin(tls.plain()).create(topic_name, 2)
    plain = Door(tls, tls.plain()).admin()
    names = {"TOPIC": topic_name, "GROUP": f"group-{topic_name}"}
    mine = [right for right in rights() if right.role in ("producer", "consumer")]
    lacking = next(right for right in mine if right.role == "producer" and right.name == "_keyorder")

    grant_exactly(plain, principal, [right for right in mine if right.name != lacking.name], names)
    impatient = {**config, "keyorder.control.timeout.ms": 8000, "keyorder.adopt": False}
    with OrderedProducer(impatient) as producer, pytest.raises(NotAuthorizedError, match="_keyorder"):
        producer.produce(topic_name, b"never", b"k")

    grant_exactly(plain, principal, mine, names)
    with OrderedProducer(config) as producer:
        producer.produce(topic_name, b"v", b"k")
        assert producer.flush(120) == 0
    with OrderedConsumer({**config, "group.id": names["GROUP"], "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic_name])
        assert [message.value() for message in read(consumer, 1)] == [b"v"]
    with pytest.raises(NotAuthorizedError, match=r"_keyorder|transactional id"):
        TopicAdmin(config).expand(topic_name, 3, timeout=60)


@pytest.mark.parametrize("way", ["a password", "tokens"])
def test_a_login_that_is_refused_is_no_trouble_of_tls(tls: TlsKafka, topic_name: str, way: str) -> None:
    """Another password; a token that has ended: one NotAuthorizedError without password or token."""
    ended = token("app", clock.wall_ms() / 1000 - 60)
    config: dict[str, Any] = {
        "a password": {**tls.sasl("RELOGIN"), "sasl.password": f"{PASSWORD}-no"},
        "tokens": {**tls.bearer(), "oauth_cb": lambda _: (ended, clock.wall_ms() / 1000 + 60)},
    }[way]
    with pytest.raises(NotAuthorizedError) as refused:
        TopicAdmin({**config, "log_level": 0}).create(topic_name, 1, timeout=1.0)
    assert PASSWORD not in str(refused.value)
    assert ended not in str(refused.value)
    with pytest.raises(KafkaException):  # who catches the library's own errors meets it, too
        raise refused.value


def test_a_login_that_is_refused_for_a_while_ends_nothing(tls: TlsKafka, topic_name: str) -> None:
    """Somebody changes the password and changes it back: clients that had logged in go on, as the library's own do."""
    door = Door(tls, tls.sasl("RELOGIN"))
    heard = {"consumer": threading.Semaphore(0), "producer": threading.Semaphore(0)}

    def hears(who: str) -> dict[str, Any]:
        def note_refusal(error: Any) -> None:
            if error.code() == KafkaError._AUTHENTICATION:
                heard[who].release()

        return {"error_cb": note_refusal, "log_level": 0}

    admin = TopicAdmin(door.client_config())
    admin.create(topic_name, 2)
    consumer = OrderedConsumer({**group_config(door, topic_name), **hears("consumer")})
    consumer.subscribe([topic_name])
    patient = {**door.client_config(), "delivery.timeout.ms": 300_000}  # records wait until the password is good again
    with OrderedProducer({**patient, **hears("producer")}) as producer:
        values: dict[str, list[int]] = {}
        sent = 0

        def run_until(over: Callable[[], bool]) -> None:
            nonlocal sent
            deadline = clock.now() + 120
            while not over():
                assert clock.now() < deadline
                producer.produce(topic_name, str(sent), f"k{sent % 7}")
                sent += 1
                producer.poll(0.02)
                if (message := consumer.poll(0.02)) is not None:
                    note(values, message)

        run_until(lambda: sum(map(len, values.values())) > 50)
        tls.register(tls.user, "another")
        try:
            for who in heard:
                for _ in range(3):
                    run_until(lambda who=who: heard[who].acquire(blocking=False))
        finally:
            tls.register(tls.user, tls.password)
        assert admin.expand(topic_name, 3, timeout=240).after == 3
        assert producer.flush(120) == 0
    for message in read(consumer, sent - sum(map(len, values.values()))):
        note(values, message)
    consumer.close()
    assert values == {f"k{i}": list(range(i, sent, 7)) for i in range(7)}
