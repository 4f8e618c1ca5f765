"""When a position is reported: at the start, at the end of the log, and when a cut was passed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.gates.reporting import PositionReporter


@pytest.mark.kip("K253-48", "T-9")
def test_the_kip_example() -> None:
    """Start, on the way, at the watermark, past a cut, unchanged."""
    reporter = PositionReporter()
    assert reporter.due(10, 30, 0)
    assert not reporter.due(20, 30, 0)
    assert reporter.due(30, 30, 0)
    assert reporter.due(35, 50, 1)
    assert not reporter.due(35, 50, 1)


@pytest.mark.kip("K253-48")
def test_a_cut_below_a_position_that_stands_still_is_reported() -> None:
    """The group had read all before the change was committed: its offset stays, yet the flush has to be proven."""
    reporter = PositionReporter()
    assert reporter.due(40, 40, 0)
    assert not reporter.due(40, 40, 0)
    assert reporter.due(40, 40, 1)
    assert not reporter.due(40, 40, 1)


@pytest.mark.kip("K253-48")
def test_growth_is_counted_from_the_last_report() -> None:
    """What was not reported on the way does not count: the watermark is reached by growth since the last report."""
    reporter = PositionReporter()
    assert reporter.due(10, 30, 0)
    assert not reporter.due(20, 30, 0)
    assert reporter.due(20, 20, 0)


def test_a_rewind_is_reported() -> None:
    """Others believe the higher position until they hear of the lower one."""
    reporter = PositionReporter()
    assert reporter.due(10, 30, 1)
    assert reporter.due(4, 30, 0)
    assert not reporter.due(5, 30, 0)
    assert reporter.due(10, 30, 1)


def test_a_lost_report_is_due_again() -> None:
    """A report that failed does not count as one, neither the first nor a later one."""
    reporter = PositionReporter()
    assert reporter.due(10, 30, 0)
    reporter.lost()
    assert reporter.due(10, 30, 0)
    assert reporter.due(30, 30, 1)
    reporter.lost()
    assert reporter.due(30, 30, 1)


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.sets(st.integers(1, 40)))
def test_it_agrees_with_the_kips_three_conditions(steps: list[tuple[int, int]], cuts: set[int]) -> None:
    """For positions that only grow: never reported, or grown up to the watermark, or past a further cut."""
    reporter = PositionReporter()
    position = 0
    reports: list[tuple[int, int]] = []
    for step, gap in steps:
        position += step
        watermark, fences = position + gap, sum(cut <= position for cut in cuts)
        expected = not reports or (position > reports[-1][0] and position == watermark) or fences > reports[-1][1]
        assert reporter.due(position, watermark, fences) == expected
        if expected:
            reports.append((position, fences))
