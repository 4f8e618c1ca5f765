"""kill -9 of the worker that leads: Kafka Connect's own runtime and ours, one after the other, with the same settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from keyorder import TopicAdmin
from keyorder.connector import clock
from support.cluster import KafkaUnderTest
from support.connect_jvm_worker import JvmWorker
from support.connect_rig import RestClient, group_settings, until
from support.connect_workers import WorkerGroup

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
TASKS = 6
SESSION = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "3000", "scheduled.rebalance.max.delay.ms": "0"}


def failover(
    rests: list[RestClient], leader: Callable[[], int], kill: Callable[[int], None], topic: str, folder: Path
) -> tuple[float, float]:
    """(seconds until the other worker takes a write, until all tasks run there), from the kill on."""
    settings = {"connector.class": "FileStreamSink", "topics": topic, "tasks.max": "1"}
    for number in range(TASKS):
        config = {**settings, "file": str(folder / f"out-{number}.txt")}
        rests[0].ok("PUT", f"/connectors/{topic}-{number}/config", config)
    for number in range(TASKS):
        rests[0].running(f"{topic}-{number}", 1)
    dead = leader()
    other = rests[1 - dead]
    since = clock.now()
    kill(dead)

    def written() -> bool:
        config = {**settings, "file": str(folder / "new.txt")}
        try:
            return other("PUT", f"/connectors/{topic}-new/config", config, timeout=5.0).is_success
        except httpx.TransportError:
            return False

    def there() -> bool:
        for number in range(TASKS):
            found = other("GET", f"/connectors/{topic}-{number}/status")
            tasks = found.json()["tasks"] if found.is_success else []
            if [(t["state"], t["worker_id"]) for t in tasks] != [("RUNNING", other.worker_id)]:
                return False
        return True

    until(written, "the other worker takes a write", 600)
    until_write = clock.now() - since
    until(there, "all tasks run there", 600)
    return until_write, clock.now() - since


@pytest.mark.parametrize("runtime", ["Kafka Connect", "keyorder"])
def test_the_leader_is_killed(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, runtime: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other worker leads, takes writes and runs all tasks. The times are printed, not judged."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with ExitStack() as stack:
        if runtime == "keyorder":
            settings = group_settings(kafka, f"g-{topic_name}") | SESSION
            group = stack.enter_context(WorkerGroup(settings, tmp_path, 2))
            # The lead may go over to the second one, when it joins; it never comes back while both live.
            times = failover(
                group.rests, lambda: int("leads from epoch" in group.log(1)), group.kill, topic_name, tmp_path
            )
        else:
            name = f"g-{topic_name}"
            more = {f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")}
            workers = []
            for number in range(2):
                folder = tmp_path / str(number)
                folder.mkdir()
                workers.append(JvmWorker(kafka, folder, **{"group.id": name}, **more, **SESSION))
                stack.callback(workers[-1].kill)

            def leader() -> int:
                said = re.findall(r"leaderUrl='(http://[^/']+)", workers[1].log())
                return [worker.url for worker in workers].index(said[-1])

            rests = [RestClient(worker.url) for worker in workers]
            times = failover(rests, leader, lambda number: workers[number].kill(), topic_name, tmp_path)
    with capsys.disabled():
        print(f"\n{runtime}: a write after {times[0]:.1f} s, {TASKS} tasks after {times[1]:.1f} s")
