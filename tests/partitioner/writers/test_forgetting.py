"""What is erased of writers that are gone: never a record that still says something, and in the end all of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.records.control_records import Lease, LeaseState, Ready, lease_key, ready_key
from keyorder.partitioner.writers.expired_writers import ExpiredWriters

JOIN, LIVE, LEFT, EXPELLED = LeaseState.JOIN, LeaseState.LIVE, LeaseState.LEFT, LeaseState.EXPELLED
QUIET = 3600.0


def lease(nonce: str, state: LeaseState = JOIN, incarnation: int | None = None, **other: object) -> Lease:
    made = Lease("w", nonce, state, incarnation, 45_000, 1, ("t",))
    return replace(made, **other)  # type: ignore[arg-type]


def take(writers: ExpiredWriters, record: Lease | Ready, offset: int, now: float) -> bytes:
    if isinstance(record, Lease):
        key = lease_key(record.writer, record.nonce)
    else:
        key = ready_key(record.topic, record.writer, record.nonce)
    writers.take(key, record, 3, offset, now)
    return key


def due(writers: ExpiredWriters, now: float) -> list[bytes]:
    return [key for _, key in writers.due(now)]


def test_who_left_goes_with_its_readies_once_it_was_quiet_for_long() -> None:
    """READY first: it never stands without its lease."""
    writers = ExpiredWriters(QUIET)
    key = take(writers, lease("a"), 0, 0)
    ready = take(writers, Ready("t", "w", "a", 1), 1, 1)
    take(writers, lease("a", LEFT, 0), 2, 2)

    assert due(writers, QUIET) == []
    assert due(writers, QUIET + 2) == [ready, key]
    for erased in (ready, key):
        writers.take(erased, None, 3, 9, QUIET + 3)
    assert len(writers) == 0


def test_who_renews_stays_and_who_crashed_goes() -> None:
    """Only silence counts, by the reader's own clock."""
    writers = ExpiredWriters(QUIET)
    take(writers, lease("living", writer="x"), 0, 0)
    crashed = take(writers, lease("crashed", writer="y"), 1, 0)
    for now in range(10, int(QUIET) + 20, 10):
        take(writers, lease("living", LIVE, 0, writer="x"), now, now)

    assert due(writers, QUIET + 10) == [crashed]


def test_a_long_lease_is_waited_for() -> None:
    """A writer that may be silent for hours is not erased after one."""
    writers = ExpiredWriters(QUIET)
    key = take(writers, lease("a", lease_ms=7_200_000), 0, 0)

    assert due(writers, 4 * 7200 - 1) == []
    assert due(writers, 4 * 7200) == [key]


def test_a_crashed_transactional_writer_waits_for_its_fence() -> None:
    """The change that expels it fences it, or a successor that has proven to hold its id."""
    writers = ExpiredWriters(QUIET)
    dead = take(writers, lease("dead", transactional_id="x"), 0, 0)
    assert due(writers, 9 * QUIET) == []

    successor = lease("new", LIVE, 5, transactional_id="x")
    take(writers, successor, 6, 9 * QUIET)
    assert due(writers, 9 * QUIET) == []
    take(writers, replace(successor, proven=True), 7, 9 * QUIET)
    assert due(writers, 9 * QUIET) == [dead]


def test_the_joins_of_one_writer_go_oldest_first() -> None:
    """An older one that may not go keeps the newer ones, which show that it is superseded."""
    writers = ExpiredWriters(QUIET)
    take(writers, lease("old", transactional_id="x"), 0, 0)
    take(writers, lease("new", LEFT, 5, transactional_id="x"), 6, 0)

    assert due(writers, 2 * QUIET) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from([JOIN, LIVE, LEFT, EXPELLED, "ready", "tombstone"]),
            st.floats(0, QUIET),
        ),
        max_size=40,
    )
)
def test_nothing_that_changed_lately_goes_and_in_the_end_all_does(steps: list[tuple[str, object, float]]) -> None:
    """Against a list of all records: whatever was read last less than the quiet time ago is kept."""
    writers = ExpiredWriters(QUIET)
    now, last, present = 0.0, dict.fromkeys("abc", 0.0), set()
    for offset, (nonce, what, pause) in enumerate(steps):
        now += pause
        early = {key for key in due(writers, now) if now - last[key.split(b":")[-2].decode()] < QUIET}
        assert early == set()
        if what == "tombstone":
            writers.take(lease_key("w", nonce), None, 3, offset, now)
            present.discard(lease_key("w", nonce))
            continue
        record = Ready("t", "w", nonce, 1) if what == "ready" else lease(nonce, what, None if what is JOIN else 0)  # type: ignore[arg-type]
        present.add(take(writers, record, offset, now))
        last[nonce] = now
    assert set(due(writers, now + QUIET + 1)) == present
