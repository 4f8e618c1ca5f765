"""What a supervisor does on a real cluster: giving up, resizing, and errors that leave typed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder import TopicAdmin
from keyorder.connector.operations import stock_look
from keyorder.connector.topology.supervised import SupervisedCluster, typed_errors
from keyorder.partitioner.changes.scaling_policy import Policy
from keyorder.partitioner.errors import (
    BrokerUnreachableError,
    ControllerFencedError,
    NotAuthorizedError,
    StockWritersError,
)
from support.cluster import KafkaUnderTest

QUICK = {"keyorder.view.age.ms": "200"}


def test_a_fatal_error_hidden_by_a_callback_is_a_fence() -> None:
    """A delivery callback that runs after a fatal error makes a SystemError of it; the cause still tells."""
    with pytest.raises(ControllerFencedError), typed_errors("t", "b"):
        raise SystemError("a result with an exception set") from KafkaException(KafkaError(KafkaError._FATAL))


def test_errors_of_the_client_library_are_translated() -> None:
    """So that the supervisor reports them and stays."""
    with pytest.raises(BrokerUnreachableError), typed_errors("t", "b"):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_a_bug_is_not_taken_for_a_fence() -> None:
    """A SystemError of another cause stays what it is."""
    with pytest.raises(SystemError), typed_errors("t", "b"):
        raise SystemError("something else")


def test_a_killed_shrink_is_finished_as_it_was_asked_for(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The groups that it was to wait for are in the timeline; nobody who holds stale news resizes afterwards."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, config=QUICK, initial_partition_count=2)
    call = f"shrink({topic_name!r}, 3, wait_for_groups=['billing'])"
    killed = subprocess.run(
        [sys.executable, "-c", f"from keyorder import TopicAdmin; TopicAdmin({kafka.client_config()!r}).{call}"],
        env={**os.environ, "KEYORDER_CRASH_AT": "prepare-written"},
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    left = admin.describe(topic_name).change
    assert left is not None
    cluster = SupervisedCluster(kafka.client_config())
    assert cluster.timelines()[topic_name].change == left

    finished = cluster.resume(topic_name, left)
    again = cluster.resume(topic_name, left)

    assert (finished.changed, finished.after, again.changed) == (True, 3, False)
    stale = cluster.resize(topic_name, 4, 2, Policy())
    shrunk = cluster.resize(topic_name, 3, 2, Policy(groups=("audit",)))
    cluster.close()
    assert (stale.changed, stale.after) == (False, 3)
    assert (shrunk.before, shrunk.after) == (3, 2)
    groups = {drain.partition: drain.retirement.groups for drain in admin.timeline(topic_name).drains}
    assert groups == {2: ("audit",), 3: ("billing",)}


def test_what_may_not_be_read_is_not_scaled(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a stock producer writes it cannot be told then, and nobody would read a warning."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)

    def refuse(*_: object) -> None:
        raise NotAuthorizedError("read", f"topic {topic_name}", "TOPIC_AUTHORIZATION_FAILED")

    monkeypatch.setattr(stock_look, "scan", refuse)
    cluster = SupervisedCluster(kafka.client_config())
    with pytest.raises(StockWritersError, match=r"may not read its newest records.* accept_stock_writers = true"):
        cluster.resize(topic_name, 2, 3, Policy())
    accepted = cluster.resize(topic_name, 2, 3, Policy(accept_stock_writers=True))
    cluster.close()
    assert accepted.after == 3


def test_a_deleted_topic_is_left_alone(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its timeline outlives it, and nobody looks after it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    client = kafka.admin()
    client.delete_topics([topic_name])[topic_name].result(120)
    cluster = SupervisedCluster(kafka.client_config())

    assert topic_name not in cluster.timelines()
    cluster.close()
