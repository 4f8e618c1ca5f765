"""Fixtures and options that every test may use.

    kafka           one broker for the whole run: tests share it and take a topic name of their own
    quick_groups    a broker on which silent members are given up soon, for one file
    kafka3          three brokers for the whole run; a test that kills one starts it again
    kafka_factory   special clusters for one test: kafka_factory(brokers=1, users=..., properties=...)
    postgres        one PostgreSQL for the whole run: tests take table names of their own
    topic_name      a topic name that no other test has

A test that uses a broker, Spark or PostgreSQL, through whatever fixture, bears the marker `kafka` by itself.

Tests run in several processes (`make test`), a whole file in one of them: each process has brokers of its own.
"""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from keyorder.connector.local.versions import DEFAULT_KAFKA_VERSION
from support.broker_files import needs_services
from support.cluster import ClusterSpec, KafkaFactory, KafkaUnderTest, ProcessKafka
from support.second_look import SecondLook
from support.tiers import Tiers

SERVICE_FIXTURES = {"start_kafka", "spark", "postgres", "judge", "registry"}

# Fixtures whose tests take longest: their files are dealt out first.
SLOW_FIXTURES = {"spark", "kafka3", "postgres"}


# How fast an example is tested is nobody's business here: the machine may be busy.
settings.register_profile("keyorder", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("keyorder")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the brokers come from and which they are."""
    group = parser.getgroup("kafka")
    group.addoption(
        "--kafka-supplier",
        choices=("process", "docker"),
        default="process",
        help="brokers as processes of this machine (default) or as containers",
    )
    group.addoption("--kafka-version", default=DEFAULT_KAFKA_VERSION, help="Kafka version (%(default)s)")
    group.addoption(
        "--kafka-image",
        default=None,
        help="container image, such as apache/kafka:4.1.2; by default the one built from docker/Dockerfile",
    )
    group.addoption(
        "--second-look",
        action="store_true",
        help="run up to eight tests that failed beside others again, alone",
    )
    group.addoption(
        "--without-services",
        action="store_true",
        help='pass by files of which -m "not kafka" would leave nothing',
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --without-services: what needs one in each of its tests is not even read. `-m "not kafka"` leaves out the rest."""
    if not config.getoption("--without-services") or not collection_path.match("test_*.py"):
        return None
    return needs_services(collection_path.read_text(encoding="utf-8")) or None


def pytest_configure(config: pytest.Config) -> None:
    """Markers that belong to the fixtures of this file."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in `make test &`. What a test starts would ignore it too, and some are ended by it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "process_supplier(reason): works on processes of this machine and not on containers"
    )
    if config.getoption("--second-look") and not hasattr(config, "workerinput"):
        options = [f"{name}={config.getoption(name)}" for name in ("--kafka-supplier", "--kafka-version")]
        config.pluginmanager.register(SecondLook(options, config.rootpath))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the users of brokers, and skip what the chosen supplier cannot do."""
    containers = config.getoption("--kafka-supplier") == "docker"
    tiers = Tiers()
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        if SERVICE_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)
        for marker in tiers.of(path, item):
            item.add_marker(marker)
        bound = item.get_closest_marker("process_supplier")
        if containers and bound is not None:
            reason = bound.args[0] if bound.args else "looks at the broker's process"
            item.add_marker(pytest.mark.skip(reason=f"not on containers: {reason}"))
    # A file is one unit of work: begun last, a slow one would keep one process busy while the others have nothing left.
    items.sort(key=_cost, reverse=True)


def _cost(item: pytest.Item) -> int:
    used = getattr(item, "fixturenames", ())
    return 2 * bool(SLOW_FIXTURES.intersection(used)) + bool(SERVICE_FIXTURES.intersection(used))


@pytest.fixture(scope="session")
def start_kafka(pytestconfig: pytest.Config) -> Callable[[ClusterSpec], KafkaUnderTest]:
    """Starts a cluster of the chosen supplier, version and image. The caller stops it."""
    version: str = pytestconfig.getoption("--kafka-version")
    if pytestconfig.getoption("--kafka-supplier") == "process":
        return lambda spec: ProcessKafka(spec, version)
    from support.docker_cluster import DockerKafka, broker_image

    image = pytestconfig.getoption("--kafka-image") or broker_image(version)
    return lambda spec: DockerKafka(spec, image)


def _session_cluster(start: Callable[[ClusterSpec], KafkaUnderTest], brokers: int) -> Iterator[KafkaUnderTest]:
    started = start(ClusterSpec(brokers))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kafka(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """One broker, shared by all tests of the run."""
    yield from _session_cluster(start_kafka, 1)


@pytest.fixture(scope="module")
def quick_groups(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker on which a silent KIP-848 member is given up as soon as one of the classic protocol."""
    properties = {
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
    }
    started = start_kafka(ClusterSpec(1, {}, properties))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kafka3(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """Three brokers, shared by all tests of the run."""
    yield from _session_cluster(start_kafka, 3)


@pytest.fixture
def kafka_factory(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaFactory]:
    """Special clusters for one test."""
    factory = KafkaFactory(start_kafka)
    yield factory
    factory.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """One PostgreSQL, shared by all tests of the run."""
    from support.postgres import Postgres

    started = Postgres()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session of two local cores, shared by all tests of the run."""
    from support.spark_session import start_spark

    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def no_query_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails leaves the next one of its Spark no query of its own."""
    session = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    for query in session.streams.active if session is not None else ():
        query.stop()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name of this test alone; the test's own name is in it, for the reader of a broker's log."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")[:60]
    return f"{readable}-{uuid.uuid4().hex[:8]}"
