"""Named places at which a test may kill the process, to prove that what comes after resumes.

Set KEYORDER_CRASH_AT to one of the names; the process then dies there by SIGKILL, as a power cut would have it.
KEYORDER_CRASH_ONCE may name a file: only the process that makes it dies, so that whoever takes over lives.
"""

from __future__ import annotations

import os
import signal

SINK_STEPS = ("sink-rows-queued", "sink-marked", "sink-committed")
CONTROLLER_STEPS = (
    "controller-started",
    "plan-written",
    "partitions-created",
    "prepare-sent",
    "prepare-written",
    "all-ready",
    "cuts-read",
    "commit-sent",
    "commit-written",
    "abort-sent",
)
REHOMING_STEPS = (
    "rehome-scanned",
    "controller-started",
    "plan-written",
    "prepare-sent",
    "prepare-written",
    "all-ready",
    "cuts-read",
    "rehome-read",
    "rehome-sent",
    "rehome-written",
    "rehome-done",
    "edit-sent",
)

COMPACTOR_STEPS = ("compactor-read", "compactor-appended", "compactor-committed", "compactor-read-back")


def crash_point(name: str) -> None:
    """Die here if the environment says so."""
    if os.environ.get("KEYORDER_CRASH_AT") == name and _first():
        os.kill(os.getpid(), signal.SIGKILL)


def _first() -> bool:
    once = os.environ.get("KEYORDER_CRASH_ONCE")
    if once is None:
        return True
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
