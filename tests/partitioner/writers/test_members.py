"""The in-sync writer set: only the latest incarnation of a writer counts, and nobody is forgotten too early."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.records.control_records import Lease, LeaseState, Ready
from keyorder.partitioner.writers.members import WriterSet

JOIN, LIVE, LEFT, EXPELLED = LeaseState.JOIN, LeaseState.LIVE, LeaseState.LEFT, LeaseState.EXPELLED


def _lease(
    nonce: str, state: LeaseState = JOIN, incarnation: int | None = None, sequence: int = 1, **other: object
) -> Lease:
    lease = Lease("M", nonce, state, incarnation, 45_000, sequence, ("t",))
    return replace(lease, **other)  # type: ignore[arg-type]


def _ready(nonce: str, epoch: int = 5, writer: str = "M", **acknowledged: int) -> Ready:
    return Ready("t", writer, nonce, epoch, {int(q[1:]): offset for q, offset in acknowledged.items()})


def _live(writers: WriterSet, topic: str = "t") -> list[str]:
    return sorted(member.lease.nonce for member in writers.live(topic))


@pytest.mark.kip("K903-01", "K903-03", "K903-08", "K903-16", "C-24", "T-11")
def test_a_delayed_ready_of_an_older_incarnation_completes_nothing() -> None:
    """M 17 says READY, the message is delayed; M comes back as 23; the old READY arrives: ineligible. 23's own counts."""
    writers = WriterSet()
    writers.apply(_lease("old"), 17, 0)
    writers.apply(_lease("new"), 23, 1)
    writers.apply(_ready("old"), 24, 2)
    assert writers.ineligible == 1
    assert not writers.is_ready("old", "t", 5)
    assert not writers.is_ready("new", "t", 5)
    writers.apply(_ready("new"), 25, 3)
    assert writers.is_ready("new", "t", 5)
    assert not writers.is_ready("old", "t", 5)


@pytest.mark.kip("K903-01", "K903-16", "T-11")
def test_a_ready_before_the_restart_stops_counting_with_it() -> None:
    """The other order: the old READY arrives in time, then the writer restarts: it no longer completes anything."""
    writers = WriterSet()
    writers.apply(_lease("old"), 17, 0)
    writers.apply(_ready("old"), 18, 1)
    assert writers.is_ready("old", "t", 5)
    writers.apply(_lease("new"), 23, 2)
    assert not writers.is_ready("old", "t", 5)
    assert not writers.is_ready("new", "t", 5)


@pytest.mark.kip("K903-01", "K903-05")
def test_an_incarnation_stays_superseded_when_the_newer_one_has_left() -> None:
    """The newest join that was ever seen counts: that it left since does not make the older one eligible again."""
    for last in (LEFT, EXPELLED):
        writers = WriterSet()
        writers.apply(_lease("old"), 17, 0)
        writers.apply(_lease("new"), 23, 1)
        writers.apply(_lease("new", last, 23, 2), 24, 2)
        writers.apply(_ready("old"), 25, 3)
        assert writers.ineligible == 1
        assert not writers.is_ready("old", "t", 5)


def test_a_superseded_join_stays_until_it_is_expelled() -> None:
    """Its process may be dead with a request on the wire: until its own lease is over a change has to wait for it."""
    writers = WriterSet()
    writers.apply(_lease("old"), 17, 100)
    writers.apply(_lease("new"), 23, 101)
    assert _live(writers) == ["new", "old"]
    old = writers.get("old")
    assert old is not None
    assert old.ends_at == 145
    writers.apply(_lease("old", EXPELLED, 17), 30, 146)
    assert _live(writers) == ["new"]


@pytest.mark.kip("K903-03")
@pytest.mark.parametrize("end", [LEFT, EXPELLED])
def test_late_records_of_a_join_that_is_over_change_nothing(end: LeaseState) -> None:
    """A renewal and a READY that land behind the end do not bring the join back; gone, it holds nothing up."""
    writers = WriterSet()
    writers.apply(_lease("n"), 3, 0)
    writers.apply(_lease("n", end, 3, 2), 4, 1)
    writers.apply(_lease("n", LIVE, 3, 3), 5, 2)
    writers.apply(_ready("n"), 6, 3)
    assert (_live(writers), writers.get("n"), writers.ineligible) == ([], None, 2)
    assert writers.is_ready("n", "t", 5)


@pytest.mark.kip("K903-10")
def test_a_join_that_was_never_seen_is_not_ready() -> None:
    """An unknown incarnation is refused, never let through."""
    writers = WriterSet()
    writers.apply(_ready("n"), 6, 3)
    assert writers.ineligible == 1
    assert not writers.is_ready("n", "t", 5)


@pytest.mark.kip("K903-04")
def test_a_recovering_reader_takes_the_incarnation_from_the_record() -> None:
    """The log cleaner kept only the old join's late renewal, behind the new join: its own incarnation still says it is older."""
    writers = WriterSet()
    writers.apply(_lease("new"), 23, 0)
    writers.apply(_lease("old", LIVE, 17, 9), 40, 0)
    writers.apply(_ready("old"), 41, 0)
    writers.apply(_ready("new"), 42, 0)
    assert writers.is_ready("new", "t", 5)
    assert not writers.is_ready("old", "t", 5)
    assert _live(writers) == ["new", "old"]


def test_a_copy_of_the_join_does_not_make_it_younger() -> None:
    """A JOIN that a retry wrote twice stands where it was first read; a renewal then says it for all readers."""
    writers = WriterSet()
    writers.apply(_lease("a"), 5, 0)
    writers.apply(_lease("b"), 7, 0)
    writers.apply(_lease("a"), 9, 0)
    writers.apply(_ready("b"), 10, 0)
    assert writers.is_ready("b", "t", 5)


def test_a_copy_that_was_read_first_is_put_right_by_a_renewal() -> None:
    """A recovering reader may find only the JOIN's copy, behind a newer join: the renewal says the true incarnation."""
    writers = WriterSet()
    writers.apply(_lease("new"), 7, 0)
    writers.apply(_lease("old"), 9, 0)
    writers.apply(_lease("old", LIVE, 5, 2), 10, 0)
    writers.apply(_ready("new"), 11, 0)
    assert writers.is_ready("new", "t", 5)


def test_a_recovering_reader_learns_of_a_newer_join_from_its_end() -> None:
    """The log cleaner kept only that the newer join left: the older one is superseded all the same."""
    writers = WriterSet()
    writers.apply(_lease("new", LEFT, 23, 4), 30, 0)
    writers.apply(_lease("old", LIVE, 17, 9), 31, 0)
    writers.apply(_ready("old"), 32, 0)
    assert not writers.is_ready("old", "t", 5)


def test_a_copy_of_an_older_record_takes_nothing_back() -> None:
    """The topics of a later renewal stay: or the change of a topic would not wait for a writer that writes to it."""
    writers = WriterSet()
    writers.apply(_lease("n", topics=()), 5, 0)
    writers.apply(_lease("n", LIVE, 5, 2), 6, 10)
    writers.apply(_lease("n", topics=()), 7, 20)
    assert _live(writers) == ["n"]
    member = writers.get("n")
    assert member is not None
    assert (member.lease.sequence, member.renewed_at, member.incarnation) == (2, 10, 5)


@pytest.mark.kip("C-24")
def test_ready_counts_for_exactly_its_attempt() -> None:
    """READY of an attempt that was given up does not count for the next one, nor does a late one take a newer back."""
    writers = WriterSet()
    writers.apply(_lease("n"), 5, 0)
    writers.apply(_ready("n", 3), 6, 0)
    assert not writers.is_ready("n", "t", 4)
    writers.apply(_ready("n", 4), 7, 0)
    writers.apply(_ready("n", 3), 8, 0)
    assert writers.is_ready("n", "t", 4)
    assert not writers.is_ready("n", "t", 3)
    assert not writers.is_ready("n", "other", 4)


def test_a_lease_is_counted_from_its_reading() -> None:
    """Each renewal read extends it; so this reader never takes a lease for over that its writer still holds."""
    writers = WriterSet()
    writers.apply(_lease("n"), 5, 10)
    writers.apply(_lease("n", LIVE, 5, 2), 6, 30)
    member = writers.get("n")
    assert member is not None
    assert member.ends_at == 75


def test_only_writers_of_the_topic_are_waited_for() -> None:
    """One process has one lease for all its topics; a topic's change concerns those that name it."""
    writers = WriterSet()
    writers.apply(_lease("n", topics=("u", "v")), 5, 0)
    writers.apply(replace(_lease("m", topics=("t",)), writer="W"), 6, 0)
    assert (_live(writers), _live(writers, "u")) == (["m"], ["n"])


def test_acknowledged_offsets_are_the_highest_of_that_attempt() -> None:
    """From every READY of the attempt, superseded ones too: they bound the cuts from below. Other attempts do not."""
    writers = WriterSet()
    for at, (nonce, writer) in enumerate([("a", "A"), ("b", "B"), ("c", "C")]):
        writers.apply(replace(_lease(nonce), writer=writer), at, 0)
    writers.apply(_ready("a", 5, "A", p0=10, p1=4), 10, 0)
    writers.apply(_ready("b", 5, "B", p0=7, p2=1), 11, 0)
    writers.apply(_ready("c", 4, "C", p0=99), 12, 0)
    assert writers.acknowledged("t", 5) == {0: 10, 1: 4, 2: 1}
    assert writers.acknowledged("t", 6) == {}


@pytest.mark.kip("K903-05")
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["JOIN", "LIVE", "LEFT", "EXPELLED", "READY"])), max_size=16)
)
def test_it_agrees_with_a_look_at_the_whole_log(history: list[tuple[int, str]]) -> None:
    """For any order of records of three joins of one writer: gone after its end, eligible only if it is the newest join."""
    writers = WriterSet()
    joined: dict[int, int] = {}
    ended: set[int] = set()
    said: dict[int, int] = {}
    for offset, (join, what) in enumerate(history):
        nonce = f"n{join}"
        if what == "READY":
            writers.apply(_ready(nonce), offset, 0)
            if join in joined and join not in ended and joined[join] == max(joined.values()):
                said[join] = offset
            continue
        incarnation = None if what == "JOIN" else joined.get(join)
        writers.apply(_lease(nonce, LeaseState(what), incarnation, offset), offset, 0)
        if what in ("LEFT", "EXPELLED"):
            ended.add(join)
        elif join not in ended:
            joined.setdefault(join, offset)
    alive = set(joined) - ended
    assert _live(writers) == sorted(f"n{join}" for join in alive)
    for join in range(3):
        newest = join in joined and joined[join] == max(joined.values())
        expected = join in ended or (join in said and newest)
        assert writers.is_ready(f"n{join}", "t", 5) == expected


def test_a_member_is_fenced_once_a_later_join_has_proven_that_it_holds_the_id() -> None:
    """Not by an earlier one, not by one that has proven nothing, not under another transactional id; for good."""
    writers = WriterSet()
    writers.apply(_lease("old", transactional_id="x"), 17, 0)
    writers.apply(_lease("other", incarnation=20, state=LIVE, transactional_id="y", proven=True), 21, 0)
    writers.apply(_lease("new", transactional_id="x"), 23, 1)
    assert not writers.is_fenced("old")
    writers.apply(_lease("new", LIVE, 23, 2, transactional_id="x", proven=True), 24, 2)
    assert writers.is_fenced("old")
    assert not writers.is_fenced("new")
    writers.apply(_lease("new", LEFT, 23, 3, transactional_id="x", proven=True), 25, 3)
    assert writers.is_fenced("old")


def test_who_joined_before_an_id_was_taken_is_fenced_though_nothing_was_written() -> None:
    """Below the end that the taker saw, at no offset above it, and not under another id; for good."""
    writers = WriterSet()
    for nonce, offset, name in (("old", 20, "x"), ("other", 21, "y"), ("late", 30, "x")):
        writers.apply(_lease(nonce, transactional_id=name), offset, 0)
    assert not writers.is_fenced("old")
    writers.apply(_lease("new", transactional_id="x", took_id_after=30), 31, 1)
    assert [nonce for nonce in ("old", "other", "late", "new") if writers.is_fenced(nonce)] == ["old"]
    writers.apply(_lease("new", LEFT, 31, 2, transactional_id="x", took_id_after=30), 32, 2)
    assert writers.is_fenced("old")
