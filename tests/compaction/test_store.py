"""The store of versions: the same answers in memory, spilled, and after a restart, as a dumb dict of lists gives."""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.compaction import store as store_module
from keyorder.compaction.store import VersionStore
from keyorder.compaction.strategy import ABSENT
from keyorder.compaction.versions import Entry, Last, Version
from keyorder.partitioner.errors import ConfigError

# Such as sqlite3's of Python 3.12 about what is an error in 3.14.
pytestmark = pytest.mark.filterwarnings("error::DeprecationWarning")
RECORDS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"\x00\xff", b""]),
        st.sampled_from([ABSENT, -(2**63), -1, 0, 1, 2**63 - 1]),
        st.integers(-2, 2),
        st.one_of(st.none(), st.sampled_from([b"", b"v", b"\xff\x00"])),
    ),
    max_size=25,
)


def versions(records: list[tuple[bytes, int, int, bytes | None]]) -> list[tuple[bytes, Version]]:
    """Records with offsets of their own."""
    return [
        (key, Version(version, epoch, offset, abs(epoch), offset * 10, [("h", value), ("n", None)], value))
        for offset, (key, version, epoch, value) in enumerate(records)
    ]


def dumb(put: list[tuple[bytes, Version]]) -> dict[bytes, Entry]:
    """By sorting all there is."""
    found = {}
    for key in {key for key, _ in put}:
        mine = [version for other, version in put if other == key]
        best = sorted(mine, key=lambda v: (v.version, v.epoch, v.offset))[-1]
        last = sorted(mine, key=lambda v: (v.epoch, v.offset))[-1]
        found[key] = Entry(best, Last(last.epoch, last.offset, last.epoch, last.offset))
    return found


@pytest.mark.kip("K280-08", "K280-19", "C-19")
@settings(max_examples=80, deadline=None)
@given(RECORDS, st.randoms(use_true_random=False), st.sampled_from([1, 2000, 10**9]), st.sampled_from([0, 2, 10**9]))
@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.slow
def test_any_order_and_any_memory_give_the_same_table(
    numba: bool,
    records: list,  # type: ignore[type-arg]
    random: object,
    limit: int,
    objects: int,
) -> None:
    """Entries, displaced keys and counts equal a dumb second implementation, whatever is packed or spilled when."""
    put = versions(records)
    expected = dumb(put)
    random.shuffle(put)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "_MOST_OBJECTS", objects)
        if not numba:
            patch.setattr(store_module, "_columns_type", lambda: None)
        store = VersionStore(memory_limit=limit)
        for key, version in put:
            store.put(key, version)

    displaced = {key: entry for key, entry in expected.items() if entry.displaced}
    assert {key: store.get(key) for key in expected} == expected
    assert dict(store.entries()) == expected
    assert dict(store.displaced(None, 100)) == displaced
    pages, after = [], None
    while page := store.displaced(after, 1):
        after = page[-1][0]
        pages.append(after)
    assert pages == sorted(displaced)
    assert store.count_displaced() == len(displaced)
    live = sum(entry.best.value is not None for entry in expected.values())
    assert store.count() == (live, len(expected) - live)
    if limit != 2000:
        assert store.spilled == (limit == 1 and bool(put))
    store.close()


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(RECORDS, RECORDS)
def test_a_file_goes_on_where_it_was_left(before: list, after: list) -> None:  # type: ignore[type-arg]
    """What a second run puts in is merged with what the first has left."""
    put = versions([*before, *after])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        for number, part in enumerate((put[: len(before)], put[len(before) :])):
            store = VersionStore(path)
            assert store.facts() == ({} if number == 0 else {"run": "0"})
            for key, version in part:
                store.put(key, version)
            store.write_down({"run": str(number)})
            store.close()
        store = VersionStore(path)
        assert dict(store.entries()) == dumb(put)
        store.close()


@pytest.mark.kip("K280-19")
@pytest.mark.parametrize("limit", [1, 10**9])
def test_floors_outlive_a_rebuild(limit: int) -> None:
    """A key that is known to be deleted stays known; all else is forgotten, on request that too."""
    store = VersionStore(memory_limit=limit)
    for key, version in versions([(b"a", 5, 0, b"v"), (b"b", 9, 0, None)]):
        store.put(key, version)

    store.clear({}, keep_floors=True)
    assert [key for key, _ in store.entries()] == [b"b"]
    store.clear({})
    assert list(store.entries()) == []
    store.close()


@pytest.mark.parametrize("keep_floors", [True, False])
def test_a_file_made_anew_says_at_once_whose_it_is(tmp_path: Path, keep_floors: bool) -> None:
    """Rows that come later are with the new facts, though nothing was written down with facts of its own; the old are gone."""
    path = tmp_path / "state"
    store = VersionStore(path)
    for key, version in versions([(b"a", 5, 0, b"v"), (b"b", 9, 0, None)]):
        store.put(key, version)
    store.write_down({"topic": "old", "positions": "{}"})
    store.clear({"topic": "new"}, keep_floors)
    kept = [b"b"] if keep_floors else []

    for more in ([], [b"c"]):
        for key in more:
            store.put(key, versions([(key, 1, 0, b"v")])[0][1])
        assert store.count() == (len(more), len(kept))  # moves what is in memory to the file
        store.close()
        store = VersionStore(path)
        assert store.facts() == {"topic": "new"}
        assert [key for key, _ in store.entries()] == [*kept, *more]
    store.close()


def test_a_file_that_cannot_be_made_anew_is_named(tmp_path: Path) -> None:
    """As where another process holds it: one typed error."""
    path = tmp_path / "state"
    store = VersionStore(path)
    assert store._database is not None
    store._database.execute("PRAGMA query_only = ON")

    with pytest.raises(ConfigError, match=r"state cannot be used"):
        store.clear({"topic": "new"})
    store.close()


def test_many_keys_are_paged_in_order(tmp_path: Path) -> None:
    """More than a page, each once."""
    store = VersionStore(tmp_path / "state")
    for key, version in versions([(b"%05d" % number, 1, 0, b"v") for number in range(2500)]):
        store.put(key, version)

    assert [key for key, _ in store.entries()] == [b"%05d" % number for number in range(2500)]
    store.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """With its name."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be one" * 100)

    with pytest.raises(ConfigError, match=r"notes\.txt"):
        VersionStore(path)


def test_a_file_that_takes_no_more_is_named(tmp_path: Path) -> None:
    """As where the disk is full: one typed error, and the file holds what was written down before."""
    path = tmp_path / "state"
    store = VersionStore(path)
    store.write_down({"run": "1"})
    database = store._database
    assert database is not None
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    for key, version in versions([(b"%05d" % number, 1, 0, b"v" * 100) for number in range(1000)]):
        store.put(key, version)

    with pytest.raises(ConfigError, match=r"state.*full"):
        store.write_down({"run": "2"})
    store.close()
    store = VersionStore(path)
    assert store.facts() == {"run": "1"}
    store.close()


@pytest.mark.kip("K280-17")
def test_what_is_counted_is_what_a_key_takes() -> None:
    """The count that memory is limited by is within a third of what Python has allocated."""
    tracemalloc.start()
    try:
        store = VersionStore()
        for n in range(5_000):
            headers = [("v", n.to_bytes(8, "big"))]
            store.put(b"key-%012d" % n, Version(n, 0, n + 10**6, 0, 10**12 + n, headers, b"v%099d" % n))
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 2 / 3 < store._bytes / allocated < 3 / 2
