"""Consumers that are dropped, not closed: the process goes on, whatever their group was about to say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from keyorder import TopicAdmin
from support import dropping
from support.cluster import ClusterSpec, KafkaUnderTest

PROTOCOLS = {
    "classic": {},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_assignment_that_nobody_has_served_does_not_keep_a_consumer_from_its_end(
    start_kafka: Callable[[ClusterSpec], KafkaUnderTest], topic_name: str, protocol: str
) -> None:
    """The broker is gone, so the library ends the group at once, perhaps as its callback answers the assignment."""
    kafka = start_kafka(ClusterSpec(1))
    stopped = False
    try:
        TopicAdmin(kafka.client_config()).create(topic_name, 2)
        arguments = [json.dumps(kafka.client_config()), topic_name, json.dumps(PROTOCOLS[protocol])]
        with subprocess.Popen(
            [sys.executable, str(Path(dropping.__file__)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "waiting\n"
            kafka.stop()
            stopped = True
            said, complaints = running.communicate("go on\n")
        assert (said, running.returncode) == (f"dropped {dropping.CONSUMERS}\n", 0), complaints[-3000:]
    finally:
        if not stopped:
            kafka.stop()
