"""Whom an answer for the ends of control logs serves: a look that one client made is the look of others, never a newer one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.link.known_ends import Ends, KnownEnd, KnownEnds

A, B = ("_keyorder", 0), ("_keyorder_writers", 3)


def test_an_answer_serves_who_asks_for_no_newer_one() -> None:
    """Its question began when that was asked for, or later."""
    known = KnownEnds()
    known.keep(10.0, {A: 7}, {A: 5})
    for since in (9.0, 10.0):
        assert known.serving([A], since) == Ends(10.0, {A: KnownEnd(10.0, 7, 5)})


def test_what_was_asked_before_never_serves_a_later_need() -> None:
    """The answer may have come after that moment: what was written between the question and that moment is not in it."""
    known = KnownEnds()
    known.keep(10.0, {A: 7}, {A: 5})
    assert known.serving([A], 10.000001) is None


def test_it_is_as_old_as_the_oldest_question() -> None:
    """Of several slots; one that nobody asked for has no answer at all."""
    known = KnownEnds()
    known.keep(10.0, {A: 7}, {})
    assert known.serving([A, B], 0.0) is None
    known.keep(12.0, {B: 1}, {})
    assert known.serving([A, B], 11.0) is None
    found = known.serving([A, B], 10.0)
    assert found is not None
    assert found.asked == 10.0


def test_an_older_question_changes_nothing() -> None:
    """Its answer has come late: a newer one stands, with what was read before it."""
    known = KnownEnds()
    known.keep(12.0, {A: 9}, {A: 8})
    known.keep(10.0, {A: 7}, {A: 5})
    assert known.serving([A], 12.0) == Ends(12.0, {A: KnownEnd(12.0, 9, 8)})


def test_the_answer_of_a_leader_that_is_behind_is_so_for_everybody() -> None:
    """It ends below what had been handed out before the question. What is read after the question says nothing of it."""
    known = KnownEnds()
    known.keep(10.0, {A: 7, B: 4}, {A: 7, B: 5})
    for slots, behind in (([A], None), ([A, B], (B, 5, 4)), ([B], (B, 5, 4))):
        found = known.serving(slots, 10.0)
        assert found is not None
        assert found.behind == behind


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.sampled_from([(A,), (B,), (A, B)])), max_size=12),
    st.integers(0, 20),
)
def test_nobody_is_told_an_end_from_before_their_need(
    questions: list[tuple[int, int, tuple[object, ...]]], since: int
) -> None:
    """Logs grow by a record each second, and questions are answered out of order: an end that serves `since` is beyond it."""
    known = KnownEnds()
    for asked, _, slots in sorted(questions, key=lambda question: question[0] + question[1]):
        known.keep(asked, dict.fromkeys(slots, asked), {})  # type: ignore[misc]
    found = known.serving([A, B], since)
    wanted = [max((asked for asked, _, slots in questions if slot in slots), default=None) for slot in (A, B)]
    if found is None:
        assert any(asked is None or asked < since for asked in wanted)
    else:
        assert [each.end for each in found.known.values()] == wanted
        assert found.asked >= since
        assert all(each.end >= since for each in found.known.values())
