"""Certificates that are renewed, withdrawn and run out while clients run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.errors import StaleViewError, TlsError
from support.groups import QUICK, group_config, read
from support.tls import Door, TlsKafka

pytestmark = pytest.mark.process_supplier("the broker's listeners are set by its node's own properties")


@pytest.fixture
def tls(
    start_kafka: object, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsKafka]:
    """A broker of the test's own: its certificates change."""
    version, again = pytestconfig.getoption("--kafka-version"), {"broker.session.timeout.ms": "6000"}
    started = TlsKafka(tmp_path_factory.mktemp("tls"), "app", "secret", version, again)
    yield started
    started.stop()


def write(producer: OrderedProducer, topic: str, values: range) -> None:
    """Three keys in turns, each record acknowledged."""
    failed = []
    for value in values:
        producer.produce(
            topic, str(value), f"k{value % 3}", on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(120) == 0
    assert failed == []


@pytest.mark.nightly
def test_a_broker_gets_a_new_certificate_while_clients_run(tls: TlsKafka, topic_name: str) -> None:
    """By its dynamic configuration, of another CA: clients that trust both go on, with new connections, too."""
    both = tls.file("both.pem", tls.ca.certificate + tls.other_ca.certificate)
    door = Door(tls, {**tls.mutual(), "ssl.ca.location": both})
    old = tls.mutual()
    admin = TopicAdmin(door.client_config())
    admin.create(topic_name, 2)
    consumer = OrderedConsumer(group_config(door, topic_name))
    consumer.subscribe([topic_name])
    with OrderedProducer(door.client_config()) as producer:
        write(producer, topic_name, range(30))
        messages = read(consumer, 30)

        tls.renew("MUTUAL", tls.other_ca)
        with pytest.raises(TlsError) as refused:
            TopicAdmin(old).create(f"{topic_name}-x", 1, timeout=1.0)
        assert refused.value.setting == "ssl.ca.location"

        write(producer, topic_name, range(30, 60))
        admin.expand(topic_name, 4)
        write(producer, topic_name, range(60, 90))
        tls.restart()
        write(producer, topic_name, range(90, 120))
        admin.shrink(topic_name, 2)
        write(producer, topic_name, range(120, 150))
        messages += read(consumer, 120)
    consumer.close()
    found: dict[bytes, list[int]] = {}
    for message in messages:
        found.setdefault(message.key(), []).append(int(message.value()))
    assert found == {b"k%d" % i: list(range(i, 150, 3)) for i in range(3)}


def test_a_ca_that_a_broker_trusts_no_more(tls: TlsKafka, topic_name: str) -> None:
    """Its clients' connections last; new ones are refused with TlsError, until the CA is trusted again. Nothing is lost."""
    admin = TopicAdmin(tls.mutual())
    admin.create(topic_name, 2)
    with OrderedProducer(tls.mutual()) as producer:
        write(producer, topic_name, range(30))
        tls.trust("MUTUAL", tls.other_ca)

        with pytest.raises(TlsError) as refused:
            TopicAdmin(tls.mutual()).create(f"{topic_name}-x", 1, timeout=1.0)
        assert refused.value.setting == "ssl.certificate.location"

        tls.restart()
        for value in range(30, 33):
            producer.produce(topic_name, str(value), f"k{value % 3}")
        assert producer.flush(3) > 0
        tls.trust("MUTUAL", tls.ca)
        assert producer.flush(120) == 0
    with OrderedConsumer(group_config(Door(tls, tls.mutual()), topic_name)) as consumer:
        consumer.subscribe([topic_name])
        assert sorted(int(message.value() or b"") for message in read(consumer, 33)) == list(range(33))


def test_a_client_certificate_runs_out_while_the_client_runs(tls: TlsKafka, topic_name: str) -> None:
    """What asks the cluster then raises TlsError with the end; no record is lost unheard of; a new certificate goes on."""
    TopicAdmin(tls.plain()).create(topic_name, 2)
    TopicAdmin(tls.plain()).create(f"{topic_name}-2", 2)
    producer, settings, ends = written_while_it_was_good(tls, topic_name)
    assert threading.Event().wait(max(0.0, ends - clock.wall_ms() / 1000)) is False  # nothing but the clock ends it
    tls.restart()
    failed: list[str] = []
    for value in range(30, 33):
        producer.produce(
            topic_name, str(value), f"k{value % 3}", on_delivery=lambda error, message: failed.append(message.value())
        )
    with pytest.raises(TlsError) as refused:
        producer.produce(f"{topic_name}-2", "v", "k")
    assert refused.value.setting == "ssl.certificate.location"
    assert "the client certificate expired on" in str(refused.value)
    with pytest.raises(TlsError, match="the client certificate expired on"):
        TopicAdmin(settings).create(f"{topic_name}-x", 1, timeout=8.0)
    producer.close(0)
    assert sorted(failed) == [b"30", b"31", b"32"]

    with OrderedProducer(tls.mutual()) as renewed:
        write(renewed, topic_name, range(30, 60))
    with OrderedConsumer(group_config(Door(tls, tls.mutual()), topic_name)) as consumer:
        consumer.subscribe([topic_name])
        found: dict[bytes, list[int]] = {}
        for message in read(consumer, 60):
            found.setdefault(message.key(), []).append(int(message.value()))
    assert found == {b"k%d" % i: list(range(i, 60, 3)) for i in range(3)}


def written_while_it_was_good(tls: TlsKafka, topic: str) -> tuple[OrderedProducer, dict[str, str], float]:
    """A producer with a certificate that ends soon, and 30 records in the topic; its settings; when the certificate ends."""
    seconds = 15.0
    while True:
        ends = clock.wall_ms() / 1000 + seconds
        settings = tls.mutual(who=tls.ca.issue("app", lasts=timedelta(seconds=seconds)))
        producer = OrderedProducer({**settings, "keyorder.control.timeout.ms": 8_000, "log_level": 0})
        with suppress(TlsError):
            producer.produce(
                topic, "0", "k0"
            )  # it asks for the timeline: by now there is a connection, or there is none
            write(producer, topic, range(1, 30))
            return producer, settings, ends
        producer.close(0)
        seconds *= 3  # the machine is too busy for a shorter one


def test_a_file_of_certificates_that_is_not_there_for_a_while_ends_no_reader(tls: TlsKafka, topic_name: str) -> None:
    """Clients beside the consumer's own come and go, and cannot be made then: records wait, and are read afterwards."""
    trusted = tls.file("replaced.pem", tls.ca.certificate)
    door = Door(tls, {**tls.mutual(), "ssl.ca.location": trusted})
    TopicAdmin(tls.mutual()).create(topic_name, 2, config=QUICK)
    with (
        OrderedProducer(tls.mutual()) as producer,
        OrderedConsumer(group_config(door, topic_name, keyorder_control_timeout_ms=3000)) as consumer,
    ):
        consumer.subscribe([topic_name])
        write(producer, topic_name, range(1))
        messages = read(consumer, 1)

        Path(trusted).unlink()
        consumer._link.admin.close()  # as when nobody has asked for a while
        consumer._link.offsets.close()
        sent, late = 1, False
        deadline = clock.now() + 120
        while not late:
            assert clock.now() < deadline, "every record was read"
            write(producer, topic_name, range(sent, sent + 1))
            sent += 1
            try:
                messages += consumer.consume(10, 0.1)
            except StaleViewError:
                late = True
        tls.file("replaced.pem", tls.ca.certificate)
        while len(messages) < sent:
            with suppress(StaleViewError):
                messages += consumer.consume(sent, 0.1)
            assert clock.now() < deadline
    assert sorted(int(message.value()) for message in messages) == list(range(sent))
