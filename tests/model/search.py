"""Breadth-first search through every state of a small model.

A model gives its initial states, the steps out of a state, and says which states are complete. A step leads to another
state or to a `Fault`, the name of a broken property. The search visits every state once, in a fixed order, so the first
fault that it meets has a shortest trace, and the same model always gives the same result.

When no step is a fault, every state must be able to reach a complete one: the edges are walked backwards from the
complete states, and a state that was not met is a WEDGE. That is stronger than "no dead end" (it also finds states that
only go round in circles), and weaker than a promise that a fair run ends.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

WEDGE = "WEDGE"
LIMIT = 20_000_000

#: Whether the larger bounds are to be searched (`make model`); the others take seconds.
LARGE = os.environ.get("KEYORDER_MODEL") == "large"


class Fault(str):
    """A broken property, in place of the state that a step would have led to."""

    __slots__ = ()


Label = tuple[object, ...]


class Model(Protocol[S]):
    """What can be searched. States are hashable and compare by value; steps come in a fixed order."""

    def initial(self) -> Iterable[S]:
        """The states to begin with."""

    def steps(self, state: S) -> Iterable[tuple[Label, S | Fault]]:
        """Each action that is possible, named, and where it leads."""

    def complete(self, state: S) -> bool | Fault:
        """Whether all work is done; a Fault when it is done and the outcome is wrong."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found.

    states, edges: how many were visited. depth: steps from the start to the farthest state. exhaustive: whether every
    reachable state was visited, which a fault or the limit prevents. fault: the broken property, None without one.
    trace: the actions that lead there, in order. complete: how many complete states there are.
    """

    states: int
    edges: int
    depth: int
    exhaustive: bool
    complete: int
    fault: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The counts, and the counter-example step by step if there is one."""
        head = f"{self.states} states, {self.edges} steps, depth {self.depth}, {self.complete} complete"
        if self.fault is None:
            return head + ("" if self.exhaustive else ", CUT OFF")
        lines = [f"{head}: {self.fault} after {len(self.trace)} steps"]
        return "\n".join(lines + [f"{i:4d}  {action}" for i, action in enumerate(self.trace, 1)])


def search(model: Model[S], limit: int = LIMIT) -> Result:
    """Visit all states of `model`, at most `limit`; stop at the first fault."""
    numbers: dict[S, int] = {}
    states: list[S] = []
    parents = array("q")
    into, out_of = array("q"), array("q")
    done: list[int] = []

    def visit(state: S, parent: int) -> int:
        number = numbers[state] = len(states)
        states.append(state)
        parents.append(parent)
        return number

    for state in model.initial():
        if state not in numbers:
            visit(state, -1)
    at, depth, level_ends = 0, 0, len(states)
    while at < len(states):
        if at == level_ends:
            depth, level_ends = depth + 1, len(states)
        state = states[at]
        verdict = model.complete(state)
        if isinstance(verdict, Fault):
            trace = _trace(model, states, parents, at)
            return Result(len(states), len(into), depth, False, len(done), str(verdict), trace)
        if verdict:
            done.append(at)
        for label, after in model.steps(state):
            if after.__class__ is Fault:
                trace = (*_trace(model, states, parents, at), _text(label))
                return Result(len(states), len(into), depth, False, len(done), str(after), trace)
            number = numbers.get(after)  # type: ignore[arg-type]
            if number is None:
                if len(states) >= limit:
                    return Result(len(states), len(into), depth, False, len(done))
                number = visit(after, at)  # type: ignore[arg-type]
            out_of.append(at)
            into.append(number)
        at += 1
    stuck = _stuck(len(states), out_of, into, done)
    if stuck is not None:
        trace = _trace(model, states, parents, stuck)
        return Result(len(states), len(into), depth, True, len(done), WEDGE, trace)
    return Result(len(states), len(into), depth, True, len(done))


def _stuck(count: int, out_of: array[int], into: array[int], done: list[int]) -> int | None:
    """The first state from which no complete state can be reached, None when there is none."""
    starts = array("q", bytes(8 * (count + 1)))
    for number in into:
        starts[number + 1] += 1
    for number in range(count):
        starts[number + 1] += starts[number]
    sources, free = array("q", bytes(8 * len(into))), array("q", starts)
    for source, number in zip(out_of, into, strict=True):
        sources[free[number]] = source
        free[number] += 1
    reaches = bytearray(count)
    todo = list(done)
    for number in todo:
        reaches[number] = 1
    while todo:
        number = todo.pop()
        for source in sources[starts[number] : starts[number + 1]]:
            if not reaches[source]:
                reaches[source] = 1
                todo.append(source)
    first = reaches.find(0)
    if first < 0:
        return None
    # A dead end says more than the first state from which all ways lead to one.
    goes_on = set(out_of)
    return next((number for number in range(first, count) if not reaches[number] and number not in goes_on), first)


def _text(label: Label) -> str:
    return " ".join(str(part) for part in label)


def _trace(model: Model[S], states: list[S], parents: array[int], at: int) -> tuple[str, ...]:
    """The actions from a start to state `at`. Labels are not stored: the step is looked for again."""
    actions: list[str] = []
    while parents[at] >= 0:
        parent = parents[at]
        actions.append(next(_text(label) for label, after in model.steps(states[parent]) if after == states[at]))
        at = parent
    return tuple(reversed(actions))
