"""The one source of time. Seconds of a clock that never jumps and counts through suspend, where the system has one."""

from __future__ import annotations

import time
from functools import partial
from math import ceil

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


# Seconds since an arbitrary moment, the same for all processes of one machine. Asked for every record: no Python frame.
now: partial[float] = partial(time.clock_gettime, _CLOCK)


def blocking(seconds: float) -> float:
    """How long to block in the client library, with so many seconds left: the next whole millisecond.

    It counts whole milliseconds, cuts what is more, and would not block at all for less: who waits in a loop would spin.
    """
    return (ceil(seconds * 1000) + 0.5) / 1000 if seconds > 0 else 0.0


def wall_ms() -> int:
    """Milliseconds since 1970, for people to read, and for what others measure by it, such as when a token ends.

    It may jump. Where order depends on what is decided by it, there is a margin or a second clock: an epoch is folded with an
    hour to spare, and for an expulsion the broker's stamps have to say the same.
    """
    return time.time_ns() // 1_000_000


def utc_now() -> str:
    """This moment by the machine's clock, as in 2030-01-31T12:00:00Z. For people to read."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
