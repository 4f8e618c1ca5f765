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
from keyorder import TopicAdmin
from support.cluster import KafkaUnderTest
from support.groups import send

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

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


@pytest.fixture(scope="module")
def kombu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Celery is, and kombu, its library of queues."""
    return installed(tmp_path_factory.mktemp("kombu"), "kombu==5.7.0", "celery==5.7.0")


@pytest.fixture(scope="module")
def bytewax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Bytewax is."""
    return installed(
        tmp_path_factory.mktemp("bytewax"), "--no-deps", "bytewax==0.21.1", "jsonpickle", "prometheus-client"
    )


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


@pytest.mark.parametrize("kind", ["stock", "ordered"])
def test_a_queue_of_kombu(kombu: Path, kafka: KafkaUnderTest, topic_name: str, kind: str) -> None:
    """It makes a topic and writes to it at once, and acknowledges by commit()."""
    found = answer("kombu_queue.py", kombu, kafka.bootstrap_servers, topic_name, kind)
    assert found == {"read": [0, 1, 2, 3, 4, 5], "left": 0}


@pytest.mark.parametrize("kind", ["stock", "ordered"])
def test_workers_of_celery(kombu: Path, kafka: KafkaUnderTest, topic_name: str, kind: str) -> None:
    """Each task runs once; the second worker, after a growth with ours, goes on where the first one ended."""
    where = (kombu, kafka.bootstrap_servers, topic_name, kind)
    ran = [answer("celery_worker.py", *where, "0", "6")]
    if kind == "ordered":
        TopicAdmin(kafka.client_config()).expand(topic_name, 3)
    ran.append(answer("celery_worker.py", *where, "6", "10"))
    assert [sorted(numbers) for numbers in ran] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]


@pytest.mark.parametrize("kind", ["stock", "ordered"])
def test_a_dataflow_of_bytewax(bytewax: Path, kafka: KafkaUnderTest, topic_name: str, kind: str) -> None:
    """A consumer for each partition, assigned by hand, with statistics; the order of each key is kept."""
    admin = TopicAdmin(kafka.client_config())
    for name in (topic_name, f"{topic_name}-out"):
        admin.create(name, 2)
    send(kafka, topic_name, *((f"k{n % 3}", f"{n}") for n in range(30)))
    found = answer("bytewax_flow.py", bytewax, kafka.bootstrap_servers, topic_name, kind)
    assert found == {f"k{key}": [f"{n}" for n in range(key, 30, 3)] for key in range(3)}
