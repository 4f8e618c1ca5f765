"""How often a member asks for others' positions: soon at first, and never so late that the wait grows by much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.consuming.gates.positions import pause_after


@pytest.mark.kip("K253-46")
@given(st.floats(0, 600), st.floats(0, 600))
def test_the_next_question_is_late_by_a_share_of_the_wait_at_most(quiet: float, before: float) -> None:
    """A commit is noticed within an eighth of what it took, a tenth of a second for as long as the origin is alive."""
    waited = quiet + before
    pause = pause_after(quiet, waited)

    assert 0.002 <= pause <= max(0.002, waited / 8)
    assert pause <= (0.1 if quiet < 60 else 0.25)


@pytest.mark.kip("K253-46")
def test_questions_in_the_first_minute_are_counted() -> None:
    """What the settings' comment promises: 34 in the first second without progress, 10 in each later one."""
    at, times = 0.0, []
    while at < 60:
        times.append(at)
        at += pause_after(at, at) + 0.002  # an answer takes a moment

    assert sum(1 for t in times if t < 1) == 34
    assert 9 <= sum(1 for t in times if 30 <= t < 31) <= 10
