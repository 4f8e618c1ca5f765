"""Who runs which task next. Pure: what is wanted, who is there and what has ended go in, slots come out.

A task moves in two steps: first it is nobody's, and its old member named in `was` ends it; only when that one has said
so, or has left the group, is it given to another. So no two members that are alive run one task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from .state import Slot

TaskKey = tuple[str, int]
Ended = Callable[[TaskKey, int], bool]


def plan(
    slots: Mapping[TaskKey, Slot],
    wanted: Collection[TaskKey],
    members: Collection[str],
    ended: Ended,
    waiting_for: Collection[str] = (),
    restart: Collection[TaskKey] = (),
    epoch: int = 0,
) -> dict[TaskKey, Slot]:
    """The slots as they should be now.

    members: who is in the group. ended: whether a run of a task has been reported as over. waiting_for: members that
    have left, whose tasks wait for their return. restart: tasks that begin a new run where they are. epoch: that of
    the assignment that `slots` is.
    """
    made: dict[TaskKey, Slot] = {}
    for key, slot in sorted(slots.items()):
        settled = _let_go(key, slot, members, waiting_for, ended)
        if key in wanted:
            if key in restart and settled.member is not None:
                settled = replace(settled, run=settled.run + 1)
            made[key] = settled
        elif settled.member is not None:
            made[key] = Slot(None, settled.member, settled.run)
        elif settled.was is not None:
            made[key] = settled
    for key in wanted:
        # A run never gets a number that the task has had before, be it of a connector that was deleted and made again: an
        # old state would pass for the new run's. Numbers grow by one an epoch at most, so none is above it.
        made.setdefault(key, Slot(None, None, epoch))
    if members:
        _give(made, wanted, members)
        _balance(made, members)
    return made


def _let_go(key: TaskKey, slot: Slot, members: Collection[str], waiting_for: Collection[str], ended: Ended) -> Slot:
    """The slot without those who are gone or done."""
    if slot.member is not None and slot.member not in members and slot.member not in waiting_for:
        return Slot(None, None, slot.run)
    if slot.was is not None and (slot.was not in members or ended(key, slot.run)):
        return Slot(None, None, slot.run)
    return slot


def _loads(slots: Mapping[TaskKey, Slot], members: Collection[str]) -> dict[str, int]:
    loads = dict.fromkeys(sorted(members), 0)
    for slot in slots.values():
        if slot.member in loads:
            loads[slot.member] += 1
    return loads


def _give(slots: dict[TaskKey, Slot], wanted: Collection[TaskKey], members: Collection[str]) -> None:
    loads = _loads(slots, members)
    for key in sorted(wanted):
        slot = slots[key]
        if slot.member is None and slot.was is None:
            member = min(loads, key=lambda m: (loads[m], m))
            loads[member] += 1
            slots[key] = Slot(member, None, slot.run + 1)


def _balance(slots: dict[TaskKey, Slot], members: Collection[str]) -> None:
    """Take tasks from members that have two more than another; they are given away when they have ended."""
    loads = _loads(slots, members)
    for slot in slots.values():
        if slot.was is not None:  # on its way to whoever has least
            loads[min(loads, key=lambda m: (loads[m], m))] += 1
    while True:
        most, least = max(loads, key=lambda m: (loads[m], m)), min(loads, key=lambda m: (loads[m], m))
        movable = [key for key, slot in slots.items() if slot.member == most]
        if loads[most] - loads[least] < 2 or not movable:
            return
        key = max(movable)
        slots[key] = Slot(None, most, slots[key].run)
        loads[most] -= 1
        loads[least] += 1
