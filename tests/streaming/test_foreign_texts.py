"""Options, checkpoints and markers with anything in them: what they say, or one typed error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from keyorder.partitioner.errors import ConfigError, CorruptRecordError, RecordVersionError
from keyorder.streaming.sink.markers import Marker, decode_marker, encode_marker
from keyorder.streaming.source.offsets import parse_offsets, parse_offsets_and_words, parse_partitions
from support.mutations import DEEP, bytes_of, texts

pytestmark = pytest.mark.slow  # hundreds of examples for each reader

LARGEST = 2**63 - 1
NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 10),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.none(),
    st.sampled_from(["²", "٣", "1_0", " 1", "1", "-1", "", "01"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(NUMBERS, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(max_size=3), st.just("0")), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.one_of(st.integers(-1, 9).map(str), st.sampled_from(["²", "٣", "00", "", "1_0", "9" * 5000, str(2**63)]))
#: What is nearly right, so that not all of it ends at the first look.
OFFSETS = st.dictionaries(
    st.text(max_size=3), st.one_of(VALUES, st.dictionaries(KEYS, NUMBERS, max_size=3)), max_size=2
)
PARTITIONS = st.dictionaries(st.text(max_size=3), st.one_of(VALUES, st.lists(NUMBERS, max_size=3)), max_size=2)
MARKERS = st.fixed_dictionaries(
    {}, optional={"version": NUMBERS, "batch": NUMBERS, "rows": NUMBERS, "fingerprint": VALUES}
)


@given(texts(st.one_of(OFFSETS, VALUES)))
@example('{"t":{"²":1}}')
@example('{"t":{"0":Infinity}}')
@example('{"t":{"%s":1}}' % ("9" * 5000))
@example('{"t":{"0":"%s"}}' % ("9" * 5000))
@example('{"t":{"0":%s}}' % 2**63)
@example(DEEP)
def test_offsets(text: str) -> None:
    """Of startingOffsets and endingOffsets: whole numbers that a broker can have, or ConfigError with the option's name."""
    for found in _read(lambda: parse_offsets("startingOffsets", text), "startingOffsets"):
        assert all(isinstance(t, str) and 0 <= p < 2**31 and -2 <= o <= LARGEST for (t, p), o in found.items())
    for found, _ in _read(lambda: parse_offsets_and_words("endingOffsets", text, {"latest": -1}), "endingOffsets"):
        assert all(isinstance(t, str) and 0 <= p < 2**31 and -2 <= o <= LARGEST for (t, p), o in found.items())


@given(texts(st.one_of(PARTITIONS, VALUES)))
@example('{"t":[true]}')
@example('{"t":[2147483648]}')
@example(DEEP)
def test_partitions(text: str) -> None:
    """Of assign."""
    for found in _read(lambda: parse_partitions("assign", text), "assign"):
        assert all(type(p) is int and 0 <= p < 2**31 for _, p in found)


@given(bytes_of(texts(st.one_of(MARKERS, VALUES))))
@example(b'{"version": Infinity}')
@example(b'{"version": 1, "batch": Infinity, "rows": 1, "fingerprint": "a"}')
@example(DEEP.encode())
@example(b"\xff")
def test_a_marker(data: bytes) -> None:
    """Of the sink: the same marker comes back, or one of the two errors that say what it is not."""
    try:
        marker = decode_marker(data, "place")
    except (CorruptRecordError, RecordVersionError):
        return
    assert decode_marker(encode_marker(marker), "place") == marker
    assert all(type(number) is int for number in (marker.batch, marker.rows))


def test_a_marker_that_is_ours() -> None:
    """The tests above would hold of a reader that refuses everything."""
    assert decode_marker(encode_marker(Marker(3, 4, "ab")), "place") == Marker(3, 4, "ab")
    assert parse_offsets("o", '{"t":{"0":5,"1":-1}}') == {("t", 0): 5, ("t", 1): -1}
    assert parse_partitions("o", '{"t":[1,0]}') == (("t", 0), ("t", 1))


def _read(call: Any, option: str) -> list[Any]:
    """What the call gives; nothing where it refuses, which names the option."""
    refused: list[str] = []
    try:
        return [call()]
    except ConfigError as error:
        refused.append(error.setting)
    assert refused == [option]
    return []


@pytest.mark.parametrize("text", ['{"t":{"0":"7"}}', '{"t":{"0":7}}'])
def test_a_number_may_be_a_text(text: str) -> None:
    """As Spark takes it."""
    assert parse_offsets("o", text) == {("t", 0): 7}
