"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    """OK; WARN: the promise holds only in part; FAIL: it does not hold, or nothing works; UNKNOWN: may not be seen."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer. check: what was asked; about: of which broker, topic or group; fix: what to do, "" when nothing."""

    check: str
    about: str
    status: Status
    text: str
    fix: str = ""
