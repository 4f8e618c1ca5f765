"""Three brokers, one of which dies while the topic grows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.connector.metadata import patiently
from support.cluster import KafkaUnderTest
from support.workload import Workload, assert_in_order

QUICK = {"keyorder.view.age.ms": "400", "min.insync.replicas": "2"}
# A busy machine may take longer to elect leaders than records live by default; what times out is another test's business.
PATIENT = {"delivery.timeout.ms": 90_000, "keyorder.lease.ms": 120_000}

# A coordinator that comes back late may have given members up, and refuse what they commit while they leave.
FAILOVER = {"refusals_excuse": True}


def await_full_isr(kafka: KafkaUnderTest) -> None:
    """Return when every replica is in sync again: two brokers down at once are more than two of three can bear."""
    admin = kafka.admin()
    deadline = time.monotonic() + 120
    while True:
        found = admin.list_topics(timeout=120).topics
        behind = [
            (name, p.id, p.isrs)
            for name, topic in found.items()
            for p in topic.partitions.values()
            if len(p.isrs) < len(p.replicas)
        ]
        if not behind:
            return
        assert time.monotonic() < deadline, behind
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def all_brokers_again(kafka3: KafkaUnderTest) -> Iterator[None]:
    """A test that fails between a kill and the start leaves the next one three brokers all the same."""
    yield
    missing = {1, 2, 3} - set(kafka3.admin().list_topics(timeout=120).brokers)
    for broker in missing:
        kafka3.start_broker(broker)
    if missing:
        await_full_isr(kafka3)


@pytest.mark.nightly
@pytest.mark.kip("K253-01", "K903-16")
def test_growth_while_brokers_are_killed_one_after_another(
    kafka3: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Each broker is killed during a change and comes back; writers, group and controller go on, in order."""
    with Workload(kafka3, tmp_path, topic_name, replication_factor=3, config=QUICK) as run:
        run.consumer("c1", "g")
        run.consumer("c2", "g")
        run.writer("w1", rate=400, seed=1, config=PATIENT)
        run.writer("w2", rate=400, seed=2, config=PATIENT)
        for broker, count in ((1, 6), (2, 9), (3, 12)):
            killer = threading.Timer(0.8, kafka3.kill_broker, [broker])
            killer.start()
            assert run.expand(count) == 0, "a change has to survive one broker"
            killer.join()
            kafka3.start_broker(broker)
            await_full_isr(kafka3)

        verdict = run.finish(**FAILOVER)

        assert_in_order(verdict)
        assert verdict.keys_moved > 100


@pytest.mark.kip("K253-01", "K253-29", "K903-16")
def test_a_leader_dies_while_records_are_held(kafka3: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Between PREPARE and COMMIT, first the leader of the topic's timeline, then that of a partition that keys leave."""
    with Workload(kafka3, tmp_path, topic_name, replication_factor=3, config=QUICK) as run:
        run.consumer("c1", "g")
        run.consumer("c2", "g")
        run.writer("w1", rate=400, seed=1, config=PATIENT)
        run.writer("w2", rate=400, seed=2, config=PATIENT).expect_progress(run)
        for count, place in ((6, timeline_slot(topic_name)), (9, (topic_name, 2))):
            killed: list[int] = []

            def progress(step: str, place: tuple[str, int] = place, killed: list[int] = killed) -> None:
                if step == "collecting" and not killed:
                    killed.append(_leader(kafka3, place))
                    kafka3.kill_broker(killed[0])

            change = TopicAdmin(kafka3.client_config(), progress).expand(topic_name, count)

            assert change.after == count
            assert len(killed) == 1
            kafka3.start_broker(killed[0])
            await_full_isr(kafka3)

        assert_in_order(run.finish(**FAILOVER))


def _leader(kafka: KafkaUnderTest, place: tuple[str, int]) -> int:
    topic, partition = place
    return int(kafka.admin().list_topics(topic, timeout=120).topics[topic].partitions[partition].leader)


def test_topics_are_adopted_while_a_broker_that_the_producers_clients_know_is_away(
    kafka3: KafkaUnderTest, topic_name: str
) -> None:
    """First records go through clients that the producer has had for a while. One after the other loses its broker."""
    admin, topics = kafka3.admin(), [f"{topic_name}-{n}" for n in range(4)]
    for created in admin.create_topics([NewTopic(topic, 3, 3) for topic in topics]).values():
        created.result(60)
    reports: list[KafkaError | None] = []
    # A killed broker leads its partitions for nine seconds more.
    patient = {"delivery.timeout.ms": 90_000, "keyorder.control.timeout.ms": 90_000}
    with OrderedProducer({**kafka3.client_config(), **patient}) as producer:
        producer.produce(topics[0], b"v", b"k", on_delivery=lambda error, _: reports.append(error))
        for broker, topic in zip((1, 2, 3), topics[1:], strict=True):
            kafka3.kill_broker(broker)

            patiently(lambda topic=topic: producer.join(topic), 120)
            producer.produce(topic, b"v", b"k", on_delivery=lambda error, _: reports.append(error))

            kafka3.start_broker(broker)
            await_full_isr(kafka3)
        assert producer.flush(180) == 0
    assert reports == [None] * len(topics)
    managed = TopicAdmin(kafka3.client_config())
    assert all(managed.timeline(topic).newest.count == 3 for topic in topics)
