"""Positions where records come out behind later offsets: never past what is not processed, and never stuck below it."""

from __future__ import annotations

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
        late.done_up_to(position)
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
    late.done_up_to(100)
    assert late.unprocessed() == 3
    late.gave(3, 11)
    late.done_up_to(11)  # may be the record at 10, which was given before the one at 3
    assert late.unprocessed() == 3
    late.done_up_to(4)
    assert late.unprocessed() == float("inf")


def test_being_done_with_all_leaves_what_was_not_returned() -> None:
    late = Late()
    late.released(3)
    late.released(5)
    late.gave(3, 9)
    late.done_with_returned()
    assert (late.unprocessed(), late.unreturned()) == (5, 5)
