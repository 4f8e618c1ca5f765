"""What the brokers' stamps save: a lease that was over before the change, and the distance of two commits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from keyorder.partitioner.changes.events import (
    Expel,
    LookAtWriters,
    PartitionsReady,
    Phase,
    StampWriters,
    WritersStamped,
    WriteTimeline,
)
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.records.control_records import LeaseState
from keyorder.partitioner.stamps import Stamp
from support.change_rig import Rig

LEASE = Stamp(3, 7, 1_000_000)
LATER = replace(LEASE, at_ms=LEASE.at_ms + 120_000)
PLAN = Stamp(0, 2, LATER.at_ms)


def planned(stamp: Stamp | None = LEASE, plan: Stamp | None = PLAN) -> tuple[Rig, list[object]]:
    """A writer died, and a fresh controller reads its lease and its own PLAN. What follows from that."""
    rig = Rig()
    rig.stamp = stamp
    rig.lease("dead")
    rig.now += 0.1
    rig.started()
    rig.step(PartitionsReady())
    return rig, list(rig.visible(plan))


def test_a_lease_that_was_over_before_costs_nothing() -> None:
    """No time passes until PREPARE: the leader's clock says that the lease was over, and a look that nothing came after."""
    rig, actions = planned()
    began = rig.now
    assert actions == [StampWriters((3,))]

    assert rig.step(WritersStamped({3: LATER}, LATER.at_ms)) == [LookAtWriters()]
    assert rig.looked() == [Expel("dead", over_before=True)]
    rig.lease("dead", LeaseState.EXPELLED)
    (prepare,) = rig.read()

    assert isinstance(prepare, WriteTimeline)
    assert prepare.timeline.change is not None
    assert (prepare.timeline.change.phase, rig.now) == (ChangePhase.PREPARE, began)


@pytest.mark.parametrize(
    ("stamp", "wall_ms"),
    [
        (None, LATER.at_ms),  # it could not be had
        (replace(LATER, leader_epoch=8), LATER.at_ms),  # another leader: another clock
        (replace(LATER, partition=4), LATER.at_ms),
        (replace(LATER, at_ms=LEASE.at_ms - 1), LATER.at_ms),  # the clock went back
        (replace(LATER, at_ms=LEASE.at_ms + 46_000), LATER.at_ms),  # over, but for the margin
        (LATER, LEASE.at_ms + 46_000),  # the leader's clock was set; the controller's own says no
    ],
)
def test_where_stamps_prove_nothing_the_lease_is_waited_for(stamp: Stamp | None, wall_ms: int) -> None:
    """The whole of it, counted from this controller's own reading."""
    rig, _ = planned()

    assert rig.step(WritersStamped({} if stamp is None else {3: stamp}, wall_ms)) == []

    assert rig.read(later=44.8) == []
    assert rig.machine.late == ("w-dead",)
    assert rig.read(later=0.2) == [LookAtWriters()]
    assert rig.looked() == [Expel("dead")]


@pytest.mark.parametrize(
    ("stamp", "plan"), [(None, PLAN), (LEASE, None), (replace(LEASE, at_ms=PLAN.at_ms - 5_000), PLAN)]
)
def test_nobody_is_asked_where_it_is_no_use(stamp: Stamp | None, plan: Stamp | None) -> None:
    """A topic whose brokers do not stamp records, and a writer that was heard of a moment ago."""
    assert planned(stamp, plan)[1] == []


def test_a_writer_that_renews_after_the_stamp_stays() -> None:
    """Its lease was over and it has not noticed yet, or it has joined anew: the look shows a record of it."""
    rig, _ = planned()
    assert rig.step(WritersStamped({3: LATER}, LATER.at_ms)) == [LookAtWriters()]
    rig.stamp = replace(LATER, at_ms=LATER.at_ms + 5)
    rig.lease("dead")

    (prepare,) = rig.looked()

    assert isinstance(prepare, WriteTimeline)


def test_a_look_that_began_before_the_stamp_proves_nothing() -> None:
    """What it did not see may have been appended before the stamp."""
    rig, _ = planned()
    rig.now += 1
    assert rig.step(WritersStamped({3: LATER}, LATER.at_ms)) == [LookAtWriters()]

    assert rig.looked(ago=0.5) == []
    assert rig.read(later=43.9) == [LookAtWriters()]


def test_stamps_that_come_late_change_nothing() -> None:
    """The roll call may have ended by its time-out meanwhile."""
    rig, _ = planned()
    rig.now += 200
    assert rig.read() == [LookAtWriters()]
    rig.read()
    assert rig.machine.phase is Phase.ABORTING
    assert rig.step(WritersStamped({3: LATER}, LATER.at_ms)) == []


def prepare_after(last: Stamp | None, plan: Stamp | None) -> float:
    """Seconds from a controller's start to its PREPARE, with the stamps of the newest record and of its PLAN."""
    rig = Rig(wait=True)
    began = rig.now
    rig.started(last)
    rig.step(PartitionsReady())
    actions = rig.visible(plan)
    while not actions:
        actions = rig.read(later=0.125)
    assert [type(a) for a in actions] == [WriteTimeline]
    return rig.now - began


def commit(ago_ms: int, leader_epoch: int = 2) -> Stamp:
    """The newest record before a PLAN."""
    return Stamp(0, leader_epoch, PLAN.at_ms - ago_ms)


@pytest.mark.parametrize(
    ("last", "plan", "seconds"),
    [
        (commit(60_000), PLAN, 0.0),
        (commit(9_000), PLAN, 0.0),  # two view ages of 2 s, and 5 s in which a transaction becomes visible
        (commit(7_000), PLAN, 2.0),
        (commit(1_000), PLAN, 4.0),
        (commit(0), PLAN, 4.0),
        (commit(-1), PLAN, 4.0),  # the clock went back
        (commit(60_000, leader_epoch=1), PLAN, 4.0),
        (None, PLAN, 4.0),
        (commit(60_000), None, 4.0),
    ],
)
def test_two_commits_lie_two_view_ages_apart(last: Stamp | None, plan: Stamp | None, seconds: float) -> None:
    """A new controller waits for what is left of it, and all of it where the stamps cannot be compared."""
    assert prepare_after(last, plan) == seconds
