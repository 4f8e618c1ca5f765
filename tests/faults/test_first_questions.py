"""What a client that has just been made asks first, while it goes over from the address that it was given to the brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from faults.cluster import FaultyCluster
from faults.proxy import Effect, Rule, Way
from keyorder import TopicAdmin
from keyorder.connector.admin_link import AdminLink
from keyorder.connector.control.control_topics import timeline_slot
from support.groups import QUICK
from support.holding import until

pytestmark = [pytest.mark.kafka, pytest.mark.process_supplier("a broker behind a proxy")]


@pytest.fixture(scope="module")
def broker() -> Iterator[FaultyCluster]:
    with FaultyCluster(brokers=1) as kafka:
        yield kafka


def test_an_admin_client_that_changes_its_connection_answers_the_first_question(
    broker: FaultyCluster, topic_name: str
) -> None:
    """The library loses what it has asked on the first connection when the brokers become known, and asks again a second later.

    A look at the ends of control logs is given up after that second. Five are tried, since a busy machine may take it too.
    """
    TopicAdmin(broker.client_config()).create(topic_name, 1, config=QUICK)

    assert any(answered(broker, topic_name) for _ in range(5))


def answered(broker: FaultyCluster, topic: str) -> bool:
    """Whether a new client answers a question that it is asked while it hears of the brokers, far away."""
    link = AdminLink({**broker.client_config(), "client.id": "new"})
    slow = Rule(Effect.DELAY, Way.ANSWER, frozenset({"Metadata"}), "new", amount=0.2, limit=1)
    far = Rule(Effect.DELAY, Way.ANSWER, None, "new", amount=0.03)
    broker.network.apply([slow, far])
    try:
        _ = link.client  # connects
        until(lambda: len(slow.hits) == 1)
        return link.stable_ends([timeline_slot(topic)], timeout=1.0) is not None
    finally:
        broker.network.lift([slow, far])
        link.close()
