"""Records that wait for a change: how long, how many, and what becomes of those that cannot go afterwards."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from keyorder import OrderedProducer, TopicAdmin
from keyorder.partitioner.errors import KeyBlockedError
from support.cluster import KafkaUnderTest
from support.groups import QUICK, moving_key
from support.holding import log_values, prepared, until


@pytest.fixture
def key(kafka: KafkaUnderTest, topic_name: str) -> str:
    """A key of the topic, which has one partition, that a growth to two moves."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    return moving_key(admin, topic_name, 2)


def warm(producer: OrderedProducer, topic: str) -> None:
    producer.produce(topic, "first", "warm")
    assert producer.flush(120) == 0


def values(kafka: KafkaUnderTest, topic: str, key: str) -> list[bytes | None]:
    return [value for name, value in log_values(kafka, topic, 0) if name == key.encode()]


def test_a_held_record_has_a_deadline_as_a_sent_one(kafka: KafkaUnderTest, topic_name: str, key: str) -> None:
    """Its callback hears of _MSG_TIMED_OUT, and so do those of its key behind it: none of them may overtake."""
    heard: list[tuple[int, int]] = []

    def told(number: int) -> Any:
        return lambda error, _: heard.append((number, error.code()))

    with OrderedProducer({**kafka.client_config(), "delivery.timeout.ms": 2_000}) as producer:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            for number in (1, 2):
                producer.produce(topic_name, str(number), key, on_delivery=told(number))
            assert producer.flush(120) == 0
        assert heard == [(1, KafkaError._MSG_TIMED_OUT), (2, KafkaError._MSG_TIMED_OUT)]
        producer.produce(topic_name, "3", key)
        assert producer.flush(120) == 0
    assert values(kafka, topic_name, key) == [b"3"]


class Reports(list[Any]):
    """A callback that is false until it has heard of a record."""

    def __call__(self, error: Any, message: Any) -> None:
        """Of a delivery report."""
        self.append((error, message))


def facts(message: Any) -> dict[str, Any]:
    """What a delivery report says, but for the time that it took."""
    names = ("error", "topic", "partition", "offset", "key", "value", "headers", "timestamp", "leader_epoch")
    return {name: getattr(message, name)() for name in names}


def test_the_report_of_a_held_record_is_the_librarys(kafka: KafkaUnderTest, topic_name: str, key: str) -> None:
    """Whoever looks at message.error() alone hears that it failed, and a callback that is false is called, too."""
    record: dict[str, Any] = {"value": "välue", "key": key, "headers": {"a": "b"}, "timestamp": 5}
    ours, stocks = Reports(), Reports()
    stock = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100, "log_level": 0})
    stock.produce(topic_name, **record, on_delivery=stocks)
    stock.flush()
    with OrderedProducer({**kafka.client_config(), "delivery.timeout.ms": 2_000}) as producer:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            producer.produce(topic_name, **record, on_delivery=ours)
            assert producer.flush(120) == 0
        producer.produce(topic_name, "next", key)  # no KeyBlockedError: the application knows

    ((error, message),) = ours
    assert error == message.error()
    assert message.latency() > 0
    assert facts(message) == facts(stocks[0][1])


@pytest.mark.parametrize("kind", [dict, list])
def test_headers_that_are_used_again_are_those_of_their_time(
    kafka: KafkaUnderTest, topic_name: str, key: str, kind: type
) -> None:
    """A held record has the headers that it was given, whatever the application does with its object afterwards."""
    given: Any = kind()
    with OrderedProducer(kafka.client_config()) as producer:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            for number in ("0", "1"):
                given.clear()
                given.update(id=number) if kind is dict else given.append(("id", number))
                producer.produce(topic_name, number, key, headers=given)
            given.clear()
        assert producer.flush(120) == 0
    with closing(Consumer({**kafka.client_config(), "group.id": topic_name})) as consumer:
        consumer.assign([TopicPartition(topic_name, 0, 0)])
        found: list[Any] = []
        until(lambda: found.append(consumer.poll(0.1)) or len([m for m in found if m is not None]) == 3)
    assert [(m.value(), m.headers()) for m in found if m is not None and m.value() != b"first"] == [
        (number.encode(), [("id", number.encode())]) for number in ("0", "1")
    ]


def test_a_held_record_that_expires_unheard_blocks_its_key(kafka: KafkaUnderTest, topic_name: str, key: str) -> None:
    """Once: with that error the application knows. Other topics keep their fast path meanwhile."""
    other = f"{topic_name}-other"
    TopicAdmin(kafka.client_config()).create(other, 1, config=QUICK)
    with OrderedProducer({**kafka.client_config(), "delivery.timeout.ms": 2_000}) as producer:
        warm(producer, topic_name)
        warm(producer, other)
        with prepared(kafka, topic_name, 2, producer):
            producer.produce(topic_name, "1", key)
            assert producer.flush(120) == 0
        producer.produce(other, "v", "warm")
        assert producer._topics[other].fast_path is not None
        with pytest.raises(KeyBlockedError):
            producer.produce(topic_name, "2", key)
        producer.produce(topic_name, "3", key)
        assert producer.flush(120) == 0
    assert values(kafka, topic_name, key) == [b"3"]


def test_held_bytes_have_a_bound(kafka: KafkaUnderTest, topic_name: str, key: str) -> None:
    """queue.buffering.max.kbytes counts what is held, and produce() raises what a full queue raises."""
    config = {**kafka.client_config(), "queue.buffering.max.kbytes": 1_024}
    with OrderedProducer(config) as producer:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            for _ in range(10):
                producer.produce(topic_name, b"x" * 100_000, key)
            with pytest.raises(BufferError):
                producer.produce(topic_name, b"x" * 100_000, key)
        assert producer.flush(120) == 0
        producer.produce(topic_name, "small", key)
        assert producer.flush(120) == 0
    assert len(values(kafka, topic_name, key)) == 11


@pytest.mark.parametrize("room", [-1, 0, 1])
@pytest.mark.parametrize("headers", [None, [("a" * 100, b"b" * 300), ("c", None)]], ids=["bare", "headers"])
def test_what_the_library_would_refuse_is_not_held(
    kafka: KafkaUnderTest, topic_name: str, key: str, room: int, headers: Any
) -> None:
    """A record that is too large, by one byte, is refused at produce() as one that is not held; the next ones go."""
    most = 5_000
    with OrderedProducer({**kafka.client_config(), "message.max.bytes": most}) as producer:
        warm(producer, topic_name)
        # The hint that a moved key's record carries is counted by the library too.
        own = 36 + len(key) + (0 if headers is None else 2 + 100 + 2 + 300 + 3) + 1 + len("keyorder-epoch") + 1 + 1
        value = b"x" * (most - own - room)
        outcomes: list[str] = []
        with prepared(kafka, topic_name, 2, producer):
            for each in (b"1", value, b"3"):
                try:
                    producer.produce(topic_name, each, key, headers=headers)
                    outcomes.append("taken")
                except KafkaException as error:
                    outcomes.append(error.args[0].name())
        assert outcomes == ["taken", "MSG_SIZE_TOO_LARGE" if room < 0 else "taken", "taken"]
        TopicAdmin(kafka.client_config()).expand(topic_name, 2)
        assert producer.flush(120) == 0
        if room < 0:
            with pytest.raises(KafkaException):
                producer.produce(topic_name, value, key, headers=headers)
        else:
            producer.produce(topic_name, value, key, headers=headers)


@pytest.mark.parametrize(
    "wrong",
    [{"value": 5}, {"value": bytearray(b"x")}, {"headers": 5}, {"headers": [("a", 5)]}, {"headers": [("a",)]},
     {"headers": [["a", b"x"]]}, {"timestamp": 1.5}, {"timestamp": 2**70}, {"headers": {"a": 5}}],
    ids=str,
)  # fmt: skip
def test_what_is_no_record_is_not_held(kafka: KafkaUnderTest, topic_name: str, key: str, wrong: dict[str, Any]) -> None:
    """The same error as for a record that goes at once."""
    given = {"value": b"v", "key": key, **wrong}
    with OrderedProducer(kafka.client_config()) as producer:
        warm(producer, topic_name)
        with pytest.raises((TypeError, OverflowError)) as at_once:
            producer.produce(topic_name, **given)
        with prepared(kafka, topic_name, 2, producer):
            with pytest.raises(type(at_once.value)):
                producer.produce(topic_name, **given)
            assert len(producer) == 0


@pytest.mark.kip("K253-40", "C-07")
@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "callback"])
def test_a_record_refused_on_release_blocks_its_key(
    kafka: KafkaUnderTest, topic_name: str, key: str, heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the key overtakes it: those behind it fail too, and the next one is refused until that was told.

    The library refuses what it would have taken before only after faults that no broker shows on demand.
    """
    told: list[int] = []
    callback = (lambda error, _: told.append(0 if error is None else error.code())) if heard else None
    with OrderedProducer(kafka.client_config()) as producer:
        warm(producer, topic_name)
        real = producer._record_sender._produce

        def refusing(topic: str, value: Any, *rest: Any) -> None:
            if value == "refused":
                raise KafkaException(KafkaError(KafkaError._FATAL))
            real(topic, value, *rest)

        monkeypatch.setattr(producer._record_sender, "_produce", refusing)
        with prepared(kafka, topic_name, 2, producer):
            for value in ("1", "refused", "3"):
                producer.produce(topic_name, value, key, on_delivery=callback)
        until(lambda: not producer._topics[topic_name].held)
        with pytest.raises(KeyBlockedError):
            producer.produce(topic_name, "4", key)
        assert producer.flush(120) == 0
        assert sorted(told) == ([KafkaError._FATAL, KafkaError._FATAL, 0] if heard else [])
        producer.produce(topic_name, "5", key)
        assert producer.flush(120) == 0
    assert values(kafka, topic_name, key) == [b"1", b"5"]
