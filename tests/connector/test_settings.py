"""Bad values of settings meet one error that names the setting, where confluent_kafka's clients would refuse them too."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.connector.config import connection_of, consumer_settings
from keyorder.connector.settings import CONSUMER, PRODUCER, boolean, text, word
from keyorder.partitioner.errors import ConfigError

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
GROUP = {"group.id": "g"}
BAD: tuple[Any, ...] = ("abc", -1, "", None, True, [1])
#: Those of them that these kinds of settings take.
TAKEN: dict[Any, tuple[Any, ...]] = {boolean: (True, 0), text: ("abc", "1.5", "", None)}
THEIRS = [
    *(
        (Producer, OrderedProducer, name)
        for name in (
            "queue.buffering.max.messages",
            "queue.buffering.max.kbytes",
            "message.max.bytes",
            "transaction.timeout.ms",
            "request.timeout.ms",
            "delivery.timeout.ms",
            "message.timeout.ms",
            "enable.idempotence",
            "linger.ms",
        )
    ),
    *(
        (Consumer, OrderedConsumer, name)
        for name in (
            "auto.commit.interval.ms",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "enable.partition.eof",
            "auto.offset.reset",
            "topic.metadata.refresh.interval.ms",
            "fetch.queue.backoff.ms",
            "session.timeout.ms",
            "heartbeat.interval.ms",
        )
    ),
]


@pytest.mark.parametrize("value", BAD, ids=repr)
@pytest.mark.parametrize(("stock", "ordered", "name"), THEIRS, ids=lambda each: getattr(each, "__name__", each))
def test_what_the_client_library_refuses_is_refused_by_the_same_exception(
    stock: Any, ordered: Any, name: str, value: Any
) -> None:
    """`except KafkaException` and the code `_INVALID_ARG` of a program that was written for the stock client."""
    config = {**NOWHERE, **(GROUP if stock is Consumer else {}), name: value}
    assert _refusal(ordered, config) == _refusal(stock, config)


def _refusal(client: Any, config: dict[str, Any]) -> int | None:
    """The code of its KafkaException; None where the client is made."""
    try:
        made = client(config)
    except KafkaException as refused:
        return int(refused.args[0].code())
    getattr(made, "close", bool)()
    return None


@pytest.mark.parametrize("value", [*BAD, 0, "1.5"], ids=repr)
@pytest.mark.parametrize(
    ("ordered", "name"),
    [
        *((OrderedProducer, name) for name in PRODUCER),
        *((OrderedConsumer, name) for name in CONSUMER),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_bad_value_of_ours_is_refused_by_name(ordered: Any, name: str, value: Any) -> None:
    """A ConfigError with the setting's name, from the constructor."""
    setting = (PRODUCER if ordered is OrderedProducer else CONSUMER)[name]
    config = {**NOWHERE, **(GROUP if ordered is OrderedConsumer else {}), name: value}
    if any(value is each or value == each != 1 for each in TAKEN.get(setting.parse, ())):
        setting.read(config)
    else:
        with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
            ordered(config)


def test_a_word_is_one_of_its_choices_in_any_case() -> None:
    """As Kafka's own settings are read."""
    assert word("a", "b")({"x": "B"}, "x", "a") == "b"
    with pytest.raises(ConfigError, match="x: 'c' is none of a, b"):
        word("a", "b")({"x": "c"}, "x", "a")


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("group.protocol", " Consumer", ("classic", False)),
        ("group.protocol", "\tCLASSIC", ("classic", True)),
        ("auto.offset.reset", " Latest", ("start_at_latest", True)),
        ("auto.offset.reset", " ERROR", ("start_at_latest", None)),
    ],
    ids=repr,
)
def test_a_word_of_the_client_library_is_read_as_the_library_reads_it(
    name: str, value: str, taken: tuple[str, bool | None]
) -> None:
    """In any case, and behind white space."""
    Consumer({**NOWHERE, **GROUP, name: value, "log_level": 0}).close()
    settings, _ = consumer_settings({**NOWHERE, **GROUP, name: value})
    assert getattr(settings, taken[0]) is taken[1]


@pytest.mark.parametrize(
    ("theirs", "silence"),
    [
        ({}, 21.0),
        ({"session.timeout.ms": 6_000}, 1.5),
        ({"session.timeout.ms": 4_000, "heartbeat.interval.ms": "1000"}, 1.5),
        ({"session.timeout.ms": 4_000, "heartbeat.interval.ms": 8_000}, 0.4),
        ({"session.timeout.ms": 1, "heartbeat.interval.ms": 3_000}, 0.1),
    ],
    ids=str,
)
def test_a_member_doubts_its_membership_before_its_session_can_be_over(theirs: dict[str, Any], silence: float) -> None:
    assert consumer_settings({**NOWHERE, **GROUP, **theirs})[0].silence == pytest.approx(silence)


def test_clients_of_ours_connect_again_soon_unless_the_application_says_how_late() -> None:
    """A new client's second connection comes half of reconnect.backoff.ms after the first, and a change opens five clients."""
    assert connection_of({})["reconnect.backoff.ms"] == 20
    assert connection_of({"reconnect.backoff.ms": 300})["reconnect.backoff.ms"] == 300
    assert "reconnect.backoff.ms" not in connection_of({"reconnect.backoff.max.ms": 10})
    # The library refuses a first one that is longer than the longest.
    Producer(connection_of({"reconnect.backoff.max.ms": 200}))
