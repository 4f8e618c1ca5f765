"""How long a reader lets the client library block while it waits for something."""

from __future__ import annotations

from itertools import pairwise

import pytest
from keyorder.connector.consuming.patience import Patience


def looks(awaited: list[object], begin: float, end: float, patience: Patience) -> list[float]:
    """The times at which a reader looks that finds nothing."""
    at, found = begin, []
    while at < end:
        found.append(at)
        at += patience.wait(awaited, at)
    return found


def test_what_has_just_begun_is_seen_within_a_millisecond() -> None:
    """A change takes some tenths of a second as a rule."""
    times = looks(["gate"], 7.0, 7.05, Patience())
    assert max(b - a for a, b in pairwise(times)) < 0.0011


def test_what_lasts_is_looked_at_less_often() -> None:
    """A change that waits a minute for a silent writer costs 1 500 looks, not 60 000; each is late by a fiftieth at most."""
    times = looks(["a change"], 100.0, 160.0, Patience())
    assert 1300 < len(times) < 1600
    for a, b in pairwise(times):
        assert b - a <= max(0.001, (a - 100.0) / 50) + 1e-9
        assert b - a <= 0.05 + 1e-9


def test_news_makes_the_wait_short_again() -> None:
    """Another gate, another timeline: what comes of it comes soon."""
    patience = Patience()
    looks(["a"], 0.0, 60.0, patience)
    assert patience.wait(["a"], 60.0) == 0.05
    assert patience.wait(["a", "b"], 60.0) == 0.001
    assert patience.wait(["b"], 61.0) == 0.001


def test_without_anything_awaited_the_library_blocks_for_50_ms() -> None:
    """So that other threads and signals get their turn. What comes afterwards is looked for at once."""
    patience = Patience()
    assert patience.wait([], 0.0) == 0.05
    assert patience.wait(["a"], 500.0) == 0.001


def test_a_flow_that_has_just_stopped_may_have_been_stopped_by_a_change() -> None:
    """Writers hold records as soon as they see it, maybe before this reader does."""
    patience = Patience()
    looks([], 0.0, 100.0, patience)
    patience.came(100.0)
    times = looks([], 100.0, 101.0, patience)
    assert all(b - a < 0.0051 for a, b in pairwise(times) if a < 100.04)
    assert times[-1] - times[-2] == pytest.approx(0.05)


def test_what_follows_from_the_last_thing_awaited_is_seen_within_a_millisecond() -> None:
    """The turn in which a change is seen to have ended may have looked for something to prove before it was."""
    patience = Patience()
    looks(["a change"], 500.0, 560.0, patience)
    times = looks([], 560.0, 561.0, patience)
    assert all(b - a < 0.0011 for a, b in pairwise(times) if a < 560.04)
    assert times[-1] - times[-2] == pytest.approx(0.05)
    assert patience.wait(["a"], 562.0) == 0.001
