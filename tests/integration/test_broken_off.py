"""A change that ends in the middle, by an error or by its operator: writers must not go on holding records for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import FrameType

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.control import timeline_writer
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.partitioner.errors import KafkaOperationError
from support.cluster import ClusterSpec, KafkaUnderTest
from support.silent_writer import SilentWriter

QUICK = {"keyorder.view.age.ms": "100"}


@pytest.fixture(scope="module")
def own_kafka(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker whose control topics may be set up in odd ways."""
    # A transaction that outlives its timeout is ended at once, and not by the next of ten-second rounds.
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    started = start_kafka(ClusterSpec(1, {}, quick))
    yield started
    started.stop()


def limit(kafka: KafkaUnderTest, limit: int) -> None:
    """Let `_keyorder` take no larger records than this."""
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "_keyorder", incremental_configs=[entry])
    client = kafka.admin()  # one that is collected never answers
    client.incremental_alter_configs([resource])[resource].result(120)


def test_a_commit_that_the_broker_refuses_leaves_no_prepare_open(own_kafka: KafkaUnderTest, topic_name: str) -> None:
    """The limit falls while writers hold records: the COMMIT is too large, the attempt is given up, records flow again."""
    config = own_kafka.client_config()
    TopicAdmin(config).create(topic_name, 2, config=QUICK)
    held: list[object] = []

    with OrderedProducer(config) as producer:
        producer.produce(topic_name, b"0", b"k")
        assert producer.flush(120) == 0

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
        assert producer.flush(120) == 0
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


@pytest.mark.parametrize("bare", [True, False])
def test_ctrl_c_beneath_the_client_library_is_not_taken_for_another_controller(
    own_kafka: KafkaUnderTest, topic_name: str, bare: bool
) -> None:
    """A signal that meets the library as it reports a delivery: the library loses what the handler raises."""
    config = own_kafka.client_config()
    TopicAdmin(config).create(topic_name, 1, config=QUICK)
    interrupted: list[str] = []

    def interrupt(frame: FrameType, *_: object) -> None:
        if frame.f_code.co_name == "done" and "timeline" in frame.f_code.co_filename:
            sys.settrace(None)
            interrupted.append(frame.f_code.co_filename)
            if bare:
                signal.default_int_handler(signal.SIGINT, None)
            raise KeyboardInterrupt

    admin = TopicAdmin(config)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process that runs tests for another has none
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            admin.expand(topic_name, 2)
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    assert interrupted
    assert admin.timeline(topic_name).change is None
    assert admin.expand(topic_name, 2).after == 2


def test_a_controller_that_stood_still_in_its_own_transaction_begins_again(
    own_kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator ended its transaction meanwhile, and answers as if there were another controller."""
    config = own_kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    slot = TopicPartition(*timeline_slot(topic_name))
    stood: list[str] = []

    def stand_still(step: str) -> None:
        if step != "prepare-sent" or stood:
            return
        stood.append(step)
        with closing(Consumer({**config, "group.id": "ends"})) as asker:
            _, sent = asker.get_watermark_offsets(slot, 120)
            deadline = time.monotonic() + 120
            while asker.get_watermark_offsets(slot, 120)[1] == sent:  # until the coordinator has written its marker
                assert time.monotonic() < deadline

    monkeypatch.setattr(timeline_writer, "crash_point", stand_still)
    change = admin.expand(topic_name, 2)

    assert stood == ["prepare-sent"]
    assert change.after == 2
