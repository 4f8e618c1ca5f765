"""A real cluster: it works, it ends, and it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from keyorder.connector.local.cluster import LocalCluster
from keyorder.connector.local.errors import BrokerFailedError, ClusterStateError, UnknownKafkaVersionError
from keyorder.connector.local.versions import known_versions
from keyorder.partitioner.errors import UsageError
from support.cluster import KafkaFactory, KafkaUnderTest

# These start brokers without the fixtures of conftest.py.
starts_brokers = pytest.mark.kafka
on_processes = pytest.mark.process_supplier("tests the local cluster itself")


def create_topic(admin: AdminClient, name: str, partitions: int = 1) -> None:
    admin.create_topics([NewTopic(name, num_partitions=partitions)])[name].result(120)


def produce(config: dict[str, str], topic: str, values: list[bytes]) -> list[KafkaError | None]:
    """Produce to partition 0 with acks=all and return each record's delivery error."""
    results: list[KafkaError | None] = []
    producer = Producer({**config, "log_level": 0, "message.timeout.ms": 60000})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: results.append(error))
    assert producer.flush(90) == 0
    return results


def read(config: dict[str, str], topic: str, count: int) -> list[bytes | None]:
    """The first `count` values of partition 0."""
    consumer = Consumer({**config, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        values: list[bytes | None] = []
        while len(values) < count:
            messages = consumer.consume(count - len(values), 60)
            assert messages, f"only {len(values)} of {count} records arrived"
            for message in messages:
                assert message.error() is None, message.error()
                values.append(message.value())
        return values
    finally:
        consumer.close()


def gone(pid: int) -> bool:
    """Whether the process has ended; waits for it, since the kernel takes its time after a signal."""
    try:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE or process.wait(120) is None
    except psutil.NoSuchProcess:
        return True


def test_the_shared_broker_produces_and_consumes(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The fixture's broker takes records and gives them back in order."""
    create_topic(kafka.admin(), topic_name)
    values = [str(i).encode() for i in range(100)]
    assert produce(kafka.client_config(), topic_name, values) == [None] * 100
    assert read(kafka.client_config(), topic_name, 100) == values


def test_an_unknown_topic_is_not_created_by_a_client(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A typing error in a topic name is an error and not a new topic."""
    producer = Producer({**kafka.client_config(), "log_level": 0, "topic.metadata.propagation.max.ms": 500})
    results: list[KafkaError] = []
    producer.produce(topic_name, b"x", on_delivery=lambda error, _: results.append(error))
    producer.flush(120)
    assert [error.name() for error in results] == ["UNKNOWN_TOPIC_OR_PART"] or [error.name() for error in results] == [
        "_UNKNOWN_TOPIC"
    ]


@pytest.mark.long
@starts_brokers
@on_processes
@pytest.mark.parametrize("version", known_versions())
def test_every_locked_version_starts_and_stops_without_a_trace(version: str) -> None:
    """Each version that has a lock file runs a producer and a consumer, and its folder and process go."""
    with LocalCluster(version=version) as cluster:
        create_topic(AdminClient(cluster.client_config()), "t")
        produce(cluster.client_config(), "t", [b"1", b"2"])
        assert read(cluster.client_config(), "t", 2) == [b"1", b"2"]
        pid = cluster.brokers[0].pid
        assert pid is not None
        assert cluster.brokers[0].log_file.stat().st_size > 0
    assert gone(pid)
    assert not cluster.data_dir.exists()


@starts_brokers
@on_processes
def test_the_data_of_a_named_folder_survive_a_stop(tmp_path: Path) -> None:
    """After stop and start on the same folder the records and the ports are those of before."""
    with LocalCluster(tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        create_topic(AdminClient(cluster.client_config()), "t")
        produce(cluster.client_config(), "t", [b"kept"])
    assert cluster.brokers[0].pid is None
    with LocalCluster(tmp_path) as again:
        assert again.bootstrap_servers == servers
        assert read(again.client_config(), "t", 1) == [b"kept"]
        with pytest.raises(ClusterStateError, match="running already"):
            LocalCluster(tmp_path).start()
    with pytest.raises(ClusterStateError, match="1 broker"):
        LocalCluster(tmp_path, brokers=3).start()
    again.wipe()
    assert not tmp_path.exists()


@starts_brokers
@on_processes
def test_a_parent_that_is_killed_leaves_no_broker(tmp_path: Path) -> None:
    """SIGKILL gives Python no chance to stop its brokers; they go nevertheless."""
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from keyorder.connector.local.cluster import LocalCluster
        cluster = LocalCluster(Path(sys.argv[1]))
        cluster.start()
        print(cluster.brokers[0].pid, flush=True)
        sys.stdin.read()
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.communicate()
    assert gone(pid)


@starts_brokers
@on_processes
def test_a_broker_that_exits_early_is_reported_with_its_log() -> None:
    """A setting that Kafka refuses ends in an error that shows Kafka's own words, and in no process."""
    cluster = LocalCluster(properties={"num.network.threads": "-1"})
    with pytest.raises(BrokerFailedError, match=r"num\.network\.threads"):
        cluster.start()
    assert [broker.pid for broker in cluster.brokers] == [None]
    cluster.wipe()


@pytest.mark.long
def test_a_killed_broker_of_three_is_missed_and_comes_back(kafka3: KafkaUnderTest, topic_name: str) -> None:
    """With one of three brokers killed acks=all goes on; the broker returns with its data."""
    create_topic(kafka3.admin(), topic_name)
    config = kafka3.client_config()
    assert produce(config, topic_name, [b"before"]) == [None]
    leader = kafka3.admin().list_topics(topic_name, timeout=120).topics[topic_name].partitions[0].leader
    kafka3.kill_broker(leader)
    assert produce(config, topic_name, [b"during"]) == [None]
    kafka3.start_broker(leader)
    assert len(kafka3.admin().list_topics(timeout=120).brokers) == 3
    assert produce(config, topic_name, [b"after"]) == [None]
    assert read(config, topic_name, 3) == [b"before", b"during", b"after"]


@on_processes
def test_a_stopped_and_continued_broker_keeps_its_process(kafka3: KafkaUnderTest) -> None:
    """Signals other than SIGKILL are passed on: a paused broker is the same process afterwards."""
    broker = kafka3.cluster.brokers[0]  # type: ignore[attr-defined]
    before = broker.pid
    kafka3.kill_broker(1, signal.SIGSTOP)
    os.kill(before, signal.SIGCONT)
    broker.wait_ready()
    assert broker.pid == before


def test_a_user_without_an_acl_is_refused(kafka_factory: KafkaFactory) -> None:
    """The first user may do all; another one gets Kafka's own refusal, and no answer for a wrong password."""
    kafka = kafka_factory(users={"root": 'with "quotes" and \\', "reader": "r"})
    create_topic(kafka.admin(), "t")
    assert produce(kafka.client_config(), "t", [b"x"]) == [None]
    refused = produce(kafka.client_config("reader"), "t", [b"x"])
    assert [error.name() for error in refused if error] == ["TOPIC_AUTHORIZATION_FAILED"]
    with pytest.raises(UsageError, match="nobody"):
        kafka.client_config("nobody")


def test_wrong_requests_are_refused_before_anything_starts() -> None:
    """Two brokers, an unknown version and an unusable user name are the caller's faults."""
    with pytest.raises(UsageError, match="1 or 3"):
        LocalCluster(brokers=2)
    with pytest.raises(UnknownKafkaVersionError, match=r"0\.8\.0.*4\.1\.2"):
        LocalCluster(version="0.8.0")
    with pytest.raises(UsageError, match="a name consists of"):
        LocalCluster(users={'a"b': "x"})
