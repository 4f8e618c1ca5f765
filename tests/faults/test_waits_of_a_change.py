"""What a change waits for that is no writer: it says so, and gives up in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from faults.cluster import PATIENCE, FaultyCluster
from faults.proxy import Effect, Rule, Way
from keyorder import TopicAdmin
from keyorder.connector import clock
from keyorder.errors import ChangeLateError
from keyorder.partitioner.errors import WriterLateError
from support.groups import QUICK

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
    assert not isinstance(raised.value, WriterLateError)
    assert said in str(raised.value)
    assert any(said in step for step in told), told
    assert raised.value.retriable
    assert [str(warning.message) for warning in recwarn] == []
    deadline = clock.now() + PATIENCE
    while clock.now() < deadline:
        try:
            after = admin.expand(topic_name, 2).after
            break
        except ChangeLateError:
            continue
    assert after == 2
