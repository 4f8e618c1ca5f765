"""After a standstill everything waits for the group's word, also what is assigned before that has come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from keyorder.connector import clock
from keyorder.connector.consuming.membership_check import MembershipCheck
from support.logged import logged


class Group:
    """In the place of the committer: it takes commits, or does not, and keeps for what it was asked."""

    def __init__(self) -> None:
        self.takes = False
        self.asked: list[list[Any]] = []

    def confirms(self, owned: list[Any]) -> bool:
        self.asked.append(owned)
        return self.takes


def test_an_assignment_that_comes_after_a_standstill_is_in_doubt_too() -> None:
    """The library had taken part in that rebalance while nobody polled; the group may have gone on without this member."""
    members: Any = SimpleNamespace(owned={})
    group: Any = Group()
    standstill = MembershipCheck(members, group, 30.0)
    away = clock.now() + 8.0
    standstill.look(away)
    assert not standstill.in_doubt  # nothing is owned

    late = SimpleNamespace(started=False)
    members.owned["t", 0] = late
    assert not standstill.in_doubt  # nothing is read of it yet
    late.started = True
    assert standstill.in_doubt
    assert not standstill.settle(away)
    assert group.asked == [[late]]
    assert not standstill.settle(clock.now())  # not at once again
    assert len(group.asked) == 1

    group.takes = True
    later = away + 60
    assert standstill.settle(later)
    members.owned["t", 1] = SimpleNamespace(started=True)
    assert not standstill.in_doubt  # the group has given its word since


def test_the_group_is_asked_before_the_library_and_its_answer_does_not_end_the_doubt() -> None:
    """What the library has to tell may be that the partitions are lost: only what the group says after that counts."""
    read = SimpleNamespace(started=True)
    members: Any = SimpleNamespace(owned={("t", 0): read})
    group: Any = Group()
    group.takes = True
    standstill = MembershipCheck(members, group, 30.0)
    standstill.ask(clock.now())
    assert group.asked == []  # no doubt
    away = clock.now() + 8.0
    standstill.look(away)
    standstill.ask(away)
    assert group.asked == [[read]]
    assert standstill.in_doubt


def test_one_standstill_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The application and the library were both away, for the same time; another one is told again."""
    members: Any = SimpleNamespace(owned={("t", 0): SimpleNamespace(started=True)})
    group: Any = Group()
    group.takes = True
    caplog.set_level("INFO")
    standstill = MembershipCheck(members, group, 30.0)
    for times in (1, 2):
        away = clock.now() + 60.0 * times
        standstill.look(away)
        standstill.served(away)
        assert [record.getMessage()[:12] for record in logged(caplog)] == ["nobody polle"] * times
        assert standstill.settle(away)
