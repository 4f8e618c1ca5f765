"""Named places at which a test may kill the process, to prove that what comes after resumes.

Set KEYORDER_CRASH_AT to one of the names; the process then dies there by SIGKILL, as a power cut would have it.
"""

from __future__ import annotations

import os
import signal

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


def crash_point(name: str) -> None:
    """Die here if the environment says so."""
    if os.environ.get("KEYORDER_CRASH_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)
