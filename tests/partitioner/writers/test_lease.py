"""A writer's lease: when it may send, when it must stop, and that a controller never expels one that still sends."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.errors import ConfigError
from keyorder.partitioner.records.control_records import Lease, LeaseState
from keyorder.partitioner.writers.lease import LeaseKeeper, LeaseTerms, Standing
from keyorder.partitioner.writers.members import WriterSet

TERMS = LeaseTerms(lease=45, renew_interval=10, delivery_timeout=20, margin=2)
NEVER = float("-inf")


def _live(now: float = 100.0, offset: int = 5) -> tuple[LeaseKeeper, Lease]:
    """A writer that joined at `now` and read its JOIN back at once; and that JOIN."""
    keeper = LeaseKeeper("M", TERMS)
    join = keeper.join("n1", ["t"], now)
    keeper.read(join, offset, now)
    assert keeper.standing is Standing.LIVE
    return keeper, join


def test_the_defaults_hold_the_rule() -> None:
    """renew interval + delivery timeout + margin < lease: 10 + 20 + 2 < 45."""
    assert LeaseTerms() == TERMS


@pytest.mark.parametrize(
    "terms",
    [
        (32, 10, 20, 2),
        (31.9, 10, 20, 2),
        (45, 10, 33, 2),
        (45, 24, 20, 2),
        (0, 10, 20, 2),
        (45, 0, 20, 2),
        (45, 10, 0, 2),
    ],
)
def test_terms_that_would_let_a_late_record_through_are_refused(terms: tuple[float, float, float, float]) -> None:
    """At equality too; the text names the setting to raise and the one to lower."""
    with pytest.raises(ConfigError, match=r"keyorder\.lease\.ms.*delivery\.timeout\.ms"):
        LeaseTerms(*terms)
    LeaseTerms(32.1, 10, 20, 2)


def test_a_lease_counts_from_before_its_record_was_sent() -> None:
    """However long the way back took: the end is that of the sending; what is sent has time for all its retries."""
    keeper = LeaseKeeper("M", TERMS)
    join = keeper.join("n1", ["t"], 100)
    assert (keeper.standing, keeper.send_until, keeper.incarnation) == (Standing.JOINING, NEVER, None)
    keeper.read(join, 7, 130)
    assert (keeper.standing, keeper.incarnation, keeper.send_until) == (Standing.LIVE, 7, 100 + 45 - 20 - 2)
    assert keeper.confirmed == {"t"}


@pytest.mark.kip("K903-02")
def test_nothing_is_sent_before_the_join_was_read_back() -> None:
    """Sent is not read: until then others may not know of this writer. After a lease's time the JOIN is void."""
    keeper = LeaseKeeper("M", TERMS)
    join = keeper.join("n1", ["t"], 100)
    keeper.tick(144.9)
    assert keeper.standing is Standing.JOINING
    assert keeper.renew(120) is None
    keeper.tick(145)
    assert keeper.standing is Standing.LAPSED
    keeper.read(join, 7, 145)
    assert (keeper.standing, keeper.send_until) == (Standing.LAPSED, NEVER)


@pytest.mark.kip("K903-04")
def test_renewals_are_due_by_the_interval_by_request_and_for_new_topics() -> None:
    """Every record carries the full state, the incarnation and the next sequence."""
    keeper, join = _live()
    assert keeper.renew(109.9) is None
    first = keeper.renew(110)
    assert first == Lease("M", "n1", LeaseState.LIVE, 5, 45_000, join.sequence + 1, ("t",), None, 0)
    assert keeper.renew(111) is None
    asked = keeper.renew(111, due=True)
    assert asked is not None
    grown = keeper.renew(112, topics=["u", "t"])
    assert grown is not None
    assert (grown.topics, grown.sequence) == (("t", "u"), join.sequence + 3)
    assert keeper.renew(113, topics=["t", "u"]) is None
    assert keeper.confirmed == {"t"}
    keeper.read(grown, 9, 113)
    assert keeper.confirmed == {"t", "u"}
    assert keeper.send_until == 112 + 45 - 22


def test_a_renewal_read_back_in_time_extends_the_lease() -> None:
    """From when it was sent; one that is skipped on the way is made good by the next."""
    keeper, _ = _live()
    lost, kept = keeper.renew(110), keeper.renew(120)
    assert lost is not None
    assert kept is not None
    keeper.read(kept, 9, 144)
    assert keeper.send_until == 120 + 45 - 22
    keeper.read(lost, 10, 144.5)
    assert keeper.send_until == 120 + 45 - 22


def test_a_renewal_read_back_after_the_end_revives_nothing() -> None:
    """It may lie behind an EXPELLED and a commit that this writer has not read yet; so the lapse is final."""
    keeper, _ = _live()
    renewal = keeper.renew(140)
    assert renewal is not None
    keeper.read(renewal, 9, 145)
    assert (keeper.standing, keeper.send_until) == (Standing.LAPSED, NEVER)
    assert keeper.renew(146, due=True) is None
    keeper.read(replace(renewal, sequence=3), 10, 146)
    assert keeper.standing is Standing.LAPSED


def test_after_a_lapse_the_writer_joins_anew_under_another_nonce() -> None:
    """The old join's records count for nothing any more."""
    keeper, old = _live()
    renewal = keeper.renew(140)
    keeper.tick(145)
    join = keeper.join("n2", ["t"], 150)
    assert (join.nonce, join.state, join.incarnation, join.sequence) == ("n2", LeaseState.JOIN, None, 1)
    assert renewal is not None
    for late in (old, renewal):
        keeper.read(late, 20, 151)
        assert keeper.standing is Standing.JOINING
    keeper.read(join, 21, 152)
    assert (keeper.standing, keeper.incarnation) == (Standing.LIVE, 21)


def test_a_copy_of_its_own_record_changes_nothing() -> None:
    """A retry wrote the JOIN twice: the incarnation is where it was read first; the copy extends no lease."""
    keeper, join = _live(offset=5)
    keeper.read(join, 6, 130)
    assert (keeper.incarnation, keeper.send_until, keeper.standing) == (5, 123, Standing.LIVE)
    renewal = keeper.renew(110)
    assert renewal is not None
    for offset in (7, 8):
        keeper.read(renewal, offset, 115)
    assert keeper.send_until == 133
    keeper.read(join, 9, 140)
    assert (keeper.incarnation, keeper.send_until) == (5, 133)


@pytest.mark.kip("K903-01", "K903-08")
def test_two_processes_with_one_id_the_newer_goes_on() -> None:
    """The older reads the newer's JOIN and stops for good; the newer reads the older's renewals and does not care."""
    older, join_1 = _live(offset=5)
    newer = LeaseKeeper("M", TERMS)
    join_2 = newer.join("n2", ["t"], 101)
    renewal_1 = older.renew(101, due=True)
    assert renewal_1 is not None
    for lease, offset in ((join_1, 5), (join_2, 8), (renewal_1, 9)):
        newer.read(lease, offset, 102)
        older.read(lease, offset, 102)
    assert (older.standing, older.send_until) == (Standing.SUPERSEDED, NEVER)
    assert (newer.standing, newer.incarnation) == (Standing.LIVE, 8)
    assert older.renew(103, due=True) is None
    again = newer.renew(103, due=True)
    assert again is not None
    older.read(again, 10, 103)
    assert older.standing is Standing.SUPERSEDED


@pytest.mark.kip("K903-01")
def test_a_copy_of_an_older_processs_join_supersedes_nobody() -> None:
    """A retry wrote the older JOIN again, behind the newer one: both readers would stop if it counted by its place."""
    older, join_1 = _live(offset=5)
    newer = LeaseKeeper("M", TERMS)
    join_2 = newer.join("n2", ["t"], 101)
    for lease, offset in ((join_1, 5), (join_2, 8), (join_1, 9)):
        newer.read(lease, offset, 102)
    assert newer.standing is Standing.LIVE
    assert older.standing is Standing.LIVE


def test_a_copy_of_its_own_earlier_join_supersedes_nobody() -> None:
    """The same, for a process that lapsed and joined again."""
    keeper, join_1 = _live(offset=5)
    keeper.tick(145)
    join_2 = keeper.join("n2", ["t"], 150)
    keeper.read(join_2, 8, 150)
    keeper.read(join_1, 9, 151)
    assert keeper.standing is Standing.LIVE


@pytest.mark.parametrize("state", [LeaseState.LEFT, LeaseState.EXPELLED])
def test_the_end_of_another_join_does_not_concern_it(state: LeaseState) -> None:
    """A controller expels the older process: the newer one reads that and goes on."""
    keeper, _ = _live(offset=5)
    keeper.read(Lease("M", "other", state, 9, 45_000, 4, ("t",)), 9, 101)
    assert keeper.standing is Standing.LIVE


def test_an_expelled_writer_stops() -> None:
    """It reads EXPELLED under its own nonce: a renewal of it behind that counts for nothing."""
    keeper, join = _live()
    renewal = keeper.renew(110)
    keeper.read(replace(join, state=LeaseState.EXPELLED), 8, 111)
    assert (keeper.standing, keeper.send_until) == (Standing.LAPSED, NEVER)
    assert renewal is not None
    keeper.read(renewal, 9, 112)
    assert keeper.standing is Standing.LAPSED


def test_leaving() -> None:
    """A writer that had joined says LEFT once; one that never did, or was superseded, says nothing."""
    keeper, _ = _live()
    left = keeper.leave(101)
    assert left is not None
    assert (left.state, left.incarnation, keeper.standing) == (LeaseState.LEFT, 5, Standing.CLOSED)
    assert keeper.send_until == NEVER
    assert keeper.leave(102) is None
    assert keeper.renew(200, due=True) is None
    assert LeaseKeeper("M", TERMS).leave(1) is None


def test_the_next_timer_is_the_next_thing_to_do() -> None:
    """A JOIN on its way has until its lease's end; then renewals come first; one that is out has nothing to do."""
    keeper = LeaseKeeper("M", TERMS)
    assert keeper.next_timer() == float("inf")
    join = keeper.join("n1", ["t"], 100)
    assert keeper.next_timer() == 145
    keeper.read(join, 5, 101)
    assert keeper.next_timer() == 110
    for at in (110, 120, 130, 140):
        keeper.renew(at)
    assert keeper.next_timer() == 145
    keeper.tick(145)
    assert keeper.next_timer() == float("inf")


def test_every_record_carries_what_a_controller_needs_to_fence() -> None:
    """The transactional id and its timeout: full state, since the log keeps only the last record of a key."""
    keeper = LeaseKeeper("M", TERMS, transactional_id="tx", transaction_timeout_ms=9000)
    join = keeper.join("n1", ["b", "a"], 0)
    keeper.read(join, 1, 0)
    renewal = keeper.renew(10)
    for record in (join, renewal):
        assert record is not None
        assert (record.transactional_id, record.transaction_timeout_ms, record.topics) == ("tx", 9000, ("a", "b"))


def _run(seed: int, keep_late_renewals: bool = False) -> int:
    """One writer, its log, one controller that expels on a look at the log's end begun after the lease's end.

    Records take a while to land; writer and controller read when they like. Returns how often the controller expelled.
    Asserts that a record which the writer hands over is out of the library before the controller has expelled it.
    """
    random = Random(seed)
    terms = LeaseTerms(lease=10, renew_interval=2, delivery_timeout=4, margin=1)
    keeper, writers = LeaseKeeper("M", terms), WriterSet()
    log: list[Lease] = []
    on_the_way: list[tuple[float, Lease]] = []
    read, folded, joins, expulsions = 0, 0, 0, 0
    last_send: dict[str, float] = {}
    decided: set[str] = set()
    now = 0.0
    for _ in range(120):
        now += random.choice([0.0, 0.2, 1.0, 4.0])
        on_the_way.sort(key=lambda pair: pair[0])
        while on_the_way and on_the_way[0][0] <= now:
            log.append(on_the_way.pop(0)[1])
        keeper.tick(now)
        what = random.random()
        if what < 0.25:
            if keeper.standing in (Standing.OUT, Standing.LAPSED, Standing.SUPERSEDED):
                joins += 1
                made: Lease | None = keeper.join(f"n{joins}", ["t"], now)
            else:
                made = keeper.renew(now, due=random.random() < 0.3)
            if made is not None:
                on_the_way.append((now + random.choice([0.0, 0.1, 3.0, 5.0, 12.0]), made))
        elif what < 0.6 and read < len(log):
            if keep_late_renewals and keeper.standing is Standing.LAPSED and log[read].state is LeaseState.LIVE:
                keeper.standing, keeper._ends = Standing.LIVE, now + 1  # as if a lapse were not final
            keeper.read(log[read], read, now)
            read += 1
        elif what < 0.8:
            for offset in range(folded, len(log)):
                writers.apply(log[offset], offset, now)
            folded = len(log)
            decided |= {m.lease.nonce for m in writers.live("t") if m.ends_at <= now}
        elif decided:
            nonce = decided.pop()
            member = writers.get(nonce)
            if member is not None:
                log.append(replace(member.lease, state=LeaseState.EXPELLED))
                expulsions += 1
                assert last_send.get(nonce, NEVER) + terms.delivery_timeout < now
        if now < keeper.send_until:
            last_send[keeper.nonce] = now
            expelled = [lease for lease in log if lease.state is LeaseState.EXPELLED and lease.nonce == keeper.nonce]
            assert not expelled, f"seed {seed}: an expelled writer sends"
    return expulsions


@pytest.mark.kip("K903-01", "K253-36")
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_nobody_is_expelled_who_still_sends(seed: int) -> None:
    """Whatever is late: when EXPELLED is written, all that this join ever handed over is resolved, and it sends no more."""
    _run(seed)


def test_the_random_runs_reach_what_they_are_for() -> None:
    """They do expel; and a writer whose lapse were not final would be caught."""
    assert sum(_run(seed) for seed in range(30)) > 10
    with pytest.raises(AssertionError):
        sum(_run(seed, keep_late_renewals=True) for seed in range(2000))
