"""Brokers that want to know who comes, one for each test file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from keyorder import TopicAdmin
from support.cluster import ClusterSpec, KafkaUnderTest
from support.rights import SECRET
from support.tls import PASSWORD, TlsKafka


@pytest.fixture(scope="module")
def tls(
    start_kafka: object, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsKafka]:
    """A broker behind TLS, with the user `app`."""
    started = TlsKafka(tmp_path_factory.mktemp("tls"), "app", PASSWORD, pytestconfig.getoption("--kafka-version"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def guarded(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker with an authoriser, with the users `root` and `app`, and control topics that are there."""
    started = start_kafka(ClusterSpec(1, {"root": "root-secret", "app": SECRET}))
    TopicAdmin(started.client_config()).create("first", 1)
    yield started
    started.stop()
