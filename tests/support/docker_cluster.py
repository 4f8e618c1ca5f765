"""The same Kafka for tests from containers: keyorder's own broker image, or apache/kafka of any version."""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import keyorder
from confluent_kafka import KafkaException
from keyorder.connector.local.jars import ensure_jars
from keyorder.connector.local.processes import free_ports
from keyorder.connector.local.properties import (
    ClusterPlan,
    Node,
    client_config,
    server_properties,
    to_properties,
)
from keyorder.connector.local.storage import new_id
from keyorder.connector.local.versions import load_lock
from support.cluster import ClusterSpec, KafkaUnderTest
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

import docker

CLIENT_PORT, CONTROLLER_PORT, INTERNAL_PORT = 9092, 9093, 9094
DATA = "/var/lib/kafka/data"
START_TIMEOUT = 120.0


def broker_image(version: str) -> str:
    """Build the image of docker/Dockerfile with the locked jars of `version`; returns its tag."""
    source = Path(keyorder.__path__[0]) / "docker"
    tag = f"keyorder-kafka:{version}"
    with tempfile.TemporaryDirectory() as context:
        libs = Path(context) / "libs"
        libs.mkdir()
        for jar in ensure_jars(load_lock(version)):
            shutil.copyfile(jar, libs / jar.name)
        for name in ("Dockerfile", "entrypoint.sh"):
            shutil.copy(source / name, context)
        docker.from_env().images.build(path=context, tag=tag, rm=True)
    return tag


class BrokerContainer(DockerContainer):
    """One broker. Its published port is chosen beforehand: the broker must tell it to clients, and keep it
    when the container is killed and started again."""

    def __init__(self, image: str, network: Network, name: str, port: int, settings: Mapping[str, str]) -> None:
        super().__init__(image, network=network, network_aliases=[name], hostname=name)
        self.with_bind_ports(CLIENT_PORT, port)
        for key, value in settings.items():
            self.with_env(key, value)


class DockerKafka(KafkaUnderTest):
    """Brokers as containers on a network of their own."""

    supplier = "docker"

    def __init__(self, spec: ClusterSpec, image: str) -> None:
        self.brokers = spec.brokers
        ports = free_ports(spec.brokers)
        nodes = [Node(i + 1, port, CONTROLLER_PORT) for i, port in enumerate(ports)]
        self._plan = ClusterPlan(image.partition(":")[2], nodes, spec.users, spec.settings())
        self._network = Network()
        self._network.create()
        self._containers: list[BrokerContainer] = []
        try:
            self._start(image)
        except BaseException:
            self.stop()
            raise

    def _start(self, image: str) -> None:
        cluster_id, prefix = new_id(), f"kafka-{secrets.token_hex(4)}"
        names = {node.id: f"{prefix}-{node.id}" for node in self._plan.nodes}
        for node in self._plan.nodes:
            settings = broker_settings(self._plan, node, names)
            environment = to_environment(settings) | {"CLUSTER_ID": cluster_id, "KAFKA_HEAP_OPTS": "-Xmx384m"}
            container = BrokerContainer(image, self._network, names[node.id], node.port, environment)
            self._containers.append(container)
            container.start()
        self._wait_for({node.id for node in self._plan.nodes})

    def _wait_for(self, wanted: set[int]) -> None:
        """Return when a client sees all of `wanted`; fail with the logs when one has exited."""
        deadline = time.monotonic() + START_TIMEOUT
        admin = self.admin()
        while True:
            try:
                if wanted <= set(admin.list_topics(timeout=2.0).brokers):
                    return
            except KafkaException:
                pass  # not up yet; what follows watches for those that never will be
            for i in wanted:
                wrapped = self._containers[i - 1].get_wrapped_container()
                wrapped.reload()
                late = time.monotonic() > deadline
                if late or wrapped.status in ("exited", "dead"):
                    raise RuntimeError(f"broker {i} is {wrapped.status}:\n{self.broker_log(i)}")
            time.sleep(0.1)

    @property
    def bootstrap_servers(self) -> str:
        return self.client_config()["bootstrap.servers"]

    def client_config(self, user: str | None = None) -> dict[str, str]:
        host = self._containers[0].get_container_host_ip()
        servers = ",".join(f"{host}:{node.port}" for node in self._plan.nodes)
        return client_config(self._plan, user) | {"bootstrap.servers": servers}

    def kill_broker(self, i: int, sig: int = signal.SIGKILL) -> None:
        container = self._containers[i - 1].get_wrapped_container()
        container.kill(signal=signal.Signals(sig).name)
        if sig == signal.SIGKILL:
            container.wait(timeout=120)

    def start_broker(self, i: int) -> None:
        self._containers[i - 1].get_wrapped_container().start()
        self._wait_for({i})

    def broker_log(self, i: int) -> str:
        return str(self._containers[i - 1].get_wrapped_container().logs(tail=100).decode("utf-8", "replace"))

    def stop(self) -> None:
        for container in self._containers:
            if container.get_wrapped_container() is not None:
                container.stop(force=True, delete_volume=True)
        self._network.remove()


def broker_settings(plan: ClusterPlan, node: Node, names: Mapping[int, str]) -> dict[str, str]:
    """The local cluster's own settings, with the listeners that containers need: clients come through the
    published port of the host, brokers find each other by name."""
    settings = server_properties(plan, node, Path(DATA))
    protocol = "SASL_PLAINTEXT" if plan.users else "PLAINTEXT"
    listeners = {"CLIENT": CLIENT_PORT, "CONTROLLER": CONTROLLER_PORT, "INTERNAL": INTERNAL_PORT}
    name = names[node.id]
    host = docker_host()
    settings |= {
        "controller.quorum.voters": ",".join(f"{i}@{n}:{CONTROLLER_PORT}" for i, n in names.items()),
        "listeners": ",".join(f"{listener}://:{port}" for listener, port in listeners.items()),
        "advertised.listeners": f"CLIENT://{host}:{node.port},INTERNAL://{name}:{INTERNAL_PORT}",
        "listener.security.protocol.map": ",".join(f"{listener}:{protocol}" for listener in listeners),
        "inter.broker.listener.name": "INTERNAL",
    }
    if plan.users:
        login = settings["listener.name.client.plain.sasl.jaas.config"]
        settings["listener.name.internal.plain.sasl.jaas.config"] = login
    return settings


def docker_host() -> str:
    """Where published ports are reached."""
    from testcontainers.core.docker_client import DockerClient

    return str(DockerClient().host())


def to_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Broker properties as KAFKA_ variables. Both images write the value raw, so it is escaped here."""
    environment = {}
    for key, value in settings.items():
        name = key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
        environment[f"KAFKA_{name}"] = to_properties({"x": value}).rstrip("\n").partition("=")[2]
    return environment
