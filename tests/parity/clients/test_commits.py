"""OrderedConsumer's commits beside confluent_kafka.Consumer's: what is returned, raised and told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.groups import group_config

BOTH = pytest.mark.parametrize("kind", [Consumer, OrderedConsumer], ids=["stock", "ordered"])


class Client:
    """One consumer that has been given the first record of partition 0, and what its on_commit has heard."""

    def __init__(self, kind: Any, kafka: KafkaUnderTest, topic: str) -> None:
        TopicAdmin(kafka.client_config()).create(topic, 2)
        producer = Producer(kafka.client_config())
        for i in range(3):
            producer.produce(topic, str(i), partition=0)
        assert producer.flush(120) == 0
        self.topic, self.told = topic, list[Any]()
        config = group_config(kafka, topic, enable_auto_commit=False, max_poll_records=1)
        del config["max.poll.records"]
        self.consumer = kind({**config, "on_commit": lambda error, places: self.told.append((error, places))})
        self.consumer.subscribe([topic])
        self.until(lambda: self.consumer.poll(0.1) is not None)
        self.consumer.pause([TopicPartition(topic, p) for p in (0, 1)])

    def until(self, done: Callable[[], bool]) -> None:
        deadline = clock.now() + 180
        while not done():
            assert clock.now() < deadline

    def answer(self) -> tuple[str | None, list[tuple[int, int, str | None]]]:
        """What on_commit hears next: the error's name, and (partition, offset, metadata)."""
        self.told.clear()
        self.until(lambda: self.consumer.poll(0.1) is None and bool(self.told))
        error, places = self.told[0]
        return error.name() if error else None, [(p.partition, p.offset, p.metadata) for p in places]

    def raised(self, **commit: Any) -> str:
        with pytest.raises(KafkaException) as raised:
            self.consumer.commit(asynchronous=False, **commit)
        return str(raised.value.args[0].name())


@pytest.fixture
def client(kind: Any, kafka: KafkaUnderTest, topic_name: str) -> Any:
    made = Client(kind, kafka, topic_name)
    yield made
    made.consumer.close()


@BOTH
def test_a_commit_with_nothing_new_says_so(client: Client) -> None:
    """Synchronously as an exception, asynchronously to on_commit."""
    client.consumer.commit(asynchronous=False)
    assert client.raised() == "_NO_OFFSET"
    assert client.consumer.commit() is None
    error, places = client.answer()
    assert (error, sorted(places)) == ("_NO_OFFSET", [(0, -1001, None), (1, -1001, None)])


@BOTH
def test_places_without_an_offset_name_nothing(client: Client) -> None:
    """Alone they are nothing to commit; the position stays what it was."""
    place = TopicPartition(client.topic, 0)
    assert client.raised(offsets=[place]) == "_NO_OFFSET"
    assert client.raised(offsets=[]) == "_NO_OFFSET"
    assert client.consumer.commit(offsets=[place]) is None
    assert client.answer() == ("_NO_OFFSET", [(0, -1001, None)])
    client.consumer.commit(
        offsets=[TopicPartition(client.topic, 0, 2), TopicPartition(client.topic, 1)], asynchronous=False
    )
    (found,) = client.consumer.committed([place], 20)
    assert found.offset == 2


@BOTH
def test_a_message_without_an_offset_names_nothing(client: Client) -> None:
    """As a place without one; and what is wrong with a message that is an error is said in the library's words."""
    message = Message(topic=client.topic, partition=0)
    assert client.raised(message=message) == "_NO_OFFSET"
    assert client.consumer.commit(message=message) is None
    assert client.answer()[0] == "_NO_OFFSET"
    client.consumer.commit(asynchronous=False)
    (found,) = client.consumer.committed([TopicPartition(client.topic, 0)], 20)
    assert found.offset == 1
    broken = Message(topic=client.topic, partition=0, offset=2, error=KafkaError(KafkaError._TRANSPORT, "gone"))
    with pytest.raises(KafkaException, match="Cannot commit offsets for message with error: 'gone'") as raised:
        client.consumer.commit(message=broken)
    assert raised.value.args[0].name() == "_INVALID_ARG"


@BOTH
def test_metadata_is_the_applications_alone(client: Client) -> None:
    """Of a synchronous commit's answer, of on_commit's and of committed()."""
    place = TopicPartition(client.topic, 0)
    (given,) = client.consumer.commit(offsets=[TopicPartition(client.topic, 0, 2, "mine")], asynchronous=False)
    assert (given.offset, given.metadata) == (2, "mine")
    (found,) = client.consumer.committed([place], 20)
    assert (found.offset, found.metadata) == (2, "mine")
    client.consumer.commit(offsets=[TopicPartition(client.topic, 0, 3, "again")])
    assert client.answer() == (None, [(0, 3, "again")])
    client.consumer.commit(offsets=[TopicPartition(client.topic, 0, 2)], asynchronous=False)
    (found,) = client.consumer.committed([place], 20)
    assert (found.offset, found.metadata) == (2, None)


@BOTH
def test_on_commit_hears_of_no_synchronous_commit(client: Client) -> None:
    """Its caller has the result; what is asynchronous behind it is told, alone."""
    client.told.clear()
    client.consumer.commit(asynchronous=False)
    client.consumer.commit(offsets=[TopicPartition(client.topic, 0, 2)], asynchronous=True)
    client.until(lambda: client.consumer.poll(0.1) is None and bool(client.told))
    assert [[(p.partition, p.offset) for p in places] for _, places in client.told] == [[(0, 2)]]


@BOTH
def test_a_commit_of_everything_answers_for_everything(client: Client) -> None:
    """A partition with nothing new is in the answer too, without an offset."""
    answered = client.consumer.commit(asynchronous=False)
    assert [(p.partition, p.offset, p.error) for p in answered] == [(0, 1, None), (1, -1001, None)]


@BOTH
def test_a_message_is_committed_with_its_leaders_epoch(client: Client) -> None:
    """Whoever reads on from there can tell whether the log was cut meanwhile."""
    consumer = client.consumer
    consumer.resume([TopicPartition(client.topic, 0)])
    found: list[Message] = []
    client.until(lambda: bool(found) or found.extend(consumer.consume(1, 0.1)) is not None)
    (answer,) = consumer.commit(found[0], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(client.topic, 0)], 20)
    assert [found[0].leader_epoch()] * 2 == [answer.leader_epoch, committed.leader_epoch] != [None, None]


@BOTH
def test_what_is_stored_is_committed_with_its_metadata(kafka: KafkaUnderTest, kind: Any, topic_name: str) -> None:
    """Of several places those that are not assigned are passed over."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    place, other = TopicPartition(topic_name, 0, 1, "mine"), TopicPartition(topic_name, 7, 1)
    consumer = kind(group_config(kafka, topic_name, enable_auto_commit=False, enable_auto_offset_store=False))
    consumer.assign([TopicPartition(topic_name, 0, 0)])
    end = clock.now() + 180
    while consumer.get_watermark_offsets(place, timeout=20) != (0, 0) or consumer.poll(0.5) is not None:
        assert clock.now() < end
    consumer.store_offsets(offsets=[other, place])
    (answer,) = consumer.commit(asynchronous=False)
    assert (answer.offset, answer.metadata) == (1, "mine")
    (found,) = consumer.committed([place], 20)
    assert (found.offset, found.metadata) == (1, "mine")
    consumer.close()


@BOTH
def test_a_group_that_is_set_from_outside(kafka: KafkaUnderTest, kind: Any, topic_name: str) -> None:
    """By a consumer that has joined nothing. Of a managed topic our own refuses it: gates may wait for that offset."""
    admin = AdminClient(kafka.client_config())
    for future in admin.create_topics([NewTopic(topic_name, 1)]).values():
        future.result(120)
    places = [TopicPartition(topic_name, 0, 5, "from outside")]
    consumer = kind(group_config(kafka, topic_name))
    (answer,) = consumer.commit(offsets=places, asynchronous=False)
    assert (answer.offset, answer.metadata) == (5, "from outside")
    (found,) = consumer.committed(places, 20)
    assert (found.offset, found.metadata) == (5, "from outside")
    if kind is OrderedConsumer:
        TopicAdmin(kafka.client_config()).create(f"{topic_name}-managed", 1)
        with pytest.raises(KafkaException, match="keyorder groups reset") as raised:
            consumer.commit(offsets=[TopicPartition(f"{topic_name}-managed", 0, 5)], asynchronous=False)
        assert raised.value.args[0].code() == KafkaError._STATE
    consumer.close()
