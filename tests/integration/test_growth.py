"""Growth under load on real brokers, judged by the history checker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.crash import CONTROLLER_STEPS
from support.cluster import KafkaUnderTest
from support.workload import Workload, assert_in_order

# A controller leaves twice this between two commits; the default of two seconds is for real networks.
QUICK = {"keyorder.view.age.ms": "400"}


@pytest.mark.kip("K253-01", "K253-13", "K253-28")
def test_grows_under_load_with_a_member_joining_and_one_killed(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Two writers and a changing group see 4 -> 6 -> 9 -> 16 without a lost, reordered or repeated record."""
    with Workload(kafka, tmp_path, topic_name) as run:
        run.consumer("c1", "g", work_s=0.0002)
        doomed = run.consumer("c2", "g", work_s=0.0002)
        run.writer("w1", shared_keys=["hot"], seed=1)
        run.writer("w2", shared_keys=["hot"], seed=2)
        assert run.expand(6) == 0
        run.consumer("c3", "g", work_s=0.0002)
        assert run.expand(9) == 0
        run.kill(doomed)
        assert run.expand(16) == 0

        verdict = run.finish()

        assert_in_order(verdict)
        assert verdict.keys_moved > 50


@pytest.mark.kip("K253-24")
def test_partitions_that_somebody_else_adds_stay_unused_until_a_layout_names_them(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """By Kafka's own tool: no record goes there, with a key or without, before the topic is expanded to them."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    cluster = kafka.admin()
    cluster.create_partitions([NewPartitions(topic_name, 4)])[topic_name].result(120)
    with OrderedProducer({**kafka.client_config(), "linger.ms": 0}) as producer:

        def used() -> set[int | None]:
            """Where records go now."""
            partitions: set[int | None] = set()
            for number in range(40):
                for key in (f"k{number}", None):
                    producer.produce(topic_name, b"v", key, on_delivery=lambda _, m: partitions.add(m.partition()))
                assert producer.flush(120) == 0
            return partitions

        assert used() == {0, 1}
        assert admin.expand(topic_name, 4).changed
        assert used() == {0, 1, 2, 3}
    assert dict(admin.describe(topic_name).epochs[-1].begins) == {2: 0, 3: 0}


@pytest.mark.kip("K253-29")
def test_controller_killed_at_every_step_resumes(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Whatever step a controller dies at, the same command given again finishes the change, in order."""
    with Workload(kafka, tmp_path, topic_name, partitions=2, config=QUICK) as run:
        run.consumer("c1", "g")
        run.consumer("c2", "g")
        run.writer("w1", rate=400, keys=100)
        count = 2
        for step in CONTROLLER_STEPS:
            count += 1
            died = run.expand(count, env={**os.environ, "KEYORDER_CRASH_AT": step})
            if step != "abort-sent":  # only a resumed change gives an attempt up
                assert died == -9, f"{step} was not reached"
            assert run.expand(count) == 0
            assert run.admin.describe(topic_name).layout.count == count

        assert_in_order(run.finish())


@pytest.mark.kip("K253-29")
def test_controller_killed_while_it_gives_an_attempt_up(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """A controller that dies inside the ABORT of its predecessor's attempt leaves nothing half-done either."""
    with Workload(kafka, tmp_path, topic_name, partitions=2, config=QUICK) as run:
        run.consumer("c1", "g")
        run.writer("w1", rate=400, keys=100)
        assert run.expand(3, env={**os.environ, "KEYORDER_CRASH_AT": "prepare-written"}) == -9
        assert run.expand(3, env={**os.environ, "KEYORDER_CRASH_AT": "abort-sent"}) == -9
        assert run.expand(3) == 0

        assert_in_order(run.finish())


@pytest.mark.nightly
@pytest.mark.kip("K253-01")
def test_a_group_far_behind_when_two_growths_happen(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """100 000 records of backlog across two growths reach a group that starts later, in order."""
    with Workload(kafka, tmp_path, topic_name) as run:
        run.writer("w1", rate=50_000, count=40_000, keys=500, linger=True).expect("finished")
        assert run.expand(6) == 0
        run.writer("w2", rate=50_000, count=30_000, keys=500, linger=True).expect("finished")
        assert run.expand(9) == 0
        run.writer("w3", rate=50_000, count=30_000, keys=500, linger=True).expect("finished")
        assert sum(run.ends().values()) == 100_000
        run.consumer("c1", "g", batch=500)
        run.consumer("c2", "g", batch=500)
        run.drain()

        verdict = run.verdict(quiesced=False)

        assert_in_order(verdict)
        assert verdict.records == 100_000
