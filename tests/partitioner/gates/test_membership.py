"""A member that nobody polled for long doubts that it is one, until the group has taken a commit of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.gates.membership import (
    Answered,
    AskGroup,
    Doubted,
    Event,
    Here,
    Membership,
    MembershipMachine,
    Polled,
    Polling,
    Waiting,
    longest_silence,
)

PLACE = "t", 0


def _member(*started: bool, silence: float = 30.0) -> tuple[MembershipMachine[Any], dict[tuple[str, int], Any]]:
    owned: dict[tuple[str, int], Any] = {("t", p): SimpleNamespace(started=s) for p, s in enumerate(started)}
    return MembershipMachine(owned, silence, 0.0), owned


def test_a_member_that_is_polled_is_never_in_doubt() -> None:
    """However long it goes on, and nobody is asked."""
    member, _ = _member(True)
    said = [member.step(event, float(now)) for now in range(100) for event in (Here(), Polling(), Polled(), Waiting())]
    assert (said, member.state) == ([[]] * 400, Membership.CONFIRMED)


def test_either_silence_casts_doubt_and_both_at_once_are_told_once() -> None:
    """The application's, or the library's alone: a thread that is here and does not poll the library leaves the group too."""
    for here, polled in ((Here(), Polled()), (Polled(), Here())):
        member, owned = _member(True, False)
        assert member.step(polled, 4.9) == []
        assert member.step(here, 5.0) == [Doubted(5.0)]
        assert member.step(polled, 9.9) == []
        assert (member.state, member.in_doubt) == (Membership.DOUBTED, True)
        assert member.step(Waiting(), 9.9) == [AskGroup([owned[PLACE]])]


def test_nothing_is_told_or_asked_while_nothing_is_read() -> None:
    """What comes after the silence is in doubt once it is read: the library took part in that rebalance meanwhile."""
    member, owned = _member()
    assert member.step(Here(), 8.0) == []
    assert (member.in_doubt, member.step(Waiting(), 8.0)) == (False, [])
    owned[PLACE] = SimpleNamespace(started=False)
    assert not member.in_doubt
    owned[PLACE].started = True
    assert member.in_doubt
    assert member.step(Waiting(), 8.0) == [AskGroup([owned[PLACE]])]


def test_an_answer_from_before_the_library_has_spoken_confirms_nothing() -> None:
    """What it has to tell may be that the partitions are lost."""
    member, owned = _member(True)
    member.step(Here(), 8.0)
    assert member.step(Polling(), 8.0) == [AskGroup([owned[PLACE]])]
    member.step(Answered(True), 8.0)
    assert member.in_doubt
    member.step(Waiting(), 8.0)
    member.step(Answered(True), 8.0)
    assert not member.in_doubt


def test_an_answer_that_is_heard_too_late_confirms_nothing() -> None:
    """The process may have stood still while it came: what it tells is as old as the question."""
    member, owned = _member(True, silence=2.0)
    member.step(Here(), 8.0)
    assert member.step(Waiting(), 8.0) == [AskGroup([owned[PLACE]])]
    member.step(Answered(True), 10.0)
    assert member.in_doubt
    assert member.step(Waiting(), 10.1) == [AskGroup([owned[PLACE]])]
    member.step(Answered(True), 12.0)
    assert not member.in_doubt


def test_a_question_without_an_answer_leaves_the_doubt() -> None:
    """It was raised to the application instead: the next one is asked at once, and an answer to none says nothing."""
    member, owned = _member(True)
    member.step(Here(), 8.0)
    asked: list[Any] = [AskGroup([owned[PLACE]])]
    assert [member.step(Waiting(), 8.0), member.step(Waiting(), 8.0)] == [asked, asked]
    member.step(Answered(True), 8.1)
    assert member.state is Membership.CONFIRMED
    member.step(Here(), 20.0)
    member.step(Answered(True), 20.0)
    assert member.state is Membership.DOUBTED


def test_with_a_short_session_a_shorter_silence_casts_doubt() -> None:
    """The group gives a member up after a session: one of four seconds may be over when five have gone by."""
    member, owned = _member(True, silence=1.5)
    assert (member.step(Here(), 1.4), member.in_doubt) == ([], False)
    assert member.step(Here(), 2.9) == [Doubted(1.5)]
    assert member.step(Waiting(), 2.9) == [AskGroup([owned[PLACE]])]


@given(st.floats(0.001, 3600.0), st.floats(0.001, 3600.0))
def test_a_silence_without_doubt_and_a_heartbeat_before_it_are_within_the_session(
    session: float, heartbeat: float
) -> None:
    """Half of what is left of the session, wherever a tenth of it is left and the tenth of a second is within it."""
    silence = longest_silence(session, heartbeat)
    assert silence >= 0.1
    left = session - heartbeat
    if left >= max(session / 5, 0.2):
        assert silence == left / 2


EVENTS: list[Event] = [Here(), Polled(), Polling(), Waiting()]


GAPS, ANSWERS = st.floats(0.0, 7.0), st.sampled_from((0.0, 0.0, 3.0, 29.0, 31.0))


@given(st.lists(st.tuples(st.sampled_from(EVENTS), GAPS, st.booleans(), st.booleans(), ANSWERS), max_size=30))
def test_it_is_in_doubt_from_a_silence_to_the_first_word_that_counts(
    history: list[tuple[Event, float, bool, bool, float]],
) -> None:
    """Against a list of all that was seen, looked through from the start each time."""
    member, owned = _member(True)
    seen: list[tuple[str, float]] = [("here", 0.0), ("polled", 0.0)]
    now = 0.0
    for event, gap, started, taken, answer in history:
        now += gap
        owned[PLACE].started = started
        if isinstance(event, Here | Polled):
            seen.append(("here" if isinstance(event, Here) else "polled", now))
        asked = [action for action in member.step(event, now) if isinstance(action, AskGroup)]
        asks = isinstance(event, Waiting | Polling) and started and _doubted(seen)
        assert bool(asked) == (asks and now >= _next_question(seen))
        if asked:
            now += answer
            member.step(Answered(taken), now)
            if isinstance(event, Waiting):
                seen.append(("taken" if taken and answer < 30.0 else "refused", now))
        assert member.in_doubt == (started and _doubted(seen))


def _silences(seen: list[tuple[str, float]]) -> list[int]:
    """Where in the list somebody came back after five seconds or more."""
    found = []
    for at, (who, when) in enumerate(seen):
        before = [then for other, then in seen[:at] if other == who]
        if who in ("here", "polled") and before and when - before[-1] >= 5.0:
            found.append(at)
    return found


def _doubted(seen: list[tuple[str, float]]) -> bool:
    silences = _silences(seen)
    return bool(silences) and not any(what == "taken" for what, _ in seen[silences[-1] :])


def _next_question(seen: list[tuple[str, float]]) -> float:
    """At once after a silence, a tenth of a second after a refusal."""
    last = _silences(seen)[-1]
    return max([seen[last][1], *(when + 0.1 for what, when in seen[last:] if what == "refused")])
