"""Hashing a column gives what hashing key by key gives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.connector.arrow.hashing import hash_column, home_column, homes_of_hashes
from keyorder.partitioner.errors import KeyTypeError
from keyorder.partitioner.hashing import HASHES, key_hash
from keyorder.partitioner.layout import Layout

pytestmark = pytest.mark.slow  # the first call compiles, for ten seconds

KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=60)
LAYOUTS = st.integers(1, 20).flatmap(
    lambda i: st.builds(Layout, st.just(i), st.integers(i, 100), st.sampled_from(list(HASHES)))
)


@settings(deadline=None)  # the first call compiles
@given(KEYS, LAYOUTS, st.integers(0, 10), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_homes_of_a_column_equal_homes_of_its_keys(
    keys: list[bytes | None], layout: Layout, skip: int, kind: pa.DataType
) -> None:
    """Any bytes, any layout, null keys, and slices that do not begin at the first row."""
    column = pa.array(keys, kind)[skip:]
    keys = keys[skip:]
    expected = [-1 if key is None else layout.home(key) for key in keys]
    assert expected == home_column(layout, column).tolist()
    hash_of = HASHES[layout.hash]
    hashes = hash_column(column, hash_of)
    assert [-1 if key is None else hash_of.of(key) for key in keys] == hashes.tolist()
    assert expected == homes_of_hashes(layout, hashes).tolist()


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.text(max_size=10)))
def test_strings_are_hashed_as_utf8(keys: list[str]) -> None:
    """As confluent-kafka sends them."""
    assert [key_hash(key.encode()) for key in keys] == hash_column(pa.array(keys, pa.string())).tolist()


def test_other_columns_are_refused() -> None:
    """A number has no bytes of its own: how to write it is the application's decision."""
    with pytest.raises(KeyTypeError):
        hash_column(pa.array([1, 2]))
