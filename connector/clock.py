"""The one source of time. Seconds of a clock that never jumps and counts through suspend, where the system has one."""

from __future__ import annotations

import time
from functools import partial

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


# Seconds since an arbitrary moment, the same for all processes of one machine. Asked for every record: no Python frame.
now: partial[float] = partial(time.clock_gettime, _CLOCK)


def wall_ms() -> int:
    """Milliseconds since 1970, for people to read. Never for a decision."""
    return time.time_ns() // 1_000_000
