"""What a group's leader decides and what its workers tell, on logs in memory: connectors and workers that come, fail and go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from keyorder.connector.connect.runtime.group.leader import Leader
from keyorder.connector.connect.runtime.group.membership import Membership
from keyorder.connector.connect.runtime.group.place import WorkerPlace
from keyorder.connector.connect.runtime.group.state import ClusterState
from keyorder.connector.connect.runtime.group.stores import MemoryLog, Statuses
from keyorder.connector.connect.runtime.launch import Parts
from keyorder.connector.connect.runtime.worker import Worker


class Member(Membership):
    """A worker that should lead. seen: who is in the group."""

    leads = True

    def __init__(self, member: str, seen: set[str] | None) -> None:
        self.member, self.seen = member, seen

    def members(self) -> set[str] | None:
        return self.seen


class Group:
    """What the workers of one group share, and a leader for each that leads in turn."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.parts = Parts.of(settings, distributed=False)
        self.state, self.known = ClusterState(), Statuses()
        self.configs, self.statuses = MemoryLog(self.state.apply), MemoryLog(self.known.apply)

    def leader(self, member: str, seen: set[str] | None) -> Leader:
        """A worker that has just been given the lead."""
        parts = self.parts
        nothing: Any = None
        place = WorkerPlace(
            member,
            "",
            parts.settings,
            parts.parsed,
            self.state,
            self.configs,
            self.known,
            self.statuses,
            Member(member, seen),
        )
        worker = Worker(parts.settings, parts.parsed, parts.plugins, parts.resolver, nothing, None, "", lambda *_: None)
        return Leader(place, worker, lambda: None)

    def configure(self, name: str, **more: str) -> None:
        """PUT /connectors/name/config."""
        config = {"connector.class": "MemorySink", "name": name, "topics": "t", **more}
        self.configs.write({f"connector-{name}": json.dumps({"properties": config}).encode()})


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """A worker's, which reaches no broker."""
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "offset.storage.file.filename": str(tmp_path / "offsets.json"),
        "listeners": "",
        "plugin.classes": "support.connect_rig:MemorySink",
    }


def test_a_changed_configuration_reaches_running_tasks_though_the_lead_moves(settings: dict[str, str]) -> None:
    """The leader that stored the tasks' configuration while the group rebalanced is gone before it could assign anything."""
    group = Group(settings)
    group.configure("c", note="old")
    group.leader("one", {"one", "two", "three"}).turn()
    before = group.state.assignment.slots["c", 0]
    assert before.member is not None

    group.configure("c", note="new")
    group.leader("two", None).turn()
    group.leader("three", {"one", "two", "three"}).turn()
    tasks: Any = group.state.tasks["c"][0]
    after = group.state.assignment.slots["c", 0]
    assert (tasks[0]["note"], after.member, after.run) == ("new", before.member, before.run + 1)
