"""What a change did, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .. import clock
from ..operations.notices import Notice

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """A step that a change took. seconds: since the change began."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Change:
    """What a change did. `changed` is False when the topic already had the count.

    warnings: what should have been known before it.
    """

    topic: str
    before: int
    after: int
    epoch: int
    changed: bool
    attempts: int
    steps: tuple[ChangeStep, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()


class StepLog:
    """The steps of one change as they happen; each is told to `progress` too."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.began = clock.now()
        self.steps: list[ChangeStep] = []
        self._progress = progress

    def note(self, name: str) -> None:
        """One more step was taken."""
        self.steps.append(ChangeStep(name, self.seconds()))
        if self._progress is not None:
            self._progress(name)

    def seconds(self) -> float:
        """Since the change began."""
        return clock.now() - self.began

    def restart(self) -> None:
        """Another change begins."""
        self.began, self.steps = clock.now(), []
