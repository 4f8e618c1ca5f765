"""The admin client of a link is asked where logs end: all in one question, and a client that does not know is given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic
from keyorder.connector.admin_link import AdminLink
from keyorder.connector.log_offsets import LogOffsets
from keyorder.partitioner.errors import KafkaOperationError
from support.cluster import KafkaFactory, KafkaUnderTest
from support.holding import until
from support.tls import Authority

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_a_client_that_was_asked_in_vain_is_given_up() -> None:
    """There is no answer, and the next one who asks anything has a new client."""
    link = AdminLink(NOWHERE)
    first = link.client
    assert link.stable_ends([("t", 0)], 0.1) is None
    assert link.client is not first


def test_the_client_that_another_thread_has_made_meanwhile_stays() -> None:
    """Of two who asked the same client in vain, the second does not give up what the first has put in its place."""
    link = AdminLink(NOWHERE)
    first = link.client
    link._give_up(first)
    second = link.client
    link._give_up(first)
    assert link.client is second


def test_a_client_that_cannot_be_made_any_more_passes(tmp_path: Path) -> None:
    """A file of certificates is being replaced. At first such an error tells that a setting is wrong."""
    trusted = tmp_path / "ca.pem"
    link = AdminLink({**NOWHERE, "security.protocol": "ssl", "ssl.ca.location": str(trusted)})
    with pytest.raises(KafkaException, match=r"ssl.ca.location") as raised:
        _ = link.client
    assert not isinstance(raised.value, KafkaOperationError)

    trusted.write_text(Authority("a test").certificate)
    assert link.client is not None
    trusted.unlink()
    link.close()
    with pytest.raises(KafkaOperationError, match=r"ssl.ca.location") as later:
        _ = link.client
    assert later.value.retriable


def test_records_of_an_open_transaction_lie_beyond_the_end(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A reader of committed records does not get them: with an end behind them it would wait for what it cannot see."""
    admin = kafka.admin()  # dropped, it would never answer
    admin.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(120)
    places = [(topic_name, 0), (topic_name, 1)]
    producer = Producer({**kafka.client_config(), "transactional.id": topic_name})
    producer.init_transactions(120)
    link, offsets = AdminLink(kafka.client_config()), LogOffsets(kafka.client_config())
    producer.begin_transaction()
    producer.produce(topic_name, b"v", b"k", 0)
    assert producer.flush(120) == 0
    until(lambda: link.stable_ends(places, 5.0) == {places[0]: 0, places[1]: 0})
    assert offsets.high_watermarks(places) == {places[0]: 1, places[1]: 0}
    producer.commit_transaction(120)
    until(lambda: link.stable_ends(places, 5.0) == {places[0]: 2, places[1]: 0})
    assert link.stable_ends([*places, (topic_name, 2)], 5.0) is None
    link.close()
    offsets.close()


def test_a_new_leader_is_asked_by_a_new_client(kafka_factory: KafkaFactory, topic_name: str) -> None:
    """The client library's goes on with the leader epoch that it knew, and would be refused for ever."""
    kafka = kafka_factory(properties={"broker.session.timeout.ms": "6000"})
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(120)
    place = (topic_name, 0)
    link = AdminLink(kafka.client_config())
    until(lambda: link.stable_ends([place], 5.0) == {place: 0})
    kafka.kill_broker(1)
    kafka.start_broker(1)
    until(lambda: link.stable_ends([place], 5.0) == {place: 0})
    link.close()
