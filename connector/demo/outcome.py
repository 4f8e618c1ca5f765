"""What came of a demonstration: figures from the checker, the changes as they went, and the documented JSON object."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .latency import HandOver, spread
from .series import Series


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that was done: when (seconds into the load), which act, and in words."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Growth:
    """One change of the managed topic. at: when it was asked for, seconds into the load. seconds: what `expand` took.

    steps: what it did, and after how many seconds each.
    """

    at: float
    before: int
    after: int
    epoch: int
    seconds: float
    attempts: int
    steps: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SideResult:
    """One side, judged."""

    topic: str
    verdict: dict[str, Any]
    summary: str
    series: Series

    def figure(self, name: str) -> int:
        """A figure of the verdict, by its name there."""
        return int(self.verdict[name])

    @property
    def legal_duplicates(self) -> int:
        """Records that came twice because a member was killed before it could commit."""
        return sum(int(group["legal_duplicates"]) for group in self.verdict["groups"].values())


@dataclass(slots=True)
class Outcome:
    """The whole run. holds: milliseconds that each held record waited. folder: the recordings, where they were kept."""

    seed: int
    seconds: float
    counts: tuple[int, ...]
    keyorder: SideResult
    stock: SideResult
    growths: list[Growth] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    holds: list[float] = field(default_factory=list)
    hand_overs: list[HandOver] = field(default_factory=list)
    gates: list[HandOver] = field(default_factory=list)
    wall_seconds: float = 0.0
    png: Path | None = None
    html: Path | None = None
    folder: Path | None = None

    @property
    def kept(self) -> bool:
        """Whether keyorder kept what it promises: not one finding of the checker against it."""
        wrong = ("reordered_keys", "lost", "illegal_duplicates")
        return bool(self.keyorder.verdict["valid"]) and not any(self.keyorder.figure(name) for name in wrong)

    def as_dict(self) -> dict[str, Any]:
        """The object that `--output json` prints."""
        return {
            "records": self.keyorder.figure("records"),
            "keys": self.keyorder.figure("keys"),
            "changes": len(self.growths),
            "stock": {
                **_three(self.stock),
                "late_records": self.stock.series.late_records,
                "records": self.stock.figure("records"),
            },
            "keyorder": {
                **_three(self.keyorder),
                "late_records": self.keyorder.series.late_records,
                "valid": bool(self.keyorder.verdict["valid"]),
                "anomalies": self.keyorder.verdict["counts"],
                "keys_moved": self.keyorder.figure("keys_moved"),
                "legal_duplicates": self.keyorder.legal_duplicates,
            },
            "hold_ms": spread(self.holds),
            # A key whose next record was not written yet waited for nothing: it would only flatter the figure.
            "handover_ms": spread([each.milliseconds for each in self.hand_overs if each.waited]),
            "handover_all_ms": spread([each.milliseconds for each in self.hand_overs]),
            "gate_ms": spread([each.milliseconds for each in self.gates]),
            "growths": [
                {
                    "from": growth.before,
                    "to": growth.after,
                    "epoch": growth.epoch,
                    "at_s": round(growth.at, 2),
                    "took_ms": round(growth.seconds * 1000, 1),
                    "attempts": growth.attempts,
                    "steps": [{"name": name, "ms": round(seconds * 1000, 1)} for name, seconds in growth.steps],
                }
                for growth in self.growths
            ],
            "partitions": list(self.counts),
            "seed": self.seed,
            "seconds": self.seconds,
            "wall_seconds": round(self.wall_seconds, 1),
            "report": {"png": _text(self.png), "html": _text(self.html), "history": _text(self.folder)},
        }


def _three(side: SideResult) -> dict[str, int]:
    return {name: side.figure(name) for name in ("reordered_keys", "lost", "illegal_duplicates")}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
