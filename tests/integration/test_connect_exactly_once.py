"""Exactly-once source tasks: records and offsets in one transaction, and older runs fenced by newer ones (KIP-618)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from keyorder import TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.runtime.clients import transactional_id
from keyorder.connector.connect.runtime.launch import Parts, standalone
from keyorder.connector.connect.runtime.offsets import canonical, offset_key
from keyorder.connector.connect.runtime.tasks.source_task import WorkerSourceTask
from keyorder.connector.connect.runtime.tasks.task_base import State, TaskId, TaskSpec
from keyorder.partitioner.errors import ConfigError
from support.cluster import KafkaUnderTest
from support.connect_plugins import ThreesTask
from support.connect_rig import RestClient, committed_values, group_settings, until, worker_settings


def test_a_newer_run_fences_an_older_one(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The zombie's transaction fails, it becomes FAILED, and the newer run goes on behind what was committed."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    settings = group_settings(kafka, topic_name) | {
        "plugin.classes": "support.connect_plugins:CounterSource",
        "exactly.once.source.support": "enabled",
    }
    with WorkerProcess(settings, in_group=True) as process:
        rest = RestClient(process.url)
        rest.ok(
            "POST",
            "/connectors",
            {"name": topic_name, "config": {"connector.class": "CounterSource", "topic": topic_name}},
        )
        rest.running(topic_name, 1)
        worker = process.operations.herder.worker
        zombie = worker._tasks[topic_name, 0]
        assert isinstance(zombie, WorkerSourceTask)
        until(
            lambda: zombie.metrics.snapshot().get("offset_commit_completed_total", 0) > 3, "transactions are committed"
        )
        states: list[State] = []
        spec = TaskSpec(
            **{**{f: getattr(zombie.spec, f) for f in TaskSpec.__dataclass_fields__}, "id": TaskId(topic_name, 0, 99)}
        )
        newer = WorkerSourceTask(
            spec,
            worker.plugins,
            worker.offsets,
            settings["offset.storage.topic"],
            lambda i, s, t: states.append(s),
            str,
        )
        newer.start()
        until(lambda: rest.states(topic_name)[1] == ["FAILED"], "the older run has failed")
        assert "TransactionError" in rest.ok("GET", f"/connectors/{topic_name}/tasks/0/status")["trace"]
        until(lambda: newer.metrics.snapshot().get("offset_commit_completed_total", 0) > 3, "the newer run goes on")
        newer.stopping.set()
        newer.join(120)
        assert states == [State.RUNNING, State.UNASSIGNED]
        rest.ok("PUT", f"/connectors/{topic_name}/stop")

    numbers = sorted(int(value.split()[1]) for value in committed_values(kafka, topic_name))
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 30


def test_a_transaction_that_its_task_aborts_is_dropped_and_not_polled_again(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """Its records are on their way yet, so that the client drops them; its offsets are stored, and the task goes on."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    settings = group_settings(kafka, topic_name) | {
        "plugin.classes": "support.connect_plugins:AbortingSource",
        "exactly.once.source.support": "enabled",
    }
    config = {
        "connector.class": "AbortingSource",
        "topic": topic_name,
        "transaction.boundary": "connector",
        "producer.override.linger.ms": "1000",
    }
    with WorkerProcess(settings, in_group=True) as process:
        rest = RestClient(process.url)
        rest.ok("POST", "/connectors", {"name": topic_name, "config": config})
        path = f"/connectors/{topic_name}"

        def offsets() -> list[Any]:
            assert "FAILED" not in rest.states(topic_name)[1], rest.ok("GET", f"{path}/tasks/0/status")
            return [each["offset"] for each in rest.ok("GET", f"{path}/offsets")["offsets"]]

        until(lambda: offsets() == [{"next": 4}], lambda: f"all four are polled: {offsets()}")
        rest.running(topic_name, 1)
    assert committed_values(kafka, topic_name) == ["0 0", "0 2"]


def test_a_transaction_that_its_task_has_not_ended_is_committed_by_nothing_else(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a pause, and not by a stop, which drops it. The task hears of its records when they are committed."""
    monkeypatch.setattr(ThreesTask, "allowed", 2)
    monkeypatch.setattr(ThreesTask, "told", [])
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    settings = group_settings(kafka, topic_name) | {
        "plugin.classes": "support.connect_plugins:ThreesSource",
        "exactly.once.source.support": "enabled",
    }
    config = {"connector.class": "ThreesSource", "topic": topic_name, "transaction.boundary": "connector"}
    with WorkerProcess(settings, in_group=True) as process:
        rest, path = RestClient(process.url), f"/connectors/{topic_name}"

        def acknowledged(count: int) -> None:
            metrics = process.operations.herder.worker._tasks[topic_name, 0].metrics
            until(lambda: metrics.snapshot().get("source_record_write_total") == count, f"{count} are acknowledged")

        rest.ok("POST", "/connectors", {"name": topic_name, "config": config})
        rest.running(topic_name, 1)
        acknowledged(2)
        rest.ok("PUT", f"{path}/pause")
        until(lambda: rest.states(topic_name) == ("PAUSED", ["PAUSED"]), "it is paused")
        rest.ok("PUT", f"{path}/resume")
        rest.running(topic_name, 1)
        assert (committed_values(kafka, topic_name), ThreesTask.told) == ([], [])

        monkeypatch.setattr(ThreesTask, "allowed", 5)
        acknowledged(5)
        whole = ["0 0", "0 1", "0 2"]
        until(lambda: ThreesTask.told == whole, lambda: f"the first three are committed: {ThreesTask.told}")
        rest.ok("PUT", f"{path}/stop")
        until(lambda: rest.states(topic_name) == ("STOPPED", []), "it is stopped")
        assert [each["offset"] for each in rest.ok("GET", f"{path}/offsets")["offsets"]] == [{"next": 3}]
        assert (committed_values(kafka, topic_name), ThreesTask.told) == (whole, whole)

        monkeypatch.setattr(ThreesTask, "allowed", 6)
        rest.ok("PUT", f"{path}/resume")
        whole = [*whole, "0 3", "0 4", "0 5"]
        until(lambda: ThreesTask.told == whole, lambda: f"all six are committed: {ThreesTask.told}")
        assert committed_values(kafka, topic_name) == whole


def test_offsets_of_a_source_are_read_set_and_guarded(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Going back is refused by the connector; a reset begins anew; initial offsets are where a new one begins."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    (tmp_path / "in").write_text("1\n2\n3\n")
    config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in"), "topic": topic_name}
    with WorkerProcess(
        worker_settings(kafka, tmp_path) | {"listeners": "http://127.0.0.1:0"}, in_group=False
    ) as process:
        rest, path = RestClient(process.url), f"/connectors/{topic_name}/offsets"
        place = {"filename": str(tmp_path / "in")}
        first = [{"partition": place, "offset": {"position": 2}}]
        made = rest("POST", "/connectors", {"name": topic_name, "config": config, "initial_offsets": first})
        assert made.status_code == 201, made.text
        until(
            lambda: rest.ok("GET", path)["offsets"] == [{"partition": place, "offset": {"position": 6}}], "all is read"
        )
        assert committed_values(kafka, topic_name) == ["2", "3"]
        rest.ok("PUT", f"/connectors/{topic_name}/stop")
        until(lambda: rest.states(topic_name) == ("STOPPED", []), "it is stopped")
        refused = rest("PATCH", path, {"offsets": first})
        assert refused.status_code == 400
        assert "DELETE" in refused.json()["message"]
        other = [{"partition": {"filename": str(tmp_path / "other")}, "offset": {"position": 1}}]
        assert rest("PATCH", path, {"offsets": other}).status_code == 200
        # As Kafka Connect: what is no file's can be let go of, and not be set.
        for offset, status in (({"position": 1}, 400), (None, 200)):
            assert rest("PATCH", path, {"offsets": [{"partition": {"x": 1}, "offset": offset}]}).status_code == status
        assert rest("DELETE", path).status_code == 200
        assert rest.ok("GET", path) == {"offsets": []}


@pytest.mark.parametrize("method", ["DELETE", "PATCH"])
def test_offsets_that_were_changed_stay_though_an_old_task_comes_back(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, method: str
) -> None:
    """A task whose worker stood still has a transaction open: it can commit nothing after the change (KIP-875)."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    (tmp_path / "in").write_text("1\n2\n3\n")
    settings = group_settings(kafka, topic_name) | {"exactly.once.source.support": "enabled"}
    config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in"), "topic": topic_name}
    place = {"filename": str(tmp_path / "in")}

    def at(position: int) -> list[Any]:
        return [{"partition": place, "offset": {"position": position}}]

    with WorkerProcess(settings, in_group=True) as process:
        rest, path = RestClient(process.url), f"/connectors/{topic_name}/offsets"
        rest.ok("POST", "/connectors", {"name": topic_name, "config": config})
        until(lambda: rest.ok("GET", path)["offsets"] == at(6), "all is read")
        rest.ok("PUT", f"/connectors/{topic_name}/stop")
        until(lambda: rest.states(topic_name) == ("STOPPED", []), "it is stopped")

        own = {"transactional.id": transactional_id(settings["group.id"], topic_name, 0)}
        old = Producer({**kafka.client_config(), **own})
        old.init_transactions(120)
        old.begin_transaction()
        old.produce(topic_name, "late")
        old.flush(120)
        rest.ok(method, path, {"offsets": at(100)} if method == "PATCH" else None)
        old.produce(settings["offset.storage.topic"], canonical({"position": 9}), offset_key(topic_name, place))
        with pytest.raises(KafkaException, match=r"(?i)fenced|epoch"):
            old.commit_transaction(120)
        assert rest.ok("GET", path)["offsets"] == (at(100) if method == "PATCH" else [])
    assert committed_values(kafka, topic_name) == ["1", "2", "3"]


def test_a_standalone_worker_refuses_exactly_once(kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """Its offsets are in a file, which no transaction of Kafka's holds."""
    with pytest.raises(ConfigError, match=r"exactly\.once"):
        standalone(Parts.of(worker_settings(kafka, tmp_path) | {"exactly.once.source.support": "enabled"}, False), "")
