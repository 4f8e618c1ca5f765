"""What is written into the log, once and at which level."""

from __future__ import annotations

import logging
import threading

import pytest
from keyorder.connector.consuming.gates.origins import LONG_S, OriginWatch
from keyorder.partitioner.gates.waits import Reason
from keyorder.partitioner.timeline import new_epoch
from support.dumb import timeline_of
from support.logged import logged

GATE, ORIGIN = ("t", 4), ("t", 0)


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> OriginWatch:
    """Without its thread: nothing is looked at."""
    caplog.set_level(logging.INFO, "keyorder")
    return OriginWatch({}, "g")


def test_a_gate_that_passes_by_itself_is_told_of_when_it_takes_long(
    watch: OriginWatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, without a warning, and once more when it is open; a short wait is no news."""
    watch.report(GATE, ORIGIN, Reason.READING, "x", LONG_S - 1)
    watch.opened(GATE, LONG_S - 1)
    assert logged(caplog) == []
    for seconds in (LONG_S, LONG_S + 1):
        watch.report(GATE, ORIGIN, Reason.READING, "x", seconds)
    watch.opened(GATE, 12.0)
    watch.opened(GATE, 12.0)
    assert [(r.levelname, r.name) for r in logged(caplog)] == [("INFO", "keyorder.gates")] * 2
    assert "t[4]" in logged(caplog)[0].message
    assert "after 12.0 s" in logged(caplog)[1].message


def test_a_wedge_is_a_warning_at_once_and_for_each_reason(watch: OriginWatch, caplog: pytest.LogCaptureFixture) -> None:
    """The same reason again is no news, until something moved in between."""
    for reason in (Reason.NO_OWNER, Reason.NO_OWNER, Reason.STALLED, Reason.READING, Reason.STALLED):
        watch.report(GATE, ORIGIN, reason, "x", 1.0)
    assert [r.levelname for r in logged(caplog)] == ["WARNING"] * 3


def test_a_new_epoch_says_from_where_to_where_and_how_long_records_were_held() -> None:
    """The hold is left out where its controller has not told it."""
    before, after = timeline_of(4, []), timeline_of(4, [(6, {0: 1, 1: 1}, {4: 0, 5: 0})])
    assert new_epoch(after, before) == "t: epoch 1 is in force, 4 to 6 partitions"


def test_what_other_threads_log_is_not_of_the_test(watch: OriginWatch, caplog: pytest.LogCaptureFixture) -> None:
    """A client that another test left open goes on to log that it finds no broker."""
    thread = threading.Thread(target=logging.getLogger("keyorder.librdkafka").error, args=("Connection refused",))
    thread.start()
    thread.join()
    watch.report(GATE, ORIGIN, Reason.NO_OWNER, "x", 1.0)
    assert [record.name for record in logged(caplog)] == ["keyorder.gates"]
    assert len(caplog.records) == 2
