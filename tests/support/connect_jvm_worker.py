"""Kafka Connect's own worker, `connect-distributed`, as a process of this machine."""

from __future__ import annotations

import socket
import subprocess
import uuid
from pathlib import Path

import httpx
from keyorder.connector.local.java import find_java
from support.cluster import KafkaUnderTest
from support.connect_judge import class_path, worker_jars
from support.connect_rig import until

_LOG = """appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.connect.name = org.apache.kafka.connect
logger.connect.level = info
"""


class JvmWorker:
    """A running worker of a group of its own. url: its REST."""

    def __init__(self, kafka: KafkaUnderTest, folder: Path, **more: str) -> None:
        name, port = f"jvm-{uuid.uuid4().hex[:8]}", _free_port()
        self.url = f"http://127.0.0.1:{port}"
        text = "org.apache.kafka.connect.storage.StringConverter"
        settings = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": name,
            **{f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "key.converter": text,
            "value.converter": text,
            "offset.flush.interval.ms": "300",
            "scheduled.rebalance.max.delay.ms": "0",
            "listeners": self.url,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        (folder / "worker.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (folder / "log4j2.properties").write_text(_LOG)
        self._log = folder / "worker.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(find_java(21).executable), "-Xmx384m", "-XX:TieredStopAtLevel=1",
                 f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}", "-cp", class_path(worker_jars()),
                 "org.apache.kafka.connect.cli.ConnectDistributed", str(folder / "worker.properties")],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until(self._answers, lambda: f"the worker answers: {self._log.read_text()[-2000:]}", 180)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            return httpx.get(f"{self.url}/health").is_success
        except httpx.TransportError:
            return False

    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(120)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(120)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
