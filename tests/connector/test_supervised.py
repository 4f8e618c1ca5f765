"""What a supervisor does on a real cluster: giving up, resizing, and errors that leave typed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder import TopicAdmin
from keyorder.connector.supervised import SupervisedCluster, typed_errors
from keyorder.partitioner.errors import BrokerUnreachableError, ControllerFencedError
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


def test_a_killed_shrink_is_given_up(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Which groups it was to wait for died with it; the layout stays, no records are held, and it can be asked again."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, config=QUICK, initial_partition_count=2)
    code = f"from keyorder import TopicAdmin; TopicAdmin({kafka.client_config()!r}).shrink({topic_name!r}, 2)"
    killed = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "KEYORDER_CRASH_AT": "prepare-written"}, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    left = admin.describe(topic_name).change
    assert left is not None
    cluster = SupervisedCluster(kafka.client_config())
    assert cluster.timelines()[topic_name].change == left

    given_up = cluster.resume(topic_name, left)
    again = cluster.resume(topic_name, left)

    assert (given_up.changed, given_up.after, again.changed) == (False, 4, False)
    assert cluster.timelines()[topic_name].change is None
    stale = cluster.resize(topic_name, 3, 2, ["billing"])
    shrunk = cluster.resize(topic_name, 4, 2, ["billing"])
    cluster.close()
    assert (stale.changed, stale.after) == (False, 4)
    assert (shrunk.before, shrunk.after) == (4, 2)
    assert [drain.retirement.groups for drain in admin.timeline(topic_name).drains] == [("billing",)] * 2


def test_a_deleted_topic_is_left_alone(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its timeline outlives it, and nobody looks after it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    client = kafka.admin()
    client.delete_topics([topic_name])[topic_name].result(30)
    cluster = SupervisedCluster(kafka.client_config())

    assert topic_name not in cluster.timelines()
    cluster.close()
