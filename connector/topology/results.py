"""What a change did, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...partitioner.changes.events import WriterWait
from .. import clock
from ..operations.notices import Notice

Progress = Callable[[str], None]
# A living writer answers within milliseconds: only who takes longer is worth a word.
_A_MOMENT = 1.0


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """A step that a change took. seconds: since the change began."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """A writer that a change has waited for, at least for a moment.

    ready: for its READY while records were held; otherwise for a sign of life, or its lease's end, while none were.
    began, seconds: when the wait began, counted from the change's beginning, and how long it lasted.
    """

    writer: str
    ready: bool
    began: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Change:
    """What a change did. `changed` is False when the topic already had the count.

    warnings: what should have been known before it. waited_for: the writers that kept it waiting, in the order of that.
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
    waited_for: tuple[WaitedFor, ...] = ()


class StepLog:
    """The steps of one change as they happen; each is told to `progress` too."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.began = clock.now()
        self.steps: list[ChangeStep] = []
        self._progress = progress
        self._waits: dict[tuple[str, bool], tuple[float, float]] = {}  # from when to when each writer was waited for
        self._told: set[object] = set()

    def awaiting(self, what: str, seconds: float) -> None:
        """This is waited for since so long. What is for more than a moment is told to `progress`, once."""
        if seconds >= _A_MOMENT and what not in self._told:
            self._told.add(what)
            self._say(f"waiting for {what}")

    def waiting(self, waits: Iterable[WriterWait]) -> None:
        """These are waited for now. One that is for more than a moment is told to `progress`, once."""
        now = clock.now()
        for wait in waits:
            key = wait.writer, wait.ready
            began, _ = self._waits.get(key, (now, now))
            self._waits[key] = began, now
            if now - began < _A_MOMENT or key in self._told:
                continue
            self._told.add(key)
            left = f"{max(0.0, wait.until - now):.0f} s at most"
            if wait.ready:
                self._say(f"waiting for READY from writer {wait.writer}, asked {now - wait.since:.0f} s ago: {left}")
            else:
                self._say(f"waiting for writer {wait.writer} to renew its lease, or for the lease to run out: {left}")

    @property
    def waited_for(self) -> tuple[WaitedFor, ...]:
        """All that were waited for."""
        found = sorted((began, until, key) for key, (began, until) in self._waits.items())
        return tuple(
            WaitedFor(writer, ready, began - self.began, until - began) for began, until, (writer, ready) in found
        )

    def note(self, name: str) -> None:
        """One more step was taken."""
        self.steps.append(ChangeStep(name, self.seconds()))
        self._say(name)

    def _say(self, what: str) -> None:
        if self._progress is not None:
            self._progress(what)

    def seconds(self) -> float:
        """Since the change began."""
        return clock.now() - self.began

    def restart(self) -> None:
        """Another change begins."""
        self.began, self.steps = clock.now(), []
        self._waits, self._told = {}, set()
