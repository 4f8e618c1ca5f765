"""`keyorder doctor` against real brokers: what is well, and each thing that is not."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType
from keyorder import TopicAdmin
from keyorder.connector.cli.main import _run
from keyorder.connector.doctor.brokers import fetch_version
from keyorder.connector.doctor.topics import check_topic
from keyorder.connector.refusals import ClusterAdmin
from support.cluster import KafkaUnderTest
from support.commands import Command
from support.groups import QUICK, group_config, moving_key, send


def of(document: dict[str, Any], check: str) -> list[dict[str, Any]]:
    """The findings of one check."""
    return [finding for finding in document["findings"] if finding["check"] == check]


@pytest.mark.kip("C-20", "K280-07", "K903-09")
def test_all_is_well_and_then_it_is_not(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """A fresh topic passes; strays, stock groups, stuck gates, foreign partitions and bad settings are each named."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    well = keyorder("doctor", "--topic", topic_name)
    assert well.code == 0
    assert {f["status"] for f in well.document["findings"] if f["check"] != "Java"} == {"ok"}
    assert "Fetch v15" in of(well.document, "KIP-903")[0]["text"]
    assert of(well.document, "rights")[0]["text"] == "this user may act as consumer, producer and controller"

    key = moving_key(admin, topic_name, 3)
    origin = admin.describe(topic_name).layout.home(key)
    send(kafka, topic_name, (key, "old"))
    admin.expand(topic_name, 3)
    foreign = Producer(kafka.client_config())
    foreign.produce(topic_name, b"stray", key, partition=(origin + 1) % 2)
    foreign.flush(120)
    commit(kafka, f"{topic_name}-stock", TopicPartition(topic_name, 0, 0))
    commit(kafka, f"{topic_name}-stuck", *(TopicPartition(topic_name, p, 0, "ko1:0") for p in range(3)))
    cluster = kafka.admin()
    cluster.create_partitions([NewPartitions(topic_name, 5)])[topic_name].result(120)
    bad = {"unclean.leader.election.enable": "true", "cleanup.policy": "compact", "segment.ms": "900000000"}
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in bad.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic_name, incremental_configs=entries)
    cluster.incremental_alter_configs([resource])[resource].result(120)

    ill = keyorder("doctor", "--topic", topic_name)

    assert ill.code == 1
    (stray,) = of(ill.document, "misplaced records")
    assert (stray["about"], stray["status"]) == (f"{topic_name}[{(origin + 1) % 2}]", "warn")
    assert stray["text"].startswith("1 of its newest 1 records")
    assert "topics expand" in of(ill.document, "layout")[0]["fix"]
    assert of(ill.document, "settings")[0]["status"] == "fail"
    assert any("segment.ms" in f["text"] for f in of(ill.document, "compaction"))
    assert of(ill.document, "stock consumers")[0]["about"].startswith(f"group {topic_name}-stock")
    (gate,) = of(ill.document, "gates")
    assert "origin without an owner" in gate["text"]
    assert ill.document["counts"]["fail"] == 1
    table = keyorder("doctor", "--topic", topic_name, output="table")
    assert "-> make all members OrderedConsumers" in table.out
    assert keyorder("doctor", "--topic", "no-such-topic").code == 1


def test_describe_shows_strays_and_foreign_writers(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """A stock producer that puts a moved key where it no longer lives, and one that is right by chance; doctor says the same."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    key = moving_key(admin, topic_name, 4)
    origin = admin.describe(topic_name).layout.home(key)
    send(kafka, topic_name, (key, "old"))
    admin.expand(topic_name, 4)
    send(kafka, topic_name, (key, "new"))
    home = admin.describe(topic_name).layout.home(key)
    describe = ("topics", "describe", "--topic", topic_name)
    well = keyorder(*describe, output="table")
    assert "Misplaced records, records of stock producers: none among the newest 2" in well.out
    stock = Producer(kafka.client_config())
    for partition in (origin, home, home):
        stock.produce(topic_name, b"foreign", key, partition=partition)
    stock.flush(120)

    found = {each["partition"]: each for each in keyorder(*describe).document["strays"]}

    clean = {"records": 0, "strays": 0, "last": None, "foreign": 0, "last_foreign": None}
    assert found == {
        **{p: {"partition": p, **clean} for p in range(4)},
        origin: {"partition": origin, **clean, "records": 2, "strays": 1, "last": 1},
        home: {"partition": home, **clean, "records": 3, "foreign": 2, "last_foreign": 2},
    }
    assert "of stock producers" in keyorder(*describe, output="table").out
    assert keyorder(*describe, "--records", "0").document["strays"] is None
    assert [each["last"] for each in keyorder(*describe, "--records", "1").document["strays"] if each["strays"]] == [1]
    doctor = keyorder("doctor", "--topic", topic_name)
    assert of(doctor.document, "records of stock producers")[0]["about"] == f"{topic_name}[{home}]"
    assert of(doctor.document, "misplaced records")[0]["about"] == f"{topic_name}[{origin}]"


def commit(kafka: KafkaUnderTest, group: str, *places: TopicPartition) -> None:
    """Set offsets of a group without members."""
    client = Consumer(group_config(kafka, group, enable_auto_commit=False))
    client.commit(offsets=list(places), asynchronous=False)
    client.close()


def test_a_misspelt_topic_is_not_said_to_be_unmanaged(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Whoever misspells a name is not sent to `topics adopt`, which would fail; a topic that is there is."""
    cluster = kafka.admin()
    cluster.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    found = {}
    for topic in (topic_name, topic_name + "x"):
        answer = keyorder("doctor", "--topic", topic)
        (found[topic],) = [f for f in answer.document["findings"] if f["check"] == "timeline"]
        assert (answer.code, found[topic]["status"]) == (1, "fail")
    assert "is not under management" in found[topic_name]["text"]
    assert "does not exist" in found[topic_name + "x"]["text"]


class Silent(ClusterAdmin):
    """One whose broker answers the first question for a topic, and so many of the next ones not."""

    def __init__(self, config: dict[str, str], unanswered: int) -> None:
        super().__init__(config)
        self._left = [False] + [True] * unanswered

    def describe_topics(self, topics: Any, **named: Any) -> Any:
        if not (self._left and self._left.pop(0)):
            return super().describe_topics(topics, **named)
        lost: Future[Any] = Future()
        lost.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return dict.fromkeys(topics.topic_names, lost)


@pytest.mark.parametrize(("unanswered", "check"), [(1, "settings"), (1000, "check")])
def test_a_question_that_is_not_answered_ends_no_report(
    kafka: KafkaUnderTest, topic_name: str, unanswered: int, check: str
) -> None:
    """It is asked again; in the end it is what was found, and the other checks follow."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 2, config=QUICK)

    found = list(check_topic(config, Silent(config, unanswered), admin.timeline(topic_name), 10, 5.0))

    checks = [f.check for f in found if f.check in ("settings", "check", "misplaced records")]
    # Behind them comes that of groups, which asks for the topic where there are some.
    assert checks[:2] == [check, "misplaced records"], found


@pytest.mark.slow
def test_no_broker_is_a_finding_and_not_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever calls a doctor is told what is wrong."""
    assert _run(["doctor", "--bootstrap-server", "127.0.0.1:1", "--timeout", "2"]) == 1
    assert "no Kafka broker answered" in capsys.readouterr().out
    assert fetch_version({"bootstrap.servers": "127.0.0.1:1"}, 0.5) is None
