"""Kafka Connect's own worker still answers what is recorded; with KEYORDER_CONNECT_RECORD=1 its answers are recorded anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cluster import KafkaUnderTest
from support.connect_jvm_worker import JvmWorker
from support.connect_rest import Run, differences, record, recorded


@pytest.mark.skipif(
    "KEYORDER_CONNECT_CASES" not in os.environ,
    reason="make connect-parity asks the JVM's worker; its answers are recorded",
)
@pytest.mark.timeout(600)
def test_the_recorded_answers_are_those_of_the_jvm(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Request by request."""
    more = {"access.control.allow.origin": "https://console.example", "access.control.allow.methods": "GET,PUT"}
    worker = JvmWorker(kafka, tmp_path, **more)
    try:
        run = Run(worker.url, kafka, tmp_path, topic_name)
        answers = run.answers()
    finally:
        worker.stop()
    if os.environ.get("KEYORDER_CONNECT_RECORD"):
        record(answers)
    assert differences(recorded(), answers) == []
