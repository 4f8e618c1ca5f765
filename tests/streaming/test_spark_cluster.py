"""A standalone cluster of two workers, whose executors have keyorder from --py-files alone."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.spark_driver import delivered, faults, read_topic
from support.wheel import build_wheel

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark-cluster"
# What docs/spark-cluster.md asks of the executors' Python.
DEPENDENCIES = ("confluent_kafka", "fastavro", "tenacity", "psutil", "requests", "pyarrow", "numpy", "numba", "pandas")


def cluster(*arguments: str) -> str:
    """The script's own command line."""
    command = [sys.executable, "-I", str(EXAMPLE / "cluster.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def executors_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that sees the dependencies and no keyorder: a .pth file's folder is not searched for further ones."""
    folder = tmp_path_factory.mktemp("executors") / "venv"
    venv.create(folder, symlinks=True)
    found = [importlib.util.find_spec(name) for name in DEPENDENCIES]
    places = {str(Path(spec.origin).parents[1]) for spec in found if spec is not None and spec.origin is not None}
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(sorted(places)) + "\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A master and two workers: address and folder."""
    folder = tmp_path_factory.mktemp("cluster") / "state"
    facts = json.loads(cluster("start", "--workers", "2", "--folder", str(folder)))
    yield facts["master"], folder
    cluster("stop", "--folder", str(folder))


def test_the_executors_python_has_the_dependencies_and_no_keyorder(executors_python: Path) -> None:
    """Or the next test would show nothing."""
    code = f"import {', '.join(DEPENDENCIES)}\nimport importlib.util\nprint(importlib.util.find_spec('keyorder'))"
    told = subprocess.run([executors_python, "-Ic", code], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout.strip()) == (0, "None"), told.stderr


@pytest.mark.timeout(600)
def test_source_and_sink_run_on_executors_that_were_sent_the_package(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, master: tuple[str, Path], executors_python: Path
) -> None:
    """Through a growth and a shrink of both topics: nothing lost, doubled, or out of order."""
    address, folder = master
    config = kafka.client_config()
    source, target = topic_name, f"{topic_name}-out"
    admin = TopicAdmin(config)
    admin.create(source, 2)
    admin.create(target, 2)
    archive = cluster("package", "--wheel", str(build_wheel(tmp_path)), "--out", str(tmp_path / "keyorder.zip"))
    settings = {
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", address, "--py-files", archive]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(EXAMPLE / "pipeline.py"), kafka.bootstrap_servers, source, target, str(tmp_path / "checkpoint")]
    environment = {
        "PYSPARK_PYTHON": str(executors_python),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": archive,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = tmp_path / "driver.log"
    producer = OrderedProducer({**config, "linger.ms": 5})
    count = 0
    with log.open("wb") as out:
        driver = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=tmp_path,
            start_new_session=True,
        )
        try:
            for source_count, target_count in ((2, 2), (5, 3), (3, 5)):
                for topic, wanted in ((source, source_count), (target, target_count)):
                    now = admin.timeline(topic).newest.count
                    if wanted != now:
                        (admin.expand if wanted > now else admin.shrink)(topic, wanted)
                for number in range(count, count + 400):
                    producer.produce(source, str(number), str(number % 20))
                count += 400
                producer.flush()
                while len(read_topic(config, target)) < count:
                    assert driver.poll() is None, log.read_text()[-4000:]
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            producer.close()
    values = delivered(config, target, count)
    assert faults(values) == {"lost": 0, "doubled": 0, "reordered": 0}
    assert sum(len(each) for each in values.values()) == count
    sent = folder.glob("work-*/app-*/*/keyorder.zip")
    assert {path.relative_to(folder).parts[0] for path in sent} == {"work-1", "work-2"}
