"""The table of a change: what cannot happen is refused; and random runs never commit without the whole set."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.changes import change as machine
from keyorder.partitioner.changes.events import (
    Action,
    CopyTooLate,
    CutsRead,
    EnsurePartitions,
    Event,
    Expel,
    IllegalEventError,
    LookAtWriters,
    PartitionsReady,
    Phase,
    ReadCuts,
    Started,
    TimelineVisible,
    WritersLooked,
    WritersRead,
    WriteTimeline,
)
from keyorder.partitioner.changes.plan import rehearse
from keyorder.partitioner.changes.terms import ChangeTerms
from keyorder.partitioner.epochs import ChangePhase, Slice
from keyorder.partitioner.records.control_records import LeaseState
from support.change_rig import RETIRED, START, Rig

EVENTS: tuple[Event, ...] = (
    Started(START),
    TimelineVisible(START),
    PartitionsReady(),
    WritersLooked(0.0),
    WritersRead(),
    CutsRead({}, 0),
    CopyTooLate(),
)


def _in_phase(phase: Phase) -> Rig:
    """A machine that has come to `phase` by legal steps."""
    if phase is Phase.CLEARING:
        rig = Rig(timeline=START.opened(4, ChangePhase.PREPARE))
        rig.started()
        return rig
    if phase in (Phase.DONE, Phase.FAILED):
        rig = Rig(target=2 if phase is Phase.DONE else 1)
        rig.started()
        return rig
    rig = Rig()
    if phase is Phase.COPYING:
        rig = Rig(2, RETIRED, piece=Slice(2, 0, 9)).collecting()
        rig.step(CutsRead({0: 20}, 1))
        return rig
    if phase is Phase.ABORTING:
        rig.collecting("a")
        rig.read(later=5)
    for reached in (
        rig.started,
        rig.announced,
        rig.visible,
        rig.looked,
        lambda: rig.step(CutsRead({0: 0, 2: 0}, 1)),
    ):
        if rig.machine.phase is phase:
            break
        reached()
    return rig


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_that_cannot_happen_is_refused_and_changes_nothing(phase: Phase, event: Event) -> None:
    """Every pair of phase and event: it stands in the table, or it raises and the machine is as it was."""
    rig = _in_phase(phase)
    assert rig.machine.phase is phase
    before = dict(vars(rig.machine))
    if (phase.value, type(event).__name__) in machine.transitions():
        return
    with pytest.raises(IllegalEventError, match=f"{type(event).__name__} in phase {phase.value}"):
        rig.step(event)
    assert vars(rig.machine) == before


@pytest.mark.parametrize("phase", [Phase.CLEARING, Phase.PREPARING, Phase.COMMITTING, Phase.COPYING, Phase.ABORTING])
def test_writers_news_at_other_times_lead_to_nothing(phase: Phase) -> None:
    """They are folded in; while a timeline is on its way out there is nothing to decide."""
    rig = _in_phase(phase)
    before = dict(vars(rig.machine))
    assert rig.read() == rig.looked() == []
    assert vars(rig.machine) == before


def test_nothing_follows_an_end() -> None:
    """DONE and FAILED know no event."""
    assert not [pair for pair in machine.transitions() if pair[0] in ("DONE", "FAILED")]


def test_a_rehearsal_writes_nothing() -> None:
    """The timeline as it would be PREPAREd, under the next number, with whatever is open left out."""
    rehearsed = rehearse(START.opened(5, ChangePhase.PREPARE), 4)
    assert rehearsed.change is not None
    assert (rehearsed.change.epoch, rehearsed.change.count, rehearsed.change.phase) == (2, 4, ChangePhase.PREPARE)
    assert rehearsed.epochs == START.epochs


# --- whatever happens -----------------------------------------------------------------------------------------


def _random_run(seed: int) -> tuple[int, int]:
    """Random news in random order. Asserts at each COMMIT and each EXPEL; returns how many of each there were."""
    random = Random(seed)
    rig = Rig(target=random.choice([3, 4]), terms=ChangeTerms(5, 20, 200), wait=random.random() < 0.3)
    nonces = [("a", "A"), ("b", "B"), ("c", "A")][: random.randint(1, 3)]
    slow = random.choice([0.01, 0.1])
    rig.lease("a", writer="A", lease_ms=15_000)
    pending: list[Action] = rig.started()
    looks: list[float] = []
    prepared_at: float | None = None
    in_sync: set[str] | None = None
    said: dict[str, set[int]] = {nonce: set() for nonce, _ in nonces}
    gone: set[str] = set()
    commits = expulsions = 0
    for _ in range(250):
        if rig.machine.phase in (Phase.DONE, Phase.FAILED):
            break
        rig.now += 6.0 if random.random() < slow else random.choice([0.0, 0.1, 0.2])
        what = random.randrange(9)
        actions: list[Action] = []
        nonce, writer = random.choice(nonces)
        collecting = rig.machine.phase is Phase.COLLECTING
        open_change = rig.machine.timeline.change if rig.machine.timeline else None
        if what <= 1:
            rig.lease(nonce, writer=writer, lease_ms=15_000)
        elif what == 2 and open_change is not None:
            epoch = open_change.epoch - (random.random() < 0.2)
            superseded = nonce == "a" and "c" in rig.sequences
            rig.ready(nonce, epoch, writer=writer)
            if rig.writers.get(nonce) is not None and not superseded:
                said[nonce].add(epoch)
        elif what == 3 and random.random() < 0.1:
            if nonce in rig.sequences:
                rig.lease(nonce, LeaseState.LEFT, writer=writer)
                gone.add(nonce)
        elif what == 4 and looks:
            began = looks.pop(random.randrange(len(looks)))
            if collecting and prepared_at is not None and began >= prepared_at and in_sync is None:
                in_sync = {member.lease.nonce for member in rig.writers.live("t")}
            if (rig.machine.phase.value, "WritersLooked") in machine.transitions():
                actions = rig.step(WritersLooked(began))
        elif what in (5, 8) and pending:
            doing = pending.pop(0)
            if isinstance(doing, WriteTimeline):
                rig.timeline = doing.timeline
                if doing.timeline.change is not None and doing.timeline.change.phase is ChangePhase.PREPARE:
                    prepared_at, in_sync = rig.now, None
                actions = rig.step(TimelineVisible(doing.timeline))
            elif isinstance(doing, EnsurePartitions):
                actions = rig.step(PartitionsReady())
            elif isinstance(doing, LookAtWriters):
                looks.append(rig.now)
            elif isinstance(doing, Expel):
                rig.lease(doing.nonce, LeaseState.EXPELLED, writer=dict(nonces)[doing.nonce])
                gone.add(doing.nonce)
            elif isinstance(doing, ReadCuts) and rig.machine.phase is Phase.CUTTING:
                actions = rig.step(CutsRead(dict.fromkeys(doing.partitions, 9), 1))
        elif what in (6, 7) and rig.machine.phase is not Phase.BEGIN:
            actions = rig.read()
        for action in actions:
            if isinstance(action, Expel):
                expulsions += 1
                member = rig.writers.get(action.nonce)
                assert member is not None
                assert member.ends_at <= rig.now
            if isinstance(action, WriteTimeline) and len(action.timeline.epochs) > len(rig.timeline.epochs):
                commits += 1
                assert in_sync is not None
                epoch = action.timeline.newest.number
                assert all(epoch in said[nonce] or nonce in gone for nonce in in_sync), seed
        pending += actions
    return commits, expulsions


@pytest.mark.kip("K253-26", "K253-29", "K903-08")
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_a_commit_needs_ready_from_the_whole_set_for_exactly_that_epoch(seed: int) -> None:
    """Whatever the order of renewals, READYs, restarts, ends, looks and delays."""
    _random_run(seed)


def test_the_random_runs_reach_what_they_are_for() -> None:
    """They commit, they expel, and some do neither."""
    runs = [_random_run(seed) for seed in range(150)]
    assert sum(commits for commits, _ in runs) > 30
    assert sum(expulsions for _, expulsions in runs) > 3
    assert any(commits == 0 for commits, _ in runs)
