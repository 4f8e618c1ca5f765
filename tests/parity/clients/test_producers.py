"""OrderedProducer beside confluent_kafka.Producer in the same scenario: what a program can see is the same."""

from __future__ import annotations

import logging
import pickle
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector import metadata
from keyorder.connector.config import producer_settings
from keyorder.partitioner.errors import (
    BrokerUnreachableError,
    ConfigError,
    KeyorderError,
    PartitionRefusedError,
    TopicNotFoundError,
)
from support.cluster import KafkaUnderTest

BOTH = pytest.mark.parametrize("kind", [Producer, OrderedProducer], ids=["stock", "ordered"])


@pytest.fixture
def topic(kafka: KafkaUnderTest, topic_name: str) -> str:
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    return topic_name


@BOTH
def test_settings_are_given_in_every_way(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """A dict, keywords, both, and a logger beside them."""
    conf: dict[str, Any] = dict(kafka.client_config())
    logger = logging.getLogger("parity")
    for producer in (kind(conf), kind(**conf), kind(conf, logger=logger), kind(logger=logger, **conf)):
        producer.produce(topic, b"v", b"k")
        assert producer.flush(120) == 0
        producer.close()
    with pytest.raises(TypeError):
        kind()


@BOTH
@pytest.mark.parametrize("per_record", [False, True])
def test_a_callback_among_the_settings_hears_of_records_without_one(
    kafka: KafkaUnderTest, kind: Any, topic: str, per_record: bool
) -> None:
    """`on_delivery`: once for each such record; one of the record's own comes instead of it."""
    general: list[KafkaError | None] = []
    own: list[KafkaError | None] = []
    producer = kind({**kafka.client_config(), "on_delivery": lambda error, _: general.append(error)})
    for _ in range(3):
        if per_record:
            producer.produce(topic, b"v", b"k", on_delivery=lambda error, _: own.append(error))
        else:
            producer.produce(topic, b"v", b"k")
    assert producer.flush(120) == 0
    producer.close()
    assert (general, own) == (([], [None] * 3) if per_record else ([None] * 3, []))


@BOTH
def test_only_errors_are_reported_where_that_is_asked_for(kafka: KafkaUnderTest, kind: Any, topic: str) -> None:
    """`delivery.report.only.error`: a delivered record is not told of; one that is purged is."""
    told: list[KafkaError | None] = []
    producer = kind({**kafka.client_config(), "delivery.report.only.error": True, "linger.ms": 200})
    producer.produce(topic, b"v", b"k", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(120) == 0
    assert told == []
    producer.produce(topic, b"v", b"k", on_delivery=lambda error, _: told.append(error))
    producer.purge()
    assert producer.flush(120) == 0
    producer.close()
    assert [error.code() for error in told if error is not None] == [KafkaError._PURGE_QUEUE]


@BOTH
@pytest.mark.parametrize("milliseconds", [40_000, 300_000])
@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
def test_long_delivery_timeouts_are_taken(
    kafka: KafkaUnderTest, kind: Any, topic: str, name: str, milliseconds: int
) -> None:
    """The library's own default of five minutes too."""
    producer = kind({**kafka.client_config(), name: milliseconds})
    producer.produce(topic, b"v", b"k")
    assert producer.flush(120) == 0
    producer.close()


@pytest.mark.parametrize("seconds", [5, 20, 32, 33, 120, 300])
def test_the_lease_follows_the_delivery_timeout(seconds: int) -> None:
    """A record never outlives the lease under which it was sent: the rule of LeaseTerms holds with room for renewals."""
    config = {"bootstrap.servers": "localhost:1", "delivery.timeout.ms": seconds * 1000}
    terms = producer_settings(config)[0].terms
    assert terms.delivery_timeout == seconds
    assert terms.lease == max(45, seconds + 22)
    with pytest.raises(ConfigError):
        producer_settings({**config, "keyorder.lease.ms": (seconds + 12) * 1000})


@BOTH
def test_a_topic_that_is_being_made_is_waited_for(kafka: KafkaUnderTest, kind: Any, topic_name: str) -> None:
    """Its creation is not awaited: a cluster takes a moment until each broker has heard of a new topic."""
    told: list[KafkaError | None] = []
    admin = AdminClient(kafka.client_config())
    with kind(kafka.client_config()) as producer:
        made = admin.create_topics([NewTopic(topic_name, 1)])
        producer.produce(topic_name, b"v", b"k", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(120) == 0
    made[topic_name].result(120)
    assert told == [None]


def test_a_topic_that_one_look_does_not_show_is_waited_for(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`topic.metadata.propagation.max.ms`, as in the library: made after the first look, it is found by a later one."""
    looks = 0
    described = metadata.described

    def late(admin: Any, topic: str, *arguments: Any) -> Any:
        nonlocal looks
        looks += topic == topic_name
        try:
            return described(admin, topic, *arguments)
        except TopicNotFoundError:
            if looks == 1:
                admin.create_topics([NewTopic(topic, 1)])[topic].result(120)
            raise

    monkeypatch.setattr(metadata, "described", late)
    with OrderedProducer({**kafka.client_config(), "topic.metadata.propagation.max.ms": 120_000}) as producer:
        producer.produce(topic_name, b"v", b"k")
        assert producer.flush(120) == 0
    assert looks >= 2


def test_a_topic_that_is_waited_for_keeps_no_other_one_waiting(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread's misspelt topic is not the other threads' trouble: theirs are used for the first time meanwhile."""
    waiting = threading.Event()
    described = metadata.described

    def seen(admin: Any, topic: str, *arguments: Any) -> Any:
        try:
            return described(admin, topic, *arguments)
        except TopicNotFoundError:
            waiting.set()
            raise

    monkeypatch.setattr(metadata, "described", seen)
    other = f"{topic_name}-other"
    TopicAdmin(kafka.client_config()).create(other, 1)
    with OrderedProducer({**kafka.client_config(), "topic.metadata.propagation.max.ms": 600_000}) as producer:
        late = threading.Thread(target=producer.produce, args=(topic_name, b"v", b"k"))
        late.start()
        assert waiting.wait(120)
        producer.produce(other, b"v", b"k")
        assert late.is_alive()
        TopicAdmin(kafka.client_config()).create(topic_name, 1)
        late.join(120)
        assert producer.flush(120) == 0


def test_a_topic_is_waited_for_once(kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends to a topic that is not there waits no second time; when it is made, it is used."""
    looks = 0
    described = metadata.described

    def counted(admin: Any, topic: str, *arguments: Any) -> Any:
        nonlocal looks
        looks += topic == topic_name
        return described(admin, topic, *arguments)

    monkeypatch.setattr(metadata, "described", counted)
    with OrderedProducer({**kafka.client_config(), "topic.metadata.propagation.max.ms": 300}) as producer:
        with pytest.raises(TopicNotFoundError):
            producer.produce(topic_name, b"v", b"k")
        assert looks > 1
        looks = 0
        with pytest.raises(TopicNotFoundError):
            producer.produce(topic_name, b"v", b"k")
        assert looks == 1
        TopicAdmin(kafka.client_config()).create(topic_name, 1)
        producer.produce(topic_name, b"v", b"k")
        assert producer.flush(120) == 0


def test_errors_in_the_place_of_the_librarys_are_of_its_family(kafka: KafkaUnderTest, topic_name: str) -> None:
    """`except KafkaException` meets them, `args[0]` is a KafkaError with the library's code, and they keep their type."""
    with pytest.raises(KafkaException) as config_error:
        OrderedProducer({"bootstrap.servers": "localhost:1", "acks": 1})
    assert isinstance(config_error.value, ConfigError)
    assert config_error.value.args[0].code() == KafkaError._INVALID_ARG
    with OrderedProducer({**kafka.client_config(), "topic.metadata.propagation.max.ms": 0}) as producer:
        with pytest.raises(KafkaException) as not_found:
            producer.produce(topic_name, b"v", b"k")
        assert isinstance(not_found.value, TopicNotFoundError)
        assert not_found.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        TopicAdmin(kafka.client_config()).create(topic_name, 4)
        with pytest.raises(KafkaException) as refused:
            producer.produce(topic_name, b"v", b"k", 3)
        assert isinstance(refused.value, PartitionRefusedError)
        assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_a_typed_error_survives_a_copy_and_a_translation() -> None:
    """Another process gets the same one; a place that translates the library's errors leaves it as it is."""
    from keyorder.connector.kafka_errors import translated

    error = BrokerUnreachableError("localhost:1", "why")
    assert error.args[0].code() == KafkaError._TRANSPORT
    assert error.args[0].retriable()
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (BrokerUnreachableError, str(error))
    with pytest.raises(KeyorderError) as raised, translated("read", "topic t"):
        raise error
    assert raised.value is error
