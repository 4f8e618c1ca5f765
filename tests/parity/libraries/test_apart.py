"""Libraries that cannot be installed beside keyorder's own tools: each into a folder of its own, in a process of its own.

Quix Streams asks for an older confluent-kafka than keyorder; it works with the newer one. Datadog's tracer is large.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cluster import KafkaUnderTest

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

APART = Path(__file__).with_name("apart")
# Without what they ask for, where keyorder's own environment has another version of it.
QUIX = [
    "quixstreams==3.28.1",
    "rocksdict==0.3.29",
    "orjson",
    "pydantic-settings",
    "python-dotenv",
    "jsonlines",
    "jsonpath-ng",
    "ply",
]


def installed(folder: Path, *packages: str) -> Path:
    """The folder, with these packages in it."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def quix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Quix Streams is."""
    return installed(tmp_path_factory.mktemp("quix"), "--no-deps", *QUIX)


@pytest.fixture(scope="module")
def datadog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Datadog's tracer is."""
    return installed(tmp_path_factory.mktemp("datadog"), "ddtrace==4.16.0")


def answer(program: str, where: Path, *arguments: str) -> Any:
    """What a program there prints last, as JSON."""
    done = subprocess.run(
        [sys.executable, str(APART / program), *arguments],
        env={**os.environ, "PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["stock", "ordered"])
def test_quix_streams_counts(quix: Path, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, kind: str) -> None:
    """State comes back from the changelog topic, over a restart and with both guarantees: each key counts on, in its order."""
    counts = answer("quix.py", quix, kafka.bootstrap_servers, topic_name, kind, str(tmp_path / "state"))
    assert counts == {f"k{key}": list(range(1, 11)) for key in range(4)}


@pytest.mark.parametrize("kind", ["stock", "ordered"])
def test_datadog_traces(datadog: Path, kafka: KafkaUnderTest, topic_name: str, kind: str) -> None:
    """The application's spans are the same; with ours those of the control topics come beside them."""
    spans = answer("ddtrace_spans.py", datadog, kafka.bootstrap_servers, topic_name, kind)
    assert [[name, tombstone] for name, topic, tombstone in spans if topic == topic_name] == [
        ["kafka.produce", "False"],
        ["kafka.produce", "True"],
        ["kafka.consume", "False"],
        ["kafka.consume", "True"],
    ]
