"""How long a change may last, and how long it may hold records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..writers.members import Member


@dataclass(frozen=True, slots=True)
class ChangeTerms:
    """Bounds in seconds. attempt_deadline doubles with each attempt, up to max_deadline; timeout ends it all."""

    attempt_deadline: float = 5.0
    max_deadline: float = 20.0
    timeout: float = 120.0


def longest_hold(writers: Iterable[Member], terms: ChangeTerms | None = None, attempt: int = 1) -> float:
    """How long an attempt may hold records before it is given up, in seconds."""
    terms = terms or ChangeTerms()
    doubled: float = terms.attempt_deadline * 2 ** (attempt - 1)
    # Held records must not outlive the transactions that they belong to.
    timeouts = [m.lease.transaction_timeout_ms / 1000 for m in writers]
    shortest = min((timeout for timeout in timeouts if timeout > 0), default=float("inf"))
    return min(doubled, terms.max_deadline, shortest / 2)
