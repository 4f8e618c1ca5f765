"""The search itself: it visits everything once, tells the shortest way, and finds what cannot end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from model.search import Fault, Label, search


@dataclass(frozen=True)
class Walk:
    """Steps from number to number; complete at `goal`."""

    ways: dict[int, tuple[int, ...]]
    goal: int
    faults: tuple[tuple[int, str], ...] = ()

    def initial(self) -> Iterator[int]:
        """From zero."""
        yield 0

    def steps(self, state: int) -> Iterator[tuple[Label, int | Fault]]:
        """To each neighbour, and into the faults that lie here."""
        for after in self.ways.get(state, ()):
            yield (f"{state} to {after}",), after
        for at, fault in self.faults:
            if at == state:
                yield ("breaks",), Fault(fault)

    def complete(self, state: int) -> bool | Fault:
        """At the goal."""
        return state == self.goal


def test_every_state_is_visited_once() -> None:
    """Two ways to the same state are one state, two steps, and the shorter one is its depth."""
    result = search(Walk({0: (1, 2), 1: (3,), 2: (3,), 3: (4,)}, goal=4))
    assert (result.states, result.edges, result.depth, result.complete) == (5, 5, 3, 1)
    assert result.exhaustive
    assert result.fault is None


def test_a_fault_comes_with_its_shortest_trace() -> None:
    """The first in breadth, however many longer ways there are."""
    result = search(Walk({0: (1, 2), 1: (3,), 3: (2,)}, goal=2, faults=((2, "BAD"),)))
    assert (result.fault, result.trace) == ("BAD", ("0 to 2", "breaks"))


def test_a_dead_end_is_a_wedge() -> None:
    """A state without a step that is not complete."""
    result = search(Walk({0: (1, 2)}, goal=2))
    assert (result.fault, result.trace) == ("WEDGE", ("0 to 1",))


def test_a_circle_that_never_leads_to_the_goal_is_a_wedge() -> None:
    """It has steps for ever, and none of them helps."""
    result = search(Walk({0: (1, 3), 1: (2,), 2: (1,)}, goal=3))
    assert (result.fault, result.trace) == ("WEDGE", ("0 to 1",))


def test_a_circle_with_a_way_out_is_none() -> None:
    """What may go round may also end."""
    assert search(Walk({0: (1,), 1: (0, 2)}, goal=2)).fault is None


def test_a_search_that_was_cut_off_says_so() -> None:
    """It found nothing, which proves nothing."""
    result = search(Walk({n: (n + 1,) for n in range(100)}, goal=100), limit=10)
    assert (result.states, result.exhaustive, result.fault) == (10, False, None)
