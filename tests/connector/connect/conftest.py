"""A group of two workers, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from keyorder import TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, await_leader, group_settings, until


@pytest.fixture(scope="session")
def group(kafka: KafkaUnderTest) -> Iterator[tuple[RestClient, RestClient]]:
    """(leader, follower) of two workers."""
    plugins = "support.connect_rig:MemorySink,support.connect_plugins:CounterSource"
    settings = group_settings(kafka, "rest-test") | {"plugin.classes": plugins}
    with WorkerProcess(settings, in_group=True) as one:
        until(lambda: one.operations.herder.leading, "the first worker leads")
        with WorkerProcess(settings, in_group=True) as two:
            # Whoever comes may take the lead; wait until both agree on one of them.
            def agreed() -> bool:
                herders = [w.operations.herder for w in (one, two)]
                leaders = [h for h in herders if h.leading]
                return (
                    len(leaders) == 1
                    and len(leaders[0].membership.members() or ()) == 2
                    and all(h.state.assignment.leader == leaders[0].membership.member for h in herders)
                )

            until(agreed, "one of them leads")
            leader, follower = (one, two) if one.operations.herder.leading else (two, one)
            await_leader(leader.url)
            await_leader(follower.url)
            yield RestClient(leader.url), RestClient(follower.url)


@pytest.fixture(params=["leader", "follower"])
def rest(request: pytest.FixtureRequest, group: tuple[RestClient, RestClient]) -> RestClient:
    """Each of the two: a follower forwards what only the leader can do."""
    return group[0] if request.param == "leader" else group[1]


@pytest.fixture
def topic(kafka: KafkaUnderTest, topic_name: str) -> str:
    """A managed topic of two partitions."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    return topic_name
