"""Positions where records come out behind later offsets: never past what is not processed, and never stuck below it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.consuming.records.late import Late


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=12))
def test_a_named_position_covers_what_was_given_before_and_nothing_else(order: list[int], named: list[int]) -> None:
    """The application gets the offsets in `order`, processes in that order, and names positions of what it processed."""
    late, record_end = Late(), 0
    for offset in order:
        if offset < record_end:
            late.released(offset)
        record_end = max(record_end, offset + 1)
        late.gave(offset, record_end)
    done: set[int] = set()
    for at in sorted(named):
        position = order[at] + 1
        late.done_up_to(position, max((o + 1 for o in done if not _was_late(order, o)), default=0))
        done |= set(order[: at + 1])
        # What the books hold as open may be processed; what they have let go of must be.
        assert all(offset in late or offset in done for offset in order if offset in set(late) | done)
        gone = {o for o in range(12) if o not in late and _was_late(order, o)}
        assert gone <= done
        assert order[at] not in late


def _was_late(order: list[int], offset: int) -> bool:
    return any(other > offset for other in order[: order.index(offset)])


def test_what_was_not_returned_keeps_the_position_whatever_is_named() -> None:
    late = Late()
    late.released(3)
    late.done_up_to(100, 100)
    assert late.unprocessed() == 3
    late.gave(3, 11)
    late.done_up_to(11, 0)  # may be the record at 10, which was given before the one at 3
    assert late.unprocessed() == 3
    late.done_up_to(4, 0)
    assert late.unprocessed() == float("inf")


def _late(given: list[int], record_end: int) -> Late:
    """All that is below `record_end` was returned, and after it these."""
    late = Late()
    for offset in given:
        late.released(offset)
    for offset in given:
        late.gave(offset, record_end)
    return late


def test_the_highest_of_a_batch_covers_the_late_ones_before_it() -> None:
    """An application that names one offset for each batch: nothing else comes that would move the position."""
    late = _late([3, 4, 6], 11)
    late.done_up_to(7, 11)
    assert not late


def test_a_position_covers_no_higher_offset_and_nothing_that_came_later() -> None:
    """Another thread may be at work on these."""
    late = _late([8, 3, 6, 4], 11)
    late.done_up_to(7, 11)
    assert set(late) == {8, 4}


@pytest.mark.parametrize(("given", "failed", "processed"), [([2, 3], 4, 4), ([4, 2, 3], 4, 11)])
def test_where_the_application_has_failed_is_not_behind_a_late_record(
    given: list[int], failed: int, processed: int
) -> None:
    """It names the record that it could not process, which came before the late one below it: nothing else is done with."""
    late = _late(given, 11)
    late.done_up_to(failed, processed)
    assert set(late) == set(given) - {failed - 1}


def test_being_done_with_all_leaves_what_was_not_returned() -> None:
    late = Late()
    late.released(3)
    late.released(5)
    late.gave(3, 9)
    late.done_with_returned()
    assert (late.unprocessed(), late.unreturned()) == (5, 5)
