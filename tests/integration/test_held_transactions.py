"""Transactions whose records are held by a change, or followed by move tombstones: all of one, or nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.producing.transactions import Transactions
from support.cluster import KafkaUnderTest
from support.groups import QUICK, moving_key, staying_key
from support.holding import log_values, prepared, until

COMPACTED = {**QUICK, "cleanup.policy": "compact"}


def transactional(kafka: KafkaUnderTest, topic: str, **more: object) -> OrderedProducer:
    config = {**kafka.client_config(), "transactional.id": topic, "log_level": 0, **more}
    producer = OrderedProducer(config)
    producer.init_transactions(30)
    return producer


def warm(producer: OrderedProducer, topic: str) -> None:
    """A first transaction, so that the topic is known."""
    producer.begin_transaction()
    producer.produce(topic, "first", "warm")
    producer.commit_transaction(30)


@pytest.mark.kip("C-10")
def test_a_commit_waits_for_what_is_held_or_says_that_it_did_not(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Within its time-out a retriable error, as the client library's own; later the same call succeeds with all records."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    with transactional(kafka, topic_name) as producer:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            producer.begin_transaction()
            producer.produce(topic_name, "held", key)
            with pytest.raises(KafkaException) as raised:
                producer.commit_transaction(0.5)
            error = raised.value.args[0]
            assert (error.code(), error.retriable(), error.fatal()) == (KafkaError._TIMED_OUT, True, False)
        producer.commit_transaction(30)
    assert [value for name, value in log_values(kafka, topic_name, 0) if name == key.encode()] == [b"held"]


def test_an_abort_that_is_called_again_leaves_no_key_behind(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call was not patient enough. A key whose record failed in that transaction takes records in the next one."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    with transactional(kafka, topic_name, **{"delivery.timeout.ms": 2_000}) as producer:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            producer.begin_transaction()
            producer.produce(topic_name, "sent", "warm")
            producer.produce(topic_name, "held", key)
            with pytest.raises(KafkaException) as raised:
                producer.commit_transaction(60)
            assert raised.value.args[0].txn_requires_abort()

            def late(_: Transactions, timeout: float) -> None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

            with monkeypatch.context() as patched:
                patched.setattr(Transactions, "abort", late)  # the coordinator is slow
                with pytest.raises(KafkaException):
                    producer.abort_transaction(0.1)
            producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce(topic_name, "again", key)
        producer.commit_transaction(30)
    assert [value for _, value in log_values(kafka, topic_name, 0)] == [b"first", b"again"]


@pytest.mark.parametrize("how", ["purge", "deadline"])
def test_a_transaction_that_lost_a_held_record_cannot_be_committed(
    kafka: KafkaUnderTest, topic_name: str, how: str
) -> None:
    """It asks for an abort; after that the producer goes on."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    heard: list[int] = []
    with transactional(kafka, topic_name, **{"delivery.timeout.ms": 2_000}) as producer:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            producer.begin_transaction()
            producer.produce(topic_name, "held", key, on_delivery=lambda error, _: heard.append(error.code()))
            producer.produce(topic_name, "stays", "warm")
            if how == "purge":
                producer.purge(in_queue=True, in_flight=False)
            with pytest.raises(KafkaException) as raised:
                producer.commit_transaction(60)
            assert raised.value.args[0].txn_requires_abort()
            producer.abort_transaction(30)
        assert heard == [KafkaError._PURGE_QUEUE if how == "purge" else KafkaError._MSG_TIMED_OUT]
        producer.begin_transaction()
        producer.produce(topic_name, "again", key)
        producer.commit_transaction(30)
    values = [value for _, value in log_values(kafka, topic_name, 0)]
    assert values == [b"first", b"again"]


def test_a_commit_that_waits_ends_with_its_own_transaction(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Another task aborts meanwhile and begins the next one: what still waits does not commit that one's first half.

    With asyncio a call that was cancelled goes on, on its thread.
    """
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    moving, staying = moving_key(admin, topic_name, 2), staying_key(admin, topic_name, 2)
    with transactional(kafka, topic_name) as producer, ThreadPoolExecutor(1) as other:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            producer.begin_transaction()
            producer.produce(topic_name, "held", moving)
            waiting = threading.Event()
            producer.produce(topic_name, "sent", staying, on_delivery=lambda *_: waiting.set())
            committing = other.submit(producer.commit_transaction)
            assert waiting.wait(120)
            producer.abort_transaction(30)
            producer.begin_transaction()
            producer.produce(topic_name, "half", staying)
            with pytest.raises(KafkaException) as raised:
                committing.result(120)
            assert raised.value.args[0].code() == KafkaError._STATE
            producer.produce(topic_name, "other half", staying)
            producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce(topic_name, "again", staying)
        producer.commit_transaction(30)
    assert [value for _, value in log_values(kafka, topic_name, 0)] == [b"first", b"again"]


def test_nothing_is_held_outside_a_transaction(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Refused at produce(), as the client library refuses it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    with transactional(kafka, topic_name) as producer:
        warm(producer, topic_name)
        with prepared(kafka, topic_name, 2, producer):
            with pytest.raises(KafkaException) as raised:
                producer.produce(topic_name, "outside", key)
            assert raised.value.args[0].code() == KafkaError._STATE
            assert len(producer) == 0


@pytest.mark.kip("C-08")
@pytest.mark.parametrize("at_once", [True, False], ids=["before the tombstones", "after them"])
def test_an_abort_takes_the_tombstones_back(kafka: KafkaUnderTest, topic_name: str, at_once: bool) -> None:
    """Aborted right after the acknowledgement, or when all was cleared: the next transaction clears the key again."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=COMPACTED)
    key = moving_key(admin, topic_name, 2)
    with transactional(kafka, topic_name) as producer:
        producer.begin_transaction()
        producer.produce(topic_name, "old", key)
        producer.commit_transaction(30)
        admin.expand(topic_name, 2)
        for number in range(5):
            told: list[KafkaError | None] = []
            producer.begin_transaction()
            producer.produce(topic_name, None, key, on_delivery=lambda error, _, told=told: told.append(error))
            if at_once:
                until(lambda: bool(producer._raw.poll(0.05)) or bool(producer._deliveries.waiting), timeout=60)
            else:
                assert producer.flush(120) == 0
                assert told == [None]
            producer.abort_transaction(30)
            assert producer.flush(120) == 0
            assert len(told) == 1, number
        producer.begin_transaction()
        producer.produce(topic_name, None, key)
        producer.commit_transaction(30)
    name = key.encode()
    assert [value for found, value in log_values(kafka, topic_name, 0) if found == name] == [b"old", None]
    assert [value for found, value in log_values(kafka, topic_name, 1) if found == name] == [None]
