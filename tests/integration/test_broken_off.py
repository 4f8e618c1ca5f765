"""A change that ends in the middle, by an error or by its operator: writers must not go on holding records for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from keyorder import OrderedProducer, TopicAdmin
from keyorder.partitioner.errors import KafkaOperationError
from support.cluster import ClusterSpec, KafkaUnderTest
from support.silent_writer import SilentWriter

QUICK = {"keyorder.view.age.ms": "100"}


@pytest.fixture(scope="module")
def own_kafka(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker whose control topics may be set up in odd ways."""
    started = start_kafka(ClusterSpec(1))
    yield started
    started.stop()


def limit(kafka: KafkaUnderTest, limit: int) -> None:
    """Let `_keyorder` take no larger records than this."""
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "_keyorder", incremental_configs=[entry])
    client = kafka.admin()  # one that is collected never answers
    client.incremental_alter_configs([resource])[resource].result(30)


def test_a_commit_that_the_broker_refuses_leaves_no_prepare_open(own_kafka: KafkaUnderTest, topic_name: str) -> None:
    """The limit falls while writers hold records: the COMMIT is too large, the attempt is given up, records flow again."""
    config = own_kafka.client_config()
    TopicAdmin(config).create(topic_name, 2, config=QUICK)
    held: list[object] = []

    with OrderedProducer(config) as producer:
        producer.produce(topic_name, b"0", b"k")
        assert producer.flush(30) == 0

        def lower(step: str) -> None:
            if step == "collecting":
                limit(own_kafka, 800)

        try:
            with pytest.raises(KafkaOperationError, match="MSG_SIZE_TOO_LARGE"):
                TopicAdmin(config, lower).expand(topic_name, 200)
            assert TopicAdmin(config).timeline(topic_name).change is None
        finally:
            limit(own_kafka, 1_048_588)
        for number in range(100):
            producer.produce(topic_name, b"1", b"%d" % number, on_delivery=lambda error, _: held.append(error))
        assert producer.flush(60) == 0
    assert held == [None] * 100
    # Nothing of the failed attempt is in the way of the next one.
    assert TopicAdmin(config).expand(topic_name, 3).after == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_operator_who_breaks_a_change_off_gives_it_up(
    own_kafka: KafkaUnderTest, topic_name: str, number: signal.Signals
) -> None:
    """Ctrl-C, or SIGTERM, while writers hold records: the command ends with an ABORT, and says so."""
    config = own_kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    command = [sys.executable, "-m", "keyorder", "topics", "expand", "--topic", topic_name, "--partitions", "2"]
    command += ["--bootstrap-server", own_kafka.bootstrap_servers]

    with (
        SilentWriter(config, topic_name),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as running,
    ):
        assert running.stderr is not None
        said: list[str] = []
        for line in running.stderr:
            said.append(line)
            if "collecting" in line or "hold" in line:
                break
        running.send_signal(number)
        watchdog = threading.Timer(120, running.kill)
        watchdog.start()
        said += running.stderr.readlines()
        code = running.wait()
        watchdog.cancel()

    assert code == 130, said
    assert any("given up" in line for line in said), said
    assert admin.timeline(topic_name).change is None
