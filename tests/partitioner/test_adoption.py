"""Which hash a topic is adopted under, by what its records show."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.adoption import KeySample, KeySampler, chosen_hash, counts_of_stock_writers, percent
from keyorder.partitioner.errors import LayoutError, MisplacedKeysError, OrderError, OrphanedTopicError
from keyorder.partitioner.hashing import HASHES
from keyorder.partitioner.layout import Layout
from support import dumb


def a_sample(
    murmur2: int, crc32: int, fnv1a: int, records: int = 10, hinted: tuple[int, int] | None = None
) -> KeySample:
    """Of a topic with four partitions."""
    return KeySample("t", 4, records, records, {"murmur2": murmur2, "crc32": crc32, "fnv1a": fnv1a}, hinted)


@pytest.mark.parametrize(
    ("explained", "wanted", "expected"),
    [
        ((10, 3, 2), None, "murmur2"),
        ((3, 10, 2), None, "crc32"),
        ((3, 9, 10), None, "fnv1a"),
        ((10, 10, 10), None, "murmur2"),
        ((9, 10, 10), None, "crc32"),
        ((10, 10, 10), "fnv1a", "fnv1a"),
        ((3, 10, 2), "crc32", "crc32"),
    ],
)
def test_the_hash_that_explains_all_is_taken(
    explained: tuple[int, int, int], wanted: str | None, expected: str
) -> None:
    """The default where several do; the one that is asked for where it does."""
    assert chosen_hash(a_sample(*explained), wanted) == expected
    assert chosen_hash(a_sample(*explained), wanted, accept_misplaced=True) == expected


@pytest.mark.parametrize(
    ("explained", "wanted", "accepted"),
    [
        ((9, 9, 8), None, "murmur2"),
        ((2, 9, 8), None, "crc32"),
        ((2, 8, 9), None, "fnv1a"),
        ((10, 3, 2), "crc32", "crc32"),
        ((9, 8, 2), "fnv1a", "fnv1a"),
    ],
)
def test_without_one_it_takes_an_operators_word(
    explained: tuple[int, int, int], wanted: str | None, accepted: str
) -> None:
    """The error tells the shares and both ways out; accepted is the one that explains most, or the one that is asked for."""
    sample = a_sample(*explained)
    with pytest.raises(MisplacedKeysError) as raised:
        chosen_hash(sample, wanted)
    assert isinstance(raised.value, OrderError)
    for text in (str(sample), "--accept-misplaced", "MirrorConnector", "4 partitions", wanted or "no hash"):
        assert text in str(raised.value)
    assert chosen_hash(sample, wanted, accept_misplaced=True) == accepted


@pytest.mark.parametrize("accept", [False, True])
def test_records_of_orderedproducers_are_never_accepted(accept: bool) -> None:
    """A later epoch of the same number would make a move tombstone of a null value that was none."""
    with pytest.raises(OrphanedTopicError, match=r"t\[2\]@7 has the header"):
        chosen_hash(a_sample(10, 10, 10, hinted=(2, 7)), accept_misplaced=accept)


def test_an_unknown_hash_is_the_callers_mistake() -> None:
    """Also where nothing is there that it could explain."""
    with pytest.raises(LayoutError, match="murmur2, crc32, fnv1a"):
        chosen_hash(a_sample(0, 0, 0, records=0), "md5", accept_misplaced=True)


@pytest.mark.parametrize("name", HASHES)
@settings(max_examples=50, deadline=None)
@given(keys=st.lists(st.none() | st.binary(max_size=10), max_size=40), partitions=st.integers(1, 9))
def test_a_sample_counts_what_each_hash_explains(name: str, keys: list[bytes | None], partitions: int) -> None:
    """Records without a key, or with an empty one, are left out: some stock producers scatter both."""
    sampler = KeySampler("t", partitions)
    layout = Layout(partitions, partitions, name)
    taken = [sampler.take(layout.home(key or b""), offset, key, hinted=False) for offset, key in enumerate(keys)]
    assert taken == [bool(key) for key in keys]
    sample, counted = sampler.sample(), [key for key in keys if key]
    assert (sample.records, sample.keys) == (len(counted), len(set(counted)))
    assert sample.share(name) == 1.0
    for other, hash_of in dumb.HASHES.items():
        expected = sum(hash_of(key) % partitions == layout.home(key) for key in counted)
        assert sample.explained[other] == expected
    assert layout.hash in sample.explaining
    assert sample.hinted is None


def test_the_first_hint_is_kept_whatever_its_record() -> None:
    """A tombstone of a moved key, or a record without a key, shows as much as any other."""
    sampler = KeySampler("t", 3)
    assert not sampler.take(1, 4, None, hinted=True)
    assert sampler.take(2, 5, b"k", hinted=True)
    assert sampler.sample().hinted == (1, 4)


@pytest.mark.parametrize(
    ("part", "whole", "text"), [(1, 1, "100.0 %"), (0, 7, "0.0 %"), (9_999, 10_000, "99.9 %"), (1, 10_000, "0.1 %")]
)
def test_a_share_reads_all_or_nothing_only_when_it_is(part: int, whole: int, text: str) -> None:
    """One record in ten thousand must not be rounded away."""
    assert percent(part, whole) == text


def test_stock_producers_agree_at_doublings() -> None:
    """There, and nowhere else: shown by trying every key of the hash space."""
    assert list(counts_of_stock_writers(3, 30)) == [3, 6, 12, 24]
    for count in range(3, 30):
        agrees = all(dumb.dumb_home(3, count, h) == h % count for h in range(3 * 64))
        assert agrees is (count in counts_of_stock_writers(3, 30))
