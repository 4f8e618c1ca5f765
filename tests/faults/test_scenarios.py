"""Each fault by itself, in a phase of a change in which it matters: nothing lost, reordered, or repeated against the rules.

`make jepsen` strikes all of them in all phases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.campaign import Episode, play
from faults.cluster import PATIENCE, FaultyCluster
from faults.nemesis import FAULTS
from faults.proxy import Effect, Rule, Way
from faults.reassign import lead_elsewhere
from faults.workloads import Load
from keyorder.connector import clock
from keyorder.partitioner.errors import TruncationError
from keyorder.partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC
from support.workload import Workload, assert_in_order

# Where it surely does something: a request has to be asked for in that phase.
AIMS = {
    "hold-EndTxn": "preparing",
    "lose-EndTxn": "preparing",
    "hold-ListOffsets": "cutting",
    "lose-ListOffsets": "cutting",
    "controller-kill": "committing",
    "reader-kill": "hand-over",
    "reader-stop": "hand-over",
    "reader-cut-off": "hand-over",
    "hold-OffsetCommit": "hand-over",
    "lose-OffsetCommit": "hand-over",
    "hold-OffsetFetch": "hand-over",
    "lose-OffsetFetch": "hand-over",
}
# Asked once at a client's start, or by chance: a campaign strikes them, a single round may not.
RARE = {
    "hold-FindCoordinator",
    "lose-FindCoordinator",
    "hold-InitProducerId",
    "lose-InitProducerId",
    "lose-OffsetFetch",
}

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.process_supplier("brokers behind proxies")]


@pytest.fixture(scope="module")
def brokers() -> Iterator[FaultyCluster]:
    with FaultyCluster() as kafka:
        kafka.await_full_isr()
        yield kafka


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in RARE])
def test_a_change_survives(brokers: FaultyCluster, tmp_path: Path, fault: str) -> None:
    """The change is done, everybody gets on, and the history is good; and the fault has really struck."""
    episode = Episode("plain", 1, [(fault, AIMS.get(fault, "collecting"))])
    play(brokers, tmp_path, episode)

    assert not episode.wrong, episode.wrong
    assert [blow.touched > 0 for blow in episode.rounds[0].blows] == [True]
    assert episode.rounds[0].phases


@pytest.mark.timeout(1500)
def test_brokers_are_upgraded_one_by_one_while_the_topic_grows_and_shrinks(tmp_path: Path) -> None:
    """3.9, 4.1, 4.3: each broker in turn, with a change after each of them, and clients that go on."""
    counts = iter((6, 4, 8, 5, 9, 7))
    with FaultyCluster(version="3.9.2") as kafka:
        kafka.await_full_isr()
        with Load(kafka, tmp_path, "upgraded", "plain", 1) as load:
            for version in ("4.1.2", "4.3.1"):
                for broker in (1, 2, 3):
                    kafka.upgrade(broker, version)
                    kafka.await_full_isr()
                    assert load.run.resize(next(counts)) == 0
                    load.await_progress()
            verdict, _ = load.finish()

    assert_in_order(verdict)
    assert verdict.keys_moved > 100


def test_an_unclean_election_is_found_and_named(tmp_path: Path) -> None:
    """Followers fall behind, records are acknowledged by the leader alone, and it dies: a change says what is missing."""
    settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    with (
        FaultyCluster(properties={"replica.lag.time.max.ms": "3000"}) as kafka,
        Workload(kafka, tmp_path, "unclean", 2, replication_factor=3, config=settings) as run,
    ):
        kafka.await_full_isr()
        early = run.writer("w1", rate=400, keys=50, count=500, config={"client.id": "w1"})
        early.expect("finished")
        leader = kafka.leader("unclean", 0)
        for control in (CONTROL_TOPIC, WRITERS_TOPIC):
            lead_elsewhere(kafka, control, leader)  # the leases of writers need their replicas
        behind = Rule(Effect.HOLD, Way.REQUEST, frozenset({"Fetch"}), "broker-.-fetcher-.*", frozenset({leader}))
        kafka.network.apply([behind])
        # It stays, and remembers what was acknowledged: by the leader alone, once its followers count as behind.
        late = run.writer("w2", rate=400, keys=50, count=500, linger=True, config={"client.id": "w2"})
        assert late.expect("finished")["left"] == 0
        assert in_sync(kafka, "unclean", 0) == [leader]
        end = run.ends()[0]
        kafka.kill_broker(leader)
        kafka.network.lift([behind])
        await_that(lambda: kafka.leader("unclean", 0) not in (leader, -1))
        kafka.start_broker(leader)
        kafka.await_full_isr()
        assert run.ends()[0] < end

        with pytest.raises(TruncationError) as found:
            run.admin.expand("unclean", 3)

        late.process.communicate(timeout=120)
        lost = run.verdict()

    assert (found.value.topic, found.value.partition) == ("unclean", 0)
    assert lost.lost_in_log == end - found.value.high_watermark > 0


def in_sync(kafka: FaultyCluster, topic: str, partition: int) -> list[int]:
    """The replicas of a partition that are in sync."""
    return list(kafka.admin().list_topics(topic, timeout=120).topics[topic].partitions[partition].isrs)


def await_that(holds: Callable[[], bool]) -> None:
    """Return when it holds."""
    deadline = clock.now() + PATIENCE
    while not holds():
        assert clock.now() < deadline
        time.sleep(0.2)
