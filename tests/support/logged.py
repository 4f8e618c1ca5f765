"""What a test itself made the library log."""

from __future__ import annotations

import logging
import threading

import pytest


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of this thread. A client that a failed test of the same process left open logs on threads of its own."""
    return [record for record in caplog.records if record.thread == threading.get_ident()]
