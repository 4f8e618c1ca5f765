"""Bad input meets one clear typed error, and nothing is half-done."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.doctor.examine import examine
from keyorder.connector.doctor.findings import Status
from keyorder.partitioner.errors import (
    BrokerUnreachableError,
    ConfigError,
    CountError,
    KafkaOperationError,
    KeyTypeError,
    LayoutError,
    NotAuthorizedError,
    PartitionRefusedError,
    TopicNotFoundError,
    UnmanagedTopicError,
)
from support.cluster import KafkaFactory, KafkaUnderTest

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": 1000, "log_level": 0}


@pytest.mark.kafka  # it waits for time-outs: not for the quick check
def test_an_unreachable_broker_is_named() -> None:
    """Admin and producer say which address did not answer."""
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1"):
        TopicAdmin(NOWHERE).timeline("t")

    producer = OrderedProducer({**NOWHERE, "keyorder.control.timeout.ms": 1500})
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1"):
        producer.produce("t", b"v", b"k")


def test_a_topic_that_does_not_exist_is_named(kafka: KafkaUnderTest) -> None:
    """Nothing is created for it, neither topic nor timeline."""
    admin = TopicAdmin(kafka.client_config())

    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        admin.adopt("no-such-topic")
    with OrderedProducer(kafka.client_config()) as producer, pytest.raises(TopicNotFoundError, match="no-such-topic"):
        producer.produce("no-such-topic", b"v", b"k")

    assert admin.managed("no-such-topic") is None


@pytest.mark.kip("K253-09")
def test_counts_that_cannot_be_are_refused(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A count below the current one, no partitions at all, an initial count above the count."""
    admin = TopicAdmin(kafka.client_config())
    with pytest.raises(LayoutError):
        admin.create(topic_name, 0)
    with pytest.raises(LayoutError):
        admin.create(topic_name, 3, initial_partition_count=4)
    admin.create(topic_name, 3)

    with pytest.raises(CountError, match="3 partitions, 2 were asked for"):
        admin.expand(topic_name, 2)

    assert admin.describe(topic_name).layout.count == 3
    assert admin.describe(topic_name).change is None


def test_a_topic_that_exists_is_not_created_again(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The broker's refusal leaves as a typed error."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1)

    with pytest.raises(KafkaOperationError, match="TOPIC_ALREADY_EXISTS"):
        admin.create(topic_name, 1)


def test_an_unmanaged_topic_is_not_adopted_when_switched_off(kafka: KafkaUnderTest, topic_name: str) -> None:
    """keyorder.adopt=false: the producer asks for the command instead."""
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 2)])[topic_name].result(120)
    with (
        OrderedProducer({**kafka.client_config(), "keyorder.adopt": "false"}) as producer,
        pytest.raises(UnmanagedTopicError, match="topics adopt"),
    ):
        producer.produce(topic_name, b"v", b"k")

    assert TopicAdmin(kafka.client_config()).managed(topic_name) is None


@pytest.mark.parametrize("key", [1, 1.5, object(), ["a"]])
def test_a_key_that_is_not_bytes_or_str_is_refused(kafka: KafkaUnderTest, topic_name: str, key: object) -> None:
    """It is a TypeError too, as with the stock producer, and nothing is queued."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        with pytest.raises(KeyTypeError, match="bytes or str"):
            producer.produce(topic_name, b"v", key)  # type: ignore[arg-type]

        assert len(producer) == 0


def test_an_explicit_partition_is_refused_unless_allowed(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It would take the record out of its key's order."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    with OrderedProducer(kafka.client_config()) as producer, pytest.raises(PartitionRefusedError):
        producer.produce(topic_name, b"v", b"k", 1)

    placed = []
    with OrderedProducer({**kafka.client_config(), "keyorder.allow.explicit.partition": True}) as producer:
        producer.produce(
            topic_name, b"v", b"k", 1, on_delivery=lambda error, message: placed.append(message.partition())
        )
    assert placed == [1]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("acks", "1"),
        ("enable.idempotence", "false"),
        ("partitioner", "random"),
        ("keyorder.no.such", "x"),
        ("keyorder.lease.ms", "20000"),
        ("keyorder.lease.ms", "-5"),
    ],
)
def test_producer_settings_that_break_order_are_refused(setting: str, value: str) -> None:
    """Before anything is sent, naming the setting."""
    with pytest.raises(ConfigError, match=r"acks|idempotence|partitioner|no\.such|lease"):
        OrderedProducer({"bootstrap.servers": "127.0.0.1:1", setting: value})


def test_missing_settings_are_named() -> None:
    """No address, no group."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        OrderedProducer({})
    with pytest.raises(ConfigError, match=r"group\.id"):
        OrderedConsumer({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        TopicAdmin({})


def _allow(user: str, resource: ResourceType, name: str, *operations: AclOperation) -> list[AclBinding]:
    return [
        AclBinding(resource, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]


def test_control_topics_that_may_be_read_but_not_written(kafka_factory: KafkaFactory) -> None:
    """A writer without the right to say that it lives may not send; a reader needs no more than to read."""
    cluster = kafka_factory(users={"admin": "admin-secret", "app": "app-secret"})
    admin = TopicAdmin(cluster.client_config())
    admin.create("orders", 2)
    topics = ("orders", "_keyorder", "_keyorder_writers")
    rights = [b for t in topics for b in _allow("app", ResourceType.TOPIC, t, AclOperation.READ, AclOperation.DESCRIBE)]
    rights += _allow("app", ResourceType.TOPIC, "orders", AclOperation.WRITE)
    rights += _allow("app", ResourceType.GROUP, "readers", AclOperation.READ, AclOperation.DESCRIBE)
    grantor = cluster.admin()
    for future in grantor.create_acls(rights).values():
        future.result(120)
    app = {**cluster.client_config("app"), "log_level": 0}

    (right,) = (f for f in examine(app, ("orders",), 10, 10.0) if f.about == "control topics")
    assert right.status is Status.WARN
    assert "may act as consumer; for a producer it lacks Write on _keyorder_writers" in right.text
    (right,) = (f for f in examine(cluster.client_config(), ("orders",), 10, 10.0) if f.about == "control topics")
    assert right.status is Status.OK

    producer = OrderedProducer({**app, "keyorder.control.timeout.ms": 8000})
    with pytest.raises(NotAuthorizedError, match=r"write control topic _keyorder_writers") as refused:
        producer.produce("orders", b"v", b"k")
    assert "app-secret" not in str(refused.value)

    with pytest.raises(NotAuthorizedError, match="may not write control topic _keyorder "):
        TopicAdmin(app).expand("orders", 3)
    assert admin.describe("orders").layout.count == 2
    assert admin.describe("orders").partitions == 2

    with OrderedProducer(cluster.client_config()) as allowed:
        allowed.produce("orders", b"v", b"k")
    with OrderedConsumer({**app, "group.id": "readers", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"v"
