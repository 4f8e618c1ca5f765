"""Which call of the client library a producer waits in."""

from __future__ import annotations

import pytest
from keyorder.connector.producing.report_poller import DeliveryReportPoller
from keyorder.connector.producing.reports import Reports


class Library:
    """In the place of the client: `queued` records, and which calls were made, with how long each may take."""

    def __init__(self, queued: int) -> None:
        self.queued = queued
        self.calls: list[tuple[str, bool]] = []

    def __len__(self) -> int:
        return self.queued

    def poll(self, timeout: float) -> int:
        self.calls.append(("poll", timeout > 0))
        return 0

    def flush(self, timeout: float) -> int:
        self.calls.append(("flush", timeout > 0))
        return self.queued


@pytest.mark.parametrize(
    ("queued", "held", "call"), [(0, True, "poll"), (1, True, "flush"), (1, False, "flush"), (0, False, "flush")]
)
def test_a_flush_waits_for_held_records_too(queued: int, held: bool, call: str) -> None:
    """The library's flush returns at once when it has nothing: a loop around it would take a whole core during a hold."""
    library = Library(queued)
    serving = DeliveryReportPoller(library, Reports({}), lambda: None, lambda: None)  # type: ignore[arg-type]
    serving.flush(None, held)
    assert library.calls == [(call, True)]
