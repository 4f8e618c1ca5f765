"""Which call of the client library a producer waits in."""

from __future__ import annotations

import threading

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


class Slow(Library):
    """Nothing comes. It blocks for whole milliseconds, as the library does."""

    def poll(self, timeout: float) -> int:
        self.calls.append(("poll", timeout > 0))
        threading.Event().wait(int(timeout * 1000) / 1000)
        return 0


def test_the_last_part_of_a_millisecond_is_waited_for_in_one_call() -> None:
    """A writer that calls poll(0.005) in a loop would take a fifth of a core: the library does not block for less."""
    library = Slow(0)
    serving = DeliveryReportPoller(library, Reports({}), lambda: None, lambda: None)  # type: ignore[arg-type]
    for _ in range(5):
        library.calls.clear()
        assert serving.poll(0.0059) == 0
        assert len(library.calls) <= 7


@pytest.mark.parametrize(
    ("queued", "held", "call"), [(0, True, "poll"), (1, True, "flush"), (1, False, "flush"), (0, False, "flush")]
)
def test_a_flush_waits_for_held_records_too(queued: int, held: bool, call: str) -> None:
    """The library's flush returns at once when it has nothing: a loop around it would take a whole core during a hold."""
    library = Library(queued)
    serving = DeliveryReportPoller(library, Reports({}), lambda: None, lambda: None)  # type: ignore[arg-type]
    serving.flush(None, held)
    assert library.calls == [(call, True)]
