"""A change beneath many live writers, some of which come and go while it is prepared."""

from __future__ import annotations

import os

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.benchmarks.crowd import Crowd
from support.cluster import KafkaUnderTest

WRITERS = int(os.environ.get("KEYORDER_WRITERS", "100"))
SHARE = max(1, WRITERS // 10)


@pytest.mark.kip("K903-06", "C-20")
def test_a_change_commits_while_writers_join_and_leave_during_prepare(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A tenth of them leaves and as many come between PREPARE and COMMIT; all that stay hear of the new layout."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, config={"keyorder.view.age.ms": "400"})
    with Crowd(kafka.client_config(), topic_name) as crowd, OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, b"before", b"key")
        crowd.join(WRITERS)
        crowd.await_that(lambda: crowd.live() == WRITERS, 120)
        seen: list[str] = []

        def progress(step: str) -> None:
            seen.append(step)
            if step == "collecting":  # PREPARE was read back, and nobody's READY has been counted yet
                crowd.leave(SHARE)
                crowd.join(SHARE)

        change = TopicAdmin(kafka.client_config(), progress).expand(topic_name, 6)

        assert change.changed
        assert change.after == 6
        assert seen.count("collecting") == change.attempts
        crowd.await_that(lambda: crowd.live() == crowd.knowing(6) == WRITERS, 60)
        assert len(admin.describe(topic_name).writers) == WRITERS + 1
        producer.produce(topic_name, b"after", b"key")
        assert producer.flush(120) == 0
