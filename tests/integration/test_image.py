"""The image: it is built, and its controller and Connect worker run with the restrictions that the manifests set."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from keyorder import TopicAdmin
from keyorder.connector.local.processes import free_ports
from support.cluster import KafkaUnderTest
from support.image import keyorder_image

import docker

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
PATIENCE = 300.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """A client of the Docker engine."""
    client = docker.from_env(
        timeout=int(PATIENCE) * 4
    )  # a step of a build that says nothing for a while has not failed
    yield client
    client.close()


@pytest.fixture(scope="module")
def image(engine: Any) -> str:
    """Built once for the tests of this file."""
    return keyorder_image(engine, "keyorder-under-test:latest")


@contextmanager
def container(engine: Any, image: str, kafka: KafkaUnderTest, *words: str, **options: Any) -> Iterator[Any]:
    """A container in the host's network, with as few rights as in the manifests. Nothing is left behind."""
    environment = {"KEYORDER_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, **options.pop("environment", {})}
    # The container's own address is asked without the proxy that an environment names.
    environment |= {"http_proxy": "http://127.0.0.1:9"}
    running = engine.containers.run(
        image, list(words) or None, detach=True, network_mode="host", read_only=True, tmpfs={"/tmp": ""},
        cap_drop=["ALL"], security_opt=["no-new-privileges"], environment=environment,
        healthcheck={"interval": 1_000_000_000, "timeout": 60_000_000_000, "retries": 100}, **options,
    )  # fmt: skip
    try:
        yield running
    finally:
        running.remove(force=True)


def until_healthy(running: Any) -> None:
    """Return when its health check says so."""
    deadline = time.monotonic() + PATIENCE
    while True:
        running.reload()
        if running.attrs["State"]["Health"]["Status"] == "healthy":
            return
        assert running.status in ("created", "running"), running.logs().decode()
        assert time.monotonic() < deadline, (running.attrs["State"]["Health"], running.logs().decode())
        time.sleep(0.5)


def inside(running: Any, *words: str) -> str:
    """The output of a command in the container; it has to succeed."""
    code, out = running.exec_run(list(words))
    assert code == 0, out.decode()
    return str(out.decode())


def test_what_the_image_is_made_of(engine: Any, image: str) -> None:
    """A user by number, labels, and nothing of the checkout but the package."""
    made = engine.images.get(image).attrs["Config"]
    assert made["User"] == "1001:1001"
    assert made["Labels"]["org.opencontainers.image.version"] == "0.0.1"
    assert made["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    look = "find / -xdev -name client.properties; find / -maxdepth 1; ls -A /opt/keyorder"
    found = engine.containers.run(image, ["-c", look], entrypoint="sh", user="0", remove=True).decode().split()
    assert {"/opt", "/tmp", "healthcheck.py"} <= set(found)
    assert [path for path in found if path.endswith("client.properties") or path == "/src"] == []


def test_the_controller(engine: Any, image: str, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Healthy, without rights; a command beside it creates and grows a topic; SIGTERM ends it with its last event."""
    (port,) = free_ports(1)
    with container(engine, image, kafka, environment={"KEYORDER_METRICS_PORT": str(port)}) as running:
        until_healthy(running)
        assert inside(running, "id", "-u").strip() == "1001"
        assert "CapEff:\t0000000000000000" in inside(running, "cat", "/proc/1/status")
        inside(running, "keyorder", "topics", "create", "--topic", topic_name, "--partitions", "2")
        inside(running, "keyorder", "topics", "expand", "--topic", topic_name, "--partitions", "3")
        with TopicAdmin(kafka.client_config()) as admin:
            assert admin.describe(topic_name).layout.count == 3
        running.stop(timeout=int(PATIENCE))
        assert running.wait()["StatusCode"] == 0
        events = [json.loads(line) for line in running.logs(stderr=False).decode().splitlines()]
    assert events[0]["event"] == "started"
    assert events[0]["metrics"] == f"http://0.0.0.0:{port}/metrics"
    assert events[-1]["event"] == "stopped"


def test_a_worker_of_connect(engine: Any, image: str, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Healthy behind its token, which comes from the environment; SIGTERM ends it."""
    (port,) = free_ports(1)
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": topic_name,
        **{f"{kind}.storage.topic": f"{topic_name}-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        "listeners": f"http://127.0.0.1:{port}",
        "config.providers": "env",
        "config.providers.env.class": "EnvVarConfigProvider",
        "rest.token": "${env:KEYORDER_REST_TOKEN}",
    }
    file = tmp_path / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    environment = {"KEYORDER_HEALTH_URL": f"http://127.0.0.1:{port}/health", "KEYORDER_REST_TOKEN": "a-token-of-a-test"}
    mount = {str(file): {"bind": "/etc/keyorder/worker.properties", "mode": "ro"}}
    words = ("connect", "distributed", "/etc/keyorder/worker.properties", "--output", "json")
    with container(engine, image, kafka, *words, environment=environment, volumes=mount) as running:
        until_healthy(running)
        running.stop(timeout=int(PATIENCE))
        assert running.wait()["StatusCode"] == 0
        events = [json.loads(line)["event"] for line in running.logs(stderr=False).decode().splitlines()]
    assert events == ["started", "stopped"]
