"""Settings as Java's clients take them, in a source and a sink that stand on another library."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from keyorder.connector.java_numbers import RANGES, fitted, nearest
from keyorder.partitioner.errors import ConfigError
from keyorder.streaming.client_options import check_client, client_config
from support.logged import logged

AT = {"kafka.bootstrap.servers": "localhost:1"}
LARGEST = str(2**31 - 1)
# Java's clients take each of these; none changes which records are read or written.
TAKEN = [
    ("batch.size", "0"), ("connections.max.idle.ms", "-1"), ("fetch.max.bytes", "100000"), ("fetch.max.bytes", "1"),
    ("fetch.max.bytes", LARGEST), ("fetch.max.wait.ms", LARGEST), ("fetch.min.bytes", "0"), ("fetch.min.bytes", LARGEST),
    ("linger.ms", LARGEST), ("max.partition.fetch.bytes", LARGEST), ("max.request.size", LARGEST), ("max.request.size", "1"),
    ("metadata.max.age.ms", "0"), ("metadata.max.age.ms", str(2**63 - 1)), ("receive.buffer.bytes", "-1"),
    ("reconnect.backoff.max.ms", "50"), ("reconnect.backoff.max.ms", LARGEST), ("reconnect.backoff.ms", "20000"),
    ("reconnect.backoff.ms", LARGEST), ("request.timeout.ms", LARGEST), ("retries", LARGEST), ("retry.backoff.max.ms", "0"),
    ("retry.backoff.ms", "0"), ("retry.backoff.ms", LARGEST), ("send.buffer.bytes", "-1"),
    ("socket.connection.setup.timeout.ms", "500"),
]  # fmt: skip
OF_GROUPS = [
    ("auto.commit.interval.ms", LARGEST), ("group.instance.id", "one"), ("heartbeat.interval.ms", "600000"),
    ("max.poll.interval.ms", LARGEST), ("max.poll.interval.ms", "1000"), ("session.timeout.ms", "600000"),
]  # fmt: skip


@pytest.mark.parametrize("producer", [False, True], ids=["source", "sink"])
@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_a_number_that_javas_clients_take(name: str, value: str, producer: bool) -> None:
    """The nearest that the client library takes: it is about pace, and a query that ran by `format("kafka")` runs on."""
    check_client(client_config({**AT, f"kafka.{name}": value}, producer), producer)


@pytest.mark.parametrize("producer", [False, True], ids=["source", "sink"])
@pytest.mark.parametrize(("name", "value"), OF_GROUPS)
def test_what_a_group_would_be_joined_with(
    name: str, value: str, producer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No group is joined, so nothing has to fit anything there."""
    with caplog.at_level(logging.WARNING, "keyorder.streaming"):
        config = client_config({**AT, f"kafka.{name}": value}, producer)
    check_client(config, producer)
    assert (config, f"kafka.{name}" in caplog.text) == ({"bootstrap.servers": "localhost:1"}, True)


@pytest.mark.parametrize("group", ["", " "])
def test_an_empty_group_ends_no_process(group: str) -> None:
    """The library stops the whole process at a consumer with such a group."""
    config = client_config({**AT, "kafka.group.id": group})
    assert "group.id" not in config
    check_client(config)


def test_a_number_out_of_range_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """With what is taken instead; one that fits stays as it was written."""
    with caplog.at_level(logging.WARNING, "keyorder.streaming"):
        config = client_config({**AT, "kafka.metadata.max.age.ms": LARGEST, "kafka.retry.backoff.ms": " 100 "})
    assert config["metadata.max.age.ms"] == "86400000"
    assert config["retry.backoff.ms"] == " 100 "
    assert [r.getMessage() for r in logged(caplog)] == [
        f"kafka.metadata.max.age.ms={LARGEST} is beyond what the client library takes: it is 86400000"
    ]


def test_what_is_no_number_is_refused() -> None:
    """By the library, as before."""
    with pytest.raises(ConfigError, match=r"^kafka\.linger\.ms: .*[^\n]; correct it$"):
        check_client(client_config({**AT, "kafka.linger.ms": "soon"}, True), True)


def test_a_small_fetch_does_not_make_a_sinks_records_small() -> None:
    """Only a consumer has to have its messages fit a fetch."""
    assert client_config({**AT, "kafka.fetch.max.bytes": "5000"})["message.max.bytes"] == "5000"
    assert "message.max.bytes" not in client_config({**AT, "kafka.fetch.max.bytes": "5000"}, True)
    assert client_config({**AT, "kafka.fetch.max.bytes": "2000000"}) == {
        "bootstrap.servers": "localhost:1",
        "fetch.max.bytes": "2000000",
    }


def test_of_two_backoffs_the_larger_bounds_the_other() -> None:
    """As in Java, where the largest is a bound; the one that was given alone stays."""
    both = {"reconnect.backoff.ms": "5000", "reconnect.backoff.max.ms": "1000"}
    assert fitted(both, consumer=True) == {"reconnect.backoff.ms": "1000", "reconnect.backoff.max.ms": "1000"}
    assert fitted({"reconnect.backoff.ms": "20000"}, consumer=True)["reconnect.backoff.max.ms"] == "20000"
    fitting: dict[str, Any] = {"reconnect.backoff.ms": "500", "linger.ms": "5"}
    assert fitted(fitting, consumer=False) == fitting


@pytest.mark.parametrize("name", RANGES)
def test_the_ranges_are_the_librarys(name: str) -> None:
    """Each bound is taken, and the next number beyond it is not: a newer library that takes more is noticed here."""
    least, most = RANGES[name]
    assert [nearest(name, str(bound)) for bound in (least, most)] == [str(least), str(most)]
    assert (nearest(name, str(least - 1)), nearest(name, str(most + 1))) == (str(least), str(most))
    assert [_takes(name, bound) for bound in (least, most)] == [True, True]
    beyond = [bound for bound in (least - 1, most + 1) if name != "fetch.max.bytes" or bound > most]
    assert [_takes(name, bound) for bound in beyond] == [False] * len(beyond)


def _takes(name: str, value: int) -> bool:
    """By both clients: each knows some settings alone, and says nothing of the others' values but their range."""
    config = fitted({name: str(value)}, consumer=True)
    try:
        Producer({"bootstrap.servers": "localhost:1", "log_level": 0, **config})
        Consumer({"bootstrap.servers": "localhost:1", "log_level": 0, "group.id": "g", **config}).close()
    except KafkaException:
        return False
    return True
