"""What the workers agree on, folded from the records of the config topic. Pure.

connector-{name}      {"properties": {...}} or null
target-state-{name}   {"state": "STARTED" | "PAUSED" | "STOPPED"} or null
tasks-{name}          {"tasks": [{...}, ...], "of": digest of the properties that they were made from} or null
logger-cluster-{name} {"level": ...}: for those who are there when it is written
assignment            {"epoch", "leader", "url", "slots": {"name/number": {"member", "was", "run"}}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Target(Enum):
    """What a connector is to do."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True)
class Slot:
    """Who runs a task. member: whose it is; None: nobody's. was: who has to let go of `run` before it is anybody's."""

    member: str | None
    was: str | None
    run: int


@dataclass(frozen=True)
class Assignment:
    """Who runs what. epoch grows with each record; url: the leader's REST."""

    epoch: int = 0
    leader: str = ""
    url: str = ""
    slots: Mapping[tuple[str, int], Slot] = field(default_factory=dict)


def digest(properties: Mapping[str, str]) -> str:
    """A short name for a set of properties."""
    return hashlib.sha256(json.dumps(dict(properties), sort_keys=True).encode()).hexdigest()[:16]


class ClusterState:
    """The fold. Values that are not understood are left out: a newer worker may have written them.

    levels: of loggers, as they were asked for; whoever has set them empties the list.
    """

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.targets: dict[str, Target] = {}
        self.tasks: dict[str, tuple[list[dict[str, str]], str]] = {}
        self.assignment = Assignment()
        self.levels: list[tuple[str, str]] = []

    def apply(self, key: str, value: bytes | None) -> None:
        """Take one record in."""
        document: Any = None if value is None else json.loads(value)
        if key == "assignment" and document is not None:
            slots = {}
            for name, slot in document["slots"].items():
                connector, _, number = name.rpartition("/")
                slots[connector, int(number)] = Slot(slot["member"], slot["was"], slot["run"])
            self.assignment = Assignment(document["epoch"], document["leader"], document["url"], slots)
            return
        if key.startswith("logger-cluster-") and document is not None:
            self.levels.append((key.removeprefix("logger-cluster-"), document["level"]))
            return
        for prefix, fold in (("connector-", self._config), ("target-state-", self._target), ("tasks-", self._tasks)):
            if key.startswith(prefix):
                fold(key.removeprefix(prefix), document)
                return

    def target(self, name: str) -> Target:
        """What a connector is to do; STARTED unless it was said otherwise."""
        return self.targets.get(name, Target.STARTED)

    def wanted(self) -> dict[tuple[str, int], Target]:
        """The tasks that should run or be paused."""
        return {
            (name, number): self.target(name)
            for name in self.configs
            if self.target(name) is not Target.STOPPED
            for number in range(len(self.tasks.get(name, ([], ""))[0]))
        }

    def _config(self, name: str, document: Any) -> None:
        if document is None:
            self.configs.pop(name, None)
        else:
            self.configs[name] = document["properties"]

    def _target(self, name: str, document: Any) -> None:
        if document is None:
            self.targets.pop(name, None)
        else:
            self.targets[name] = Target(document["state"])

    def _tasks(self, name: str, document: Any) -> None:
        if document is None:
            self.tasks.pop(name, None)
        else:
            self.tasks[name] = (document["tasks"], document["of"])


def encode_assignment(assignment: Assignment) -> bytes:
    """The record of an assignment."""
    slots = {
        f"{name}/{number}": {"member": slot.member, "was": slot.was, "run": slot.run}
        for (name, number), slot in sorted(assignment.slots.items())
    }
    return json.dumps(
        {"epoch": assignment.epoch, "leader": assignment.leader, "url": assignment.url, "slots": slots}
    ).encode()
