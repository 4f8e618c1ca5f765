"""What a change waits for that is no writer: it says so, and gives up in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from faults.cluster import PATIENCE, FaultyCluster
from faults.proxy import Effect, Rule, Way
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.errors import ChangeLateError, ControllerFencedError
from support.groups import QUICK
from support.holding import until

pytestmark = [pytest.mark.kafka, pytest.mark.process_supplier("a broker behind a proxy")]


@pytest.fixture(scope="module")
def broker() -> Iterator[FaultyCluster]:
    with FaultyCluster(brokers=1) as kafka:
        yield kafka


@contextmanager
def held(broker: FaultyCluster, request: str) -> Iterator[Rule]:
    """No request of this kind reaches the broker."""
    rule = Rule(Effect.HOLD, Way.REQUEST, frozenset({request}))
    broker.network.apply([rule])
    try:
        yield rule
    finally:
        broker.network.lift([rule])


@pytest.mark.parametrize(
    ("request_", "said"),
    [("InitProducerId", "transactional id keyorder-controller-"), ("WriteTxnMarkers", "PLAN of epoch 1 in _keyorder[")],
    ids=["its id is not given", "its record does not show"],
)
def test_a_silent_coordinator_ends_a_change_in_time(
    broker: FaultyCluster, topic_name: str, recwarn: pytest.WarningsRecorder, request_: str, said: str
) -> None:
    """The error is no writer's and names what was waited for, as progress did before; the same call again succeeds."""
    told: list[str] = []
    admin = TopicAdmin(broker.client_config(), told.append)
    admin.create(topic_name, 1, config=QUICK)

    with held(broker, request_) as rule, pytest.raises(ChangeLateError) as raised:
        admin.expand(topic_name, 2, timeout=5)

    assert len(rule.hits) > 0
    assert raised.value.writers == ()
    assert said in str(raised.value)
    assert any(said in step for step in told), told
    assert raised.value.retriable
    assert [str(warning.message) for warning in recwarn] == []
    deadline = clock.now() + PATIENCE
    while clock.now() < deadline:
        try:
            after = admin.expand(topic_name, 2).after
            break
        except (ChangeLateError, ControllerFencedError):  # a request held before may arrive late, and takes the id away
            continue
    assert after == 2


def test_a_writer_whose_fetch_is_not_answered_gets_ready_all_the_same(broker: FaultyCluster, topic_name: str) -> None:
    """With its renewals it sees that the logs went on, and it reads by another connection what the fetch has not brought."""
    config = broker.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    patient = {"client.id": "patient", "socket.timeout.ms": 300_000, "keyorder.lease.renew.interval.ms": 1_000}
    silent = Rule(Effect.HOLD, Way.ANSWER, frozenset({"Fetch"}), "patient", limit=1)
    with OrderedProducer({**config, **patient}) as producer:
        producer.produce(topic_name, b"v", "k")
        assert producer.flush(PATIENCE) == 0
        broker.network.apply([silent])
        until(lambda: len(silent.hits) == 1)

        assert admin.expand(topic_name, 2).after == 2

        assert len(silent.hits) == 1
        broker.network.lift([silent])
