"""When what happens: growths spread over the load, a member that joins, one that is killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

_FIRST, _SPREAD = 0.16, 0.56


@dataclass(frozen=True, slots=True)
class Act:
    """Something that is done to both sides `at` seconds into the load; `count` is the new partition count of a growth,
    `member` the number of the consumer that joins or dies.
    """

    at: float
    kind: Literal["grow", "join", "kill"]
    count: int = 0
    member: int = 0


def schedule(counts: Sequence[int], seconds: float, members: int, seed: int) -> list[Act]:
    """The acts in order of time.

    A member joins between the first two growths. One of the first members is killed soon after a growth in the middle,
    while moved keys are still on their way to new owners: the hardest moment to lose one.
    """
    growths = counts[1:]
    step = _SPREAD / max(len(growths) - 1, 1)
    times = [seconds * (_FIRST + step * n) for n in range(len(growths))]
    join_at = (times[0] + times[1]) / 2 if len(times) > 1 else seconds * 0.45
    kill_at = times[len(times) // 2] + seconds * 0.04 if len(times) > 1 else seconds * 0.65
    acts = [Act(at, "grow", count=count) for at, count in zip(times, growths, strict=True)]
    acts.append(Act(join_at, "join", member=members + 1))
    acts.append(Act(kill_at, "kill", member=Random(seed).randrange(members) + 1))
    return sorted(acts, key=lambda act: act.at)
