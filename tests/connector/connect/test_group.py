"""What a group's leader decides and what its workers tell, on logs in memory: connectors and workers that come, fail and go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest
from keyorder.connector.connect import ConfigDef, ConnectError, SourceConnector, SourceTask
from keyorder.connector.connect.runtime.group.herder import Herder
from keyorder.connector.connect.runtime.group.leader import Leader
from keyorder.connector.connect.runtime.group.membership import Membership
from keyorder.connector.connect.runtime.group.place import WorkerPlace
from keyorder.connector.connect.runtime.group.state import ClusterState
from keyorder.connector.connect.runtime.group.stores import MemoryLog, Statuses
from keyorder.connector.connect.runtime.kafka_log import Update
from keyorder.connector.connect.runtime.launch import Parts
from keyorder.connector.connect.runtime.offsets import FileOffsetStore
from keyorder.connector.connect.runtime.tasks.task_base import StateListener
from keyorder.connector.connect.runtime.worker import Worker
from keyorder.errors import BrokerUnreachableError
from support.connect_rig import PATIENCE, MemorySink, until


class Unavailable(MemorySink):
    """Its other side can be reached, or not."""

    reachable = True

    def start(self, config: dict[str, str]) -> None:
        if not self.reachable:
            raise ConnectError("the other side is away")
        super().start(config)


class Torn(SourceConnector):
    """Its code fails where `fails` says."""

    fails = ""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef()

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        if cls.fails == "task_class":
            raise AttributeError("no such attribute")
        return SourceTask

    def start(self, config: dict[str, str]) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{"number": str(n)} for n in range(max_tasks)]

    def exactly_once_support(self, config: dict[str, str]) -> bool:
        if self.fails == "exactly_once_support":
            raise KeyError("a setting")
        return False


class Passing(Torn):
    """Gives its task its own settings, and `more`."""

    more: ClassVar[dict[str, str]] = {}
    running: ClassVar[list[Passing]] = []

    def start(self, config: dict[str, str]) -> None:
        super().start(config)
        self.running.append(self)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{**self._config, **self.more}]


class Hanging(Torn):
    """One of its methods does not return before `gate` is open."""

    hangs = ""
    gate = Event()
    calls: ClassVar[list[str]] = []

    def _call(self, method: str) -> None:
        self.calls.append(method)
        if self.hangs == method:
            self.gate.wait()
        self.calls.append(f"{method} ends")

    def start(self, config: dict[str, str]) -> None:
        self._call("start")

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        self._call("task_configs")
        return []

    def stop(self) -> None:
        self._call("stop")


class Member(Membership):
    """A worker that should lead. seen: who is in the group."""

    leads = True

    def __init__(self, member: str, seen: set[str] | None) -> None:
        self.member, self.seen = member, seen

    def members(self) -> set[str] | None:
        return self.seen


class RefusingLog(MemoryLog):
    """Its broker is away for records of the kinds `refused`: for the first one, or for all."""

    def __init__(self, apply: Update, refused: Sequence[str]) -> None:
        super().__init__(apply)
        self.refused, self.once, self.met = set(refused), True, Event()

    def write(self, records: Mapping[str, bytes | None]) -> None:
        met = {key.partition(":")[0] for key in records} & self.refused
        if met:
            self.refused -= met if self.once else set()
            self.met.set()
            raise BrokerUnreachableError("127.0.0.1:1", "write to topic status")
        super().write(records)


class Group:
    """What the workers of one group share, and a leader for each that leads in turn."""

    def __init__(self, settings: dict[str, str], refused: Sequence[str] = ()) -> None:
        self.parts = Parts.of(settings, distributed=False)
        self.state, self.known = ClusterState(), Statuses()
        self.leaders: list[Leader] = []
        self.configs, self.statuses = MemoryLog(self.state.apply), RefusingLog(self.known.apply, refused)

    def place(self, member: str, seen: set[str] | None) -> WorkerPlace:
        """A worker's place."""
        parts, membership = self.parts, Member(member, seen)
        return WorkerPlace(
            member, "", parts.settings, parts.parsed, self.state, self.configs, self.known, self.statuses, membership
        )

    def worker(self, listener: StateListener = lambda *_: None) -> Worker:
        """What runs the tasks of a worker."""
        parts, offsets = self.parts, FileOffsetStore(Path(self.parts.parsed["offset.storage.file.filename"]))
        return Worker(parts.settings, parts.parsed, parts.plugins, parts.resolver, offsets, None, "", listener)

    def leader(self, member: str = "one", seen: set[str] | None = None) -> Leader:
        """A worker that has just been given the lead."""
        self.leaders.append(Leader(self.place(member, seen), self.worker(), lambda: None))
        return self.leaders[-1]

    def settled(self, leader: Leader) -> str:
        """The state that connector c has under a leader when it is decided."""

        def state() -> str | None:
            leader.turn()
            found = self.known.connectors["c"].state
            return None if found == "UNASSIGNED" else found

        found: str = until(state, "the connector runs or has failed")
        return found

    @contextmanager
    def herder(self) -> Iterator[Herder]:
        """A worker that is alone in its group, and at work."""
        herder = Herder(self.place("one", {"one"}), self.worker)
        herder.start()
        try:
            yield herder
        finally:
            herder.stop()

    def configure(self, name: str, **more: str) -> None:
        """PUT /connectors/name/config."""
        config = {"connector.class": "MemorySink", "name": name, "topics": "t", **more}
        self.configs.write({f"connector-{name}": json.dumps({"properties": config}).encode()})


MakeGroup = Callable[..., Group]


@pytest.fixture
def make_group(tmp_path: Path) -> Iterator[MakeGroup]:
    """Groups of workers that reach no broker. refused: kinds of states that cannot be written."""
    made: list[Group] = []

    def make(refused: Sequence[str] = (), **more: str) -> Group:
        own = ",".join(f"{__name__}:{kind.__name__}" for kind in (Unavailable, Torn, Passing, Hanging))
        settings = {
            "bootstrap.servers": "127.0.0.1:1",
            "offset.storage.file.filename": str(tmp_path / "offsets.json"),
            "listeners": "",
            "plugin.classes": f"support.connect_rig:MemorySink,{own}",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        made.append(Group(settings, refused))
        return made[-1]

    yield make
    for group in made:
        for leader in group.leaders:
            leader.connectors.close()


def test_a_changed_configuration_reaches_running_tasks_though_the_lead_moves(make_group: MakeGroup) -> None:
    """The leader that stored the tasks' configuration while the group rebalanced is gone before it could assign anything."""
    group = make_group()
    group.configure("c", note="old")
    group.settled(group.leader("one", {"one", "two", "three"}))
    before = group.state.assignment.slots["c", 0]
    assert before.member is not None

    group.configure("c", note="new")
    group.settled(group.leader("two", None))
    group.settled(group.leader("three", {"one", "two", "three"}))
    tasks: Any = group.state.tasks["c"][0]
    after = group.state.assignment.slots["c", 0]
    assert (tasks[0]["note"], after.member, after.run) == ("new", before.member, before.run + 1)


def test_a_tasks_state_is_told_when_the_status_topic_can_be_written_again(make_group: MakeGroup) -> None:
    """A broker that is away for a moment: a failed task would stay RUNNING for the REST, and one that has ended awaited."""
    group = make_group(refused=["status-task"])
    group.configure("c", **{"errors.tolerance": "some"})
    with group.herder():
        until(lambda: group.known.tasks.get(("c", 0)), "the state is told")
    assert group.known.tasks["c", 0].state == "FAILED"
    assert "errors.tolerance" in str(group.known.tasks["c", 0].trace)


@pytest.mark.parametrize("kind", ["status-task", "status-connector"])
def test_a_worker_answers_while_the_status_topic_cannot_be_written(make_group: MakeGroup, kind: str) -> None:
    """Its states wait; whoever asks does not."""
    group = make_group(refused=[kind])
    group.statuses.once = False
    group.configure("c", **{"errors.tolerance": "some"})
    with group.herder() as herder:
        assert group.statuses.met.wait(60)
        assert herder.call(lambda: list(group.state.configs), timeout=PATIENCE) == ["c"]


def test_a_failed_connectors_state_is_told_when_the_status_topic_can_be_written_again(make_group: MakeGroup) -> None:
    """It is told until it is known, as RUNNING is."""
    group = make_group()
    group.configure("c", **{"connector.class": "NotHere"})
    leader = group.leader()
    leader.turn()
    group.statuses.refused.add("status-connector")

    def refused() -> bool:
        with suppress(BrokerUnreachableError):
            leader.turn()
        return group.statuses.met.is_set()

    until(refused, "its failure cannot be told")
    assert group.settled(leader) == "FAILED"


def test_the_log_of_a_worker_that_ends_hides_secrets(
    make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the trace of what has ended it."""
    group = make_group()
    group.parts.resolver.keep_secret({"db.password": "hunter2"})

    def fails() -> None:
        raise ValueError("cannot parse hunter2")

    monkeypatch.setattr(group.configs, "read_to_end", fails)
    with group.herder() as herder:
        assert herder.ready.wait(PATIENCE)
    assert "hunter2" not in caplog.text
    assert "in fails" in caplog.text
    assert "ValueError: cannot parse [hidden]" in caplog.text


PLACEHOLDERS = {
    "config.providers": "env",
    "config.providers.env.class": "EnvVarConfigProvider",
}


def test_a_tasks_settings_go_back_to_their_placeholders_by_name(
    make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the connector has left as they were, also when a secret has changed since it started. Other settings stay."""
    given = {"db.password": "${env:PASSWORD}", "token": "${env:TOKEN}", "retries": "${env:NUMBER}", "t": "${env:LIST}"}
    for name, value in (("PASSWORD", "old-secret"), ("TOKEN", "old-token\n"), ("NUMBER", "1"), ("LIST", "a,b")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Passing, "more", {"task.number": "1", "t": "a", "token": "old-token", "round": "1"})
    group = make_group(**PLACEHOLDERS)
    group.configure("c", **given, **{"connector.class": "Passing"})
    leader = group.leader()
    assert group.settled(leader) == "RUNNING"
    own = {"task.number": "1", "t": "a"}

    def stored() -> dict[str, Any]:
        leader.turn()
        found: dict[str, Any] = group.state.tasks["c"][0][0]
        return {name: found[name] for name in (*given, "task.number", "round")}

    assert stored() == {**given, **own, "round": "1"}
    monkeypatch.setenv("PASSWORD", "new-secret")
    monkeypatch.setitem(Passing.more, "round", "2")
    Passing.running[-1].context.request_task_reconfiguration()
    until(lambda: stored()["round"] == "2", "the tasks are configured anew")
    assert stored() == {**given, **own, "round": "2"}


@pytest.mark.parametrize(("enforce", "state"), [("false", "RUNNING"), (" FALSE\n", "RUNNING"), ("true", "FAILED")])
def test_the_number_of_tasks_may_be_a_placeholder(
    make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch, enforce: str, state: str
) -> None:
    """And so may be whether more of them are refused."""
    monkeypatch.setenv("TASKS", "2")
    monkeypatch.setenv("ENFORCE", enforce)
    group, given = make_group(**PLACEHOLDERS), {"connector.class": "Torn", "tasks.max": "${env:TASKS}"}
    group.configure("c", **given)
    leader = group.leader()
    assert group.settled(leader) == "RUNNING"
    assert len(group.state.tasks["c"][0]) == 2
    monkeypatch.setattr(Torn, "task_configs", lambda self, most: [{}] * (most + 1))
    group.configure("c", **given, **{"tasks.max.enforce": "${env:ENFORCE}"})
    assert group.settled(leader) == state
    if state == "FAILED":
        assert "makes 3 tasks" in str(group.known.connectors["c"].trace)


def test_a_connector_with_placeholders_that_loses_tasks_is_asked_with_their_values(
    make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its tasks write exactly once may depend on any setting, as it does for Mirror."""
    asked: list[str] = []
    monkeypatch.setattr(Torn, "exactly_once_support", lambda self, config: asked.append(config["tasks.max"]))
    monkeypatch.setenv("TASKS", "1")
    group = make_group(**PLACEHOLDERS)
    group.parts.parsed["exactly.once.source.support"] = "enabled"
    group.configure("c", **{"connector.class": "Torn", "tasks.max": "2"})
    leader = group.leader()
    assert group.settled(leader) == "RUNNING"
    group.configure("c", **{"connector.class": "Torn", "tasks.max": "${env:TASKS}"})
    assert group.settled(leader) == "RUNNING"
    assert asked == ["1"]


def test_a_secret_that_a_connector_gives_its_tasks_under_another_name_is_stored_as_its_placeholder(
    make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one of the two names says that it is a secret: what is equal by chance stays."""
    given = {"db.password": "${env:PASSWORD}", "user": "${env:NAME}"}
    monkeypatch.setenv("PASSWORD", "a-secret")
    monkeypatch.setenv("NAME", "orders")
    monkeypatch.setattr(Passing, "more", {"url": "a-secret", "user.token": "orders", "table": "orders"})
    group = make_group(**PLACEHOLDERS)
    group.configure("c", **given, **{"connector.class": "Passing"})
    assert group.settled(group.leader()) == "RUNNING"
    found: Any = group.state.tasks["c"][0][0]
    names = ("url", "user.token", "table")
    assert [found[name] for name in names] == ["${env:PASSWORD}", "${env:NAME}", "orders"]


@pytest.mark.parametrize("by", ["stop", "delete"])
def test_a_failed_connector_stays_failed_through_a_pause_and_begins_anew_after(make_group: MakeGroup, by: str) -> None:
    """As in Kafka Connect, when it was stopped or deleted and made again, if with the same configuration."""
    group = make_group()
    leader = group.leader()

    def turn(target: str) -> str:
        group.configs.write({"target-state-c": json.dumps({"state": target}).encode()})
        return group.settled(leader)

    Unavailable.reachable = False
    group.configure("c", **{"connector.class": "Unavailable"})
    assert [turn(target) for target in ("STARTED", "PAUSED", "STARTED")] == ["FAILED"] * 3

    if by == "stop":
        assert turn("STOPPED") == "STOPPED"
    else:
        group.configs.write({"connector-c": None, "target-state-c": None})
        leader.turn()
        assert "c" not in group.known.connectors
        group.configure("c", **{"connector.class": "Unavailable"})
    Unavailable.reachable = True
    assert turn("STARTED") == "RUNNING"
    assert len(group.state.tasks["c"][0]) == 1


@pytest.mark.parametrize("where", ["task_class", "exactly_once_support"])
def test_a_plugin_whose_code_fails_ends_no_worker(
    make_group: MakeGroup, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task has failed, with the trace; else the worker ended, and then the next one that was given the task."""
    group = make_group()
    group.parts.parsed["exactly.once.source.support"] = "enabled"
    monkeypatch.setattr(Torn, "fails", where)
    group.configure("c", **{"connector.class": "Torn"})
    with group.herder() as herder:
        until(lambda: group.known.tasks.get(("c", 0)) or herder.failure, "it is told, or has ended the worker")
        assert herder.failure is None
    assert group.known.tasks["c", 0].state == "FAILED"
    assert str(group.known.tasks["c", 0].trace).rstrip().endswith(("no such attribute", "'a setting'"))


def test_a_plugin_whose_code_fails_as_it_loses_tasks_ends_no_leader(
    make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its tasks write exactly once is asked before surplus ones are fenced."""
    group = make_group()
    group.parts.parsed["exactly.once.source.support"] = "enabled"
    group.configure("c", **{"connector.class": "Torn", "tasks.max": "2"})
    leader = group.leader()
    assert group.settled(leader) == "RUNNING"
    assert len(group.state.tasks["c"][0]) == 2
    monkeypatch.setattr(Torn, "fails", "exactly_once_support")
    group.configure("c", **{"connector.class": "Torn", "tasks.max": "1"})
    assert group.settled(leader) == "FAILED"
    assert len(group.state.tasks["c"][0]) == 2
    group.configure("c", **{"connector.class": "Torn", "tasks.max": "3"})
    assert group.settled(leader) == "RUNNING"
    assert len(group.state.tasks["c"][0]) == 3


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hanging]]:
    """The connector, with a gate and a list of calls of this test."""
    monkeypatch.setattr(Hanging, "gate", Event())
    monkeypatch.setattr(Hanging, "calls", [])
    yield Hanging
    Hanging.gate.set()


@pytest.mark.parametrize("method", ["start", "task_configs", "stop"])
def test_a_connector_that_hangs_keeps_nobody_else_waiting(
    make_group: MakeGroup, hanging: type[Hanging], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Its methods run on a thread of its own: the group goes on, and whoever asks the worker is answered."""
    monkeypatch.setattr(hanging, "hangs", method)
    group = make_group(task_shutdown_graceful_timeout_ms="100")
    group.configure("a", **{"connector.class": "Hanging"})
    with group.herder() as herder:
        if method == "stop":
            until(lambda: "task_configs ends" in hanging.calls, "it runs")
            herder.call(lambda: group.configs.write({"target-state-a": b'{"state": "PAUSED"}'}))
        until(lambda: hanging.calls[-1:] == [method], "it hangs")
        herder.call(lambda: group.configure("c", **{"errors.tolerance": "some"}), timeout=PATIENCE)
        until(lambda: ("c", 0) in group.known.tasks, "another connector's task is begun")
        shown = {name: status.state for name, status in group.known.connectors.items()}
        assert shown == {"a": "PAUSED" if method == "stop" else "UNASSIGNED", "c": "RUNNING"}


@pytest.mark.parametrize("patience", ["600000", "1"])
def test_a_connector_begins_anew_when_the_instance_before_has_stopped_or_is_awaited_no_more(
    make_group: MakeGroup, hanging: type[Hanging], monkeypatch: pytest.MonkeyPatch, patience: str
) -> None:
    """Two of one name would meet at the other side; but one that never returns is left behind, as in Kafka Connect."""
    monkeypatch.setattr(hanging, "hangs", "stop")
    group = make_group(task_shutdown_graceful_timeout_ms=patience)
    group.configure("a", **{"connector.class": "Hanging"})
    with group.herder() as herder:
        until(lambda: "task_configs ends" in hanging.calls, "it runs")
        herder.call(lambda: group.configure("a", note="new", **{"connector.class": "Hanging"}))
        until(lambda: "stop" in hanging.calls, "it is asked to stop")
        if patience != "1":
            for _ in range(3):
                herder.call(lambda: None)
            assert hanging.calls[-1] == "stop"
            hanging.gate.set()
        until(lambda: hanging.calls.count("task_configs ends") == 2, "the new one runs")
        assert ("stop ends" in hanging.calls) == (patience != "1")
        until(lambda: group.known.connectors["a"].state == "RUNNING", "that is told")
