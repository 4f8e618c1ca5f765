"""The table of rights in docs/security.md, on a broker with an authoriser: enough as it is, and no row too many."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.compaction.migration import lacking_header
from keyorder.connector.doctor.examine import examine
from keyorder.connector.doctor.findings import Status
from keyorder.connector.doctor.topics import check_topic
from keyorder.connector.group_gates import GroupOffsets
from keyorder.connector.topology.load import LoadMeter
from keyorder.partitioner.errors import NotAuthorizedError, TopicNotFoundError, UnmanagedTopicError
from support.cluster import KafkaUnderTest
from support.rights import CLIENTS, PARTS, SECRET, Right, grant_exactly, rights
from support.spark_source import create

#: As confluent_kafka tells of them.
CLIENTS_OWN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
#: What the end of a transaction says where a record in it was refused: which of them depends on what the client learns first.
OF_A_REFUSED_TRANSACTION = {KafkaError._STATE, KafkaError.INVALID_TXN_STATE}
RIGHTS = [right for right in rights() if right.role in CLIENTS]


class Stage:
    """One topic with a record in it, and what each role does there."""

    def __init__(self, kafka: KafkaUnderTest, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.root = kafka.client_config()
        self.app = {**kafka.client_config("app"), "log_level": 0}
        self.names = {"TRANSACTIONAL_ID": f"tx-{topic}", "TOPIC": topic, "GROUP": f"group-{topic}"}

    def prepare(self, role: str) -> None:
        """What has to be there before."""
        if role == "creator":
            return
        TopicAdmin(self.root).create(self.topic, 2)
        with OrderedProducer(self.root) as producer:
            producer.produce(self.topic, b"before", b"k")

    def act(self, role: str) -> None:
        """The role's work; raises what stops it."""
        getattr(self, "as_" + role.replace(" ", "_"))()

    def as_consumer(self) -> None:
        group = self.names["GROUP"]
        with OrderedConsumer({**self.app, "group.id": group, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([self.topic])
            message = None
            for _ in range(60):
                message = consumer.poll(0.5)
                if message is not None:
                    break
            assert message is not None
            if message.error() is not None:
                raise KafkaException(message.error())
            assert message.value() == b"before"
            consumer.commit(message=message, asynchronous=False)

    def as_producer(self) -> None:
        failed: list[Any] = []
        with OrderedProducer({**self.app, **self._patience()}) as producer:
            producer.produce(self.topic, b"v", b"k", on_delivery=lambda error, _: failed.append(error))
            producer.flush(120)
        assert failed == [None], failed

    def as_transactional_producer(self) -> None:
        config = {**self.app, **self._patience(), "transactional.id": self.names["TRANSACTIONAL_ID"]}
        consumer = Consumer({**self.root, "group.id": self.names["GROUP"]})
        with OrderedProducer(config) as producer:
            producer.init_transactions(20)
            producer.begin_transaction()
            refused: list[Any] = []
            producer.produce(self.topic, b"v", b"k", on_delivery=lambda error, _: refused.append(error))
            producer.flush(120)
            if refused[0] is not None:  # later calls may say no more than that the transaction is in a wrong state
                raise KafkaException(refused[0])
            offsets = [TopicPartition(self.topic, 0, 0)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
            producer.commit_transaction(20)
        consumer.close()

    def as_creator(self) -> None:
        TopicAdmin(self.app).create(self.topic, 2)

    def as_controller(self) -> None:
        TopicAdmin(self.app).expand(self.topic, 3, timeout=120)

    def _patience(self) -> dict[str, Any]:
        return {"keyorder.adopt": False, "keyorder.control.timeout.ms": 8000}


def test_the_table_names_every_role_that_is_proven() -> None:
    """It is read from the page: a row that cannot be read would be a row that nobody proves."""
    assert tuple(dict.fromkeys(right.role for right in rights())) == CLIENTS + PARTS
    assert (len(RIGHTS), len(rights())) == (25, 65)


@pytest.mark.parametrize("role", CLIENTS)
def test_the_rights_of_a_role_are_enough(guarded: KafkaUnderTest, topic_name: str, role: str) -> None:
    """With exactly what the table says the work gets done."""
    stage = Stage(guarded, topic_name)
    stage.prepare(role)
    grant_exactly(guarded.admin(), "app", [right for right in RIGHTS if right.role == role], stage.names)

    stage.act(role)


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_a_missing_right_is_named_and_nothing_is_half_done(
    guarded: KafkaUnderTest, topic_name: str, right: Right
) -> None:
    """One typed error with the resource's name and without the password; with the right given back the work gets done."""
    stage = Stage(guarded, topic_name)
    stage.prepare(right.role)
    others = [each for each in RIGHTS if each.role == right.role and each != right]
    grant_exactly(guarded.admin(), "app", others, stage.names)

    with pytest.raises((NotAuthorizedError, KafkaException)) as refused:
        stage.act(right.role)

    error = refused.value
    print(right, "->", error)
    assert SECRET not in str(error)
    if not isinstance(error, NotAuthorizedError):
        assert right.role in ("consumer", "transactional producer")
        broken = OF_A_REFUSED_TRANSACTION if str(right) == "transactional producer: Write on topic TOPIC" else set()
        assert error.args[0].code() in CLIENTS_OWN | broken
    else:
        named = topic_name if right.resource == "cluster" else right.on(stage.names)
        assert named in str(error)
    left = TopicAdmin(stage.root)
    if right.role != "creator":
        assert left.describe(topic_name).layout.count == 2
        assert left.timeline(topic_name).change is None
    elif right.resource == "transactional id":
        with pytest.raises(UnmanagedTopicError):
            left.timeline(topic_name)
        left.adopt(topic_name)
        return
    else:
        with pytest.raises(TopicNotFoundError):
            left.timeline(topic_name)
    grant_exactly(guarded.admin(), "app", [*others, right], stage.names)
    stage.act(right.role)


def test_records_that_may_not_be_read_are_not_well(guarded: KafkaUnderTest, topic_name: str) -> None:
    """Describe shows the topic; its records stay unread. "No misplaced record" would be a claim about nothing."""
    stage = Stage(guarded, topic_name)
    stage.prepare("controller")
    mine = [right for right in RIGHTS if right.role == "controller"]
    grant_exactly(guarded.admin(), "app", mine, stage.names)

    found = TopicAdmin(stage.app).describe(topic_name, groups=(), records=10)

    assert found.strays is None
    assert "TOPIC_AUTHORIZATION_FAILED" in found.strays_problem
    planned = TopicAdmin(stage.app).plan(topic_name, 3)
    assert planned.stock.records is None
    assert any("may not read them" in warning.text for warning in planned.warnings)
    findings = list(check_topic(stage.app, guarded.admin("app"), TopicAdmin(stage.app).timeline(topic_name), 10, 10.0))
    assert [f.status for f in findings if f.check == "misplaced records"] == []
    assert any(f.status is Status.UNKNOWN and "read" in f.text for f in findings), findings


def test_a_topic_that_may_not_be_seen_ends_no_report(guarded: KafkaUnderTest, topic_name: str) -> None:
    """`keyorder doctor` says so of it, and looks at the other topics."""
    stage = Stage(guarded, topic_name)
    stage.prepare("controller")
    mine = [right for right in RIGHTS if right.role == "controller"]
    grant_exactly(guarded.admin(), "app", mine, stage.names)

    found = list(examine(stage.app, (f"none-{topic_name}", topic_name), 10, 10.0))

    assert [f.status for f in found if f.about == f"none-{topic_name}"] == [Status.UNKNOWN]
    assert any(f.check == "layout" and f.about == topic_name for f in found)


def test_an_unreadable_sample_is_no_empty_sample(guarded: KafkaUnderTest, topic_name: str) -> None:
    """A strategy is not switched on the word of records that nobody may read, and bytes per second are not 0."""
    stage = Stage(guarded, topic_name)
    stage.prepare("controller")
    mine = [right for right in RIGHTS if right.role == "controller"]
    grant_exactly(guarded.admin(), "app", mine, stage.names)

    with pytest.raises(NotAuthorizedError, match="TOPIC_AUTHORIZATION_FAILED"):
        lacking_header(stage.app, topic_name, 2, "version", 10)
    meter = LoadMeter(stage.app)
    try:
        with pytest.raises(NotAuthorizedError, match="TOPIC_AUTHORIZATION_FAILED"):
            meter.measure(topic_name, 2, 2, 0.0, sizes=True)
    finally:
        meter.close()


def test_who_may_not_describe_a_group_is_told_so_at_once(guarded: KafkaUnderTest, topic_name: str) -> None:
    """Not when the time for an answer is over: that would be an unreachable broker."""
    stage = Stage(guarded, topic_name)
    stage.prepare("controller")
    grant_exactly(guarded.admin(), "app", [right for right in RIGHTS if right.role == "controller"], stage.names)

    for groups in ([f"secret-{topic_name}"], [f"secret-{topic_name}-{n}" for n in range(20)]):
        with pytest.raises(NotAuthorizedError, match=f"group secret-{topic_name}.*GROUP_AUTHORIZATION_FAILED"):
            GroupOffsets(stage.app, guarded.admin("app"), timeout=3600).committed(groups, topic_name)


def test_who_may_not_read_a_topic_adopts_it_only_while_it_is_empty(guarded: KafkaUnderTest, topic_name: str) -> None:
    """How its keys are placed shows in its records alone; the error says who can adopt it, and how."""
    root = guarded.client_config()
    app = {**guarded.client_config("app"), "log_level": 0}
    empty, full = f"{topic_name}-empty", f"{topic_name}-full"
    for topic in (empty, full):
        create(guarded, topic, 2)
    stock = Producer(root)
    stock.produce(full, b"v", b"k")
    assert stock.flush(120) == 0
    for topic in (empty, full):
        granted = [right for right in RIGHTS if right.role in ("creator", "producer")]
        grant_exactly(guarded.admin(), "app", granted, {"TOPIC": topic})
        if topic == empty:
            assert TopicAdmin(app).adopt(topic).layout.hash == "murmur2"
            continue
        with pytest.raises(NotAuthorizedError, match=f"keyorder topics adopt --topic {topic}"):
            TopicAdmin(app).adopt(topic)
        with OrderedProducer(app) as producer, pytest.raises(NotAuthorizedError, match="how its keys are placed"):
            producer.produce(topic, b"v", b"k")
        TopicAdmin(root).adopt(topic)
        with OrderedProducer(app) as producer:
            producer.produce(topic, b"v", b"k")
            assert producer.flush(120) == 0
