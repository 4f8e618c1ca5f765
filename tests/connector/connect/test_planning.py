"""Who runs what: simulated members that come and go never run one task twice, and all tasks end up running, balanced."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.connector.connect.runtime.group.planning import plan
from keyorder.connector.connect.runtime.group.state import Slot


def never(key: tuple[str, int], run: int) -> bool:
    return False


def test_a_task_moves_only_when_its_old_member_has_ended_it() -> None:
    """Two steps: first nobody's, then another's, under a new run."""
    wanted = [("c", 0), ("c", 1)]
    first = plan({}, wanted, {"a"}, never)
    assert first == {("c", 0): Slot("a", None, 1), ("c", 1): Slot("a", None, 1)}
    second = plan(first, wanted, {"a", "b"}, never)
    assert second == {("c", 0): Slot("a", None, 1), ("c", 1): Slot(None, "a", 1)}
    assert plan(second, wanted, {"a", "b"}, never) == second
    assert plan(second, wanted, {"a", "b"}, lambda key, run: True)["c", 1] == Slot("b", None, 2)


def test_a_connector_that_was_deleted_and_is_made_again_has_runs_of_new_numbers() -> None:
    """Else the state of an old run would pass for the new run's: a worker that had ended it would never begin the new one."""
    slots = plan({}, [("c", 0)], {"a"}, never, epoch=4)
    run = slots["c", 0].run
    gone = plan(plan(slots, [], {"a"}, never, epoch=5), [], {"a"}, lambda key, run: True, epoch=6)
    assert gone == {}
    assert plan(gone, [("c", 0)], {"a"}, never, epoch=7)["c", 0].run > run


def test_tasks_of_a_member_that_has_gone_are_given_away_or_wait() -> None:
    """At once, or while its return is awaited."""
    slots = {("c", 0): Slot("gone", None, 4)}
    assert plan(slots, [("c", 0)], {"a"}, never) == {("c", 0): Slot("a", None, 5)}
    assert plan(slots, [("c", 0)], {"a"}, never, waiting_for={"gone"}) == slots


def test_a_task_that_is_not_wanted_keeps_its_slot_until_it_has_ended() -> None:
    """So that it is not begun anew elsewhere while it still runs."""
    slots = plan({("c", 0): Slot("a", None, 1)}, [], {"a", "b"}, never)
    assert slots == {("c", 0): Slot(None, "a", 1)}
    assert plan(slots, [("c", 0)], {"a", "b"}, never) == slots
    assert plan(slots, [], {"a", "b"}, lambda key, run: True) == {}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_two_members_ever_run_one_task(data: st.DataObject) -> None:
    """Random joins, deaths, wanted tasks, and ends told late; at quiet all wanted tasks run and loads differ by one."""
    slots: dict[tuple[str, int], Slot] = {}
    members = {"a"}
    running: dict[tuple[str, tuple[str, int]], int] = {}
    ended: dict[tuple[str, int], int] = {}
    wanted = [("c", i) for i in range(data.draw(st.integers(0, 7)))]

    def is_over(key: tuple[str, int], run: int) -> bool:
        return ended.get(key, -1) >= run

    def obey(member: str) -> None:
        for (who, key), run in list(running.items()):
            slot = slots.get(key)
            if who == member and (slot is None or slot.member != member or slot.run != run):
                del running[who, key]
                ended[key] = max(ended.get(key, -1), run)
        for key, slot in slots.items():
            if slot.was == member:  # perhaps taken away before it had begun
                ended[key] = max(ended.get(key, -1), slot.run)
            if slot.member == member and key in wanted:
                running[member, key] = slot.run

    for _ in range(data.draw(st.integers(0, 25))):
        what = data.draw(st.sampled_from(["plan", "obey", "join", "die", "want"]))
        if what == "plan":
            slots = plan(slots, wanted, members, is_over)
        elif what == "obey":
            obey(data.draw(st.sampled_from(sorted(members))))
        elif what == "join":
            members.add(f"m{len(members)}{data.draw(st.integers(0, 99))}")
        elif what == "die" and len(members) > 1:
            gone = data.draw(st.sampled_from(sorted(members)))
            members.discard(gone)
            running = {place: run for place, run in running.items() if place[0] != gone}
        elif what == "want":
            wanted = [("c", i) for i in range(data.draw(st.integers(0, 7)))]
        holders: dict[tuple[str, int], int] = {}
        for _, key in running:
            holders[key] = holders.get(key, 0) + 1
        assert max(holders.values(), default=0) <= 1
    for _ in range(30):
        slots = plan(slots, wanted, members, is_over)
        for member in members:
            obey(member)
    assert {key for _, key in running} == set(wanted)
    loads = [sum(who == member for who, _ in running) for member in members]
    assert max(loads) - min(loads) <= 1
