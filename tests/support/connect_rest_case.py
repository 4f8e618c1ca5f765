"""One request of the list, and what is waited for in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

JAVA = "org.apache.kafka.connect."
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Case:
    """One request. body: JSON; raw: bytes as they are instead. repeat: a number that keeps equal requests apart.

    once: an answer that says "not now" is the answer; others are asked again then. early: what an answer has in it that came
    before an earlier request has taken its course; it is asked again then. full: of other validates
    only the settings are compared that are given, or blamed, or are those of a step.
    """

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: str | None = None
    repeat: int = 0
    once: bool = False
    early: str = ""
    full: bool = False

    @property
    def name(self) -> str:
        """What the table of answers calls it."""
        words = [self.method, self.path]
        if self.raw is not None:
            words.append(self.raw or "(empty)")
        elif self.body is not None:
            words.append(_text(self.body))
        words += [f"{name}: {value}" for name, value in self.headers.items() if self.headers is not JSON]
        if self.repeat:
            words.append(f"#{self.repeat}")
        return " ".join(words)


@dataclass(frozen=True)
class Wait:
    """Ask a connector until it is there: state of the connector, states of its tasks.

    state: None for a connector that is gone. tasks: -1 for any number. offsets, topics: how many it has at least.
    """

    connector: str
    state: str | None = "RUNNING"
    tasks: int = 1
    task_state: str = "RUNNING"
    offsets: int = 0
    topics: int = 0


def _text(body: Any) -> str:
    import json

    return json.dumps(body, sort_keys=True)
