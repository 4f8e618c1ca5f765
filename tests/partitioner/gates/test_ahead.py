"""What a commit says of the records beyond it: encoded, cut to a length, and never more than was processed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.gates.ahead import Ahead, decode_ahead, encode_ahead
from keyorder.partitioner.gates.starts import ahead_of, epoch_of, metadata_of, note_of

OFFSETS = st.integers(0, 2**40)


@given(OFFSETS, st.sets(st.integers(0, 5_000)), st.integers(0, 6_000))
def test_it_comes_back_as_it_was(committed: int, pending: set[int], length: int) -> None:
    ahead = Ahead(committed + length, frozenset(committed + offset for offset in pending if offset < length))
    text = encode_ahead(ahead, committed, limit=100_000)
    assert (decode_ahead(text, committed) == ahead) if length else text == ""


@given(OFFSETS, st.sets(st.integers(0, 50_000), max_size=400), st.integers(30, 200))
def test_cut_short_it_covers_less_and_never_what_waits(committed: int, pending: set[int], limit: int) -> None:
    ahead = Ahead(committed + 60_000, frozenset(committed + offset for offset in pending))
    text = encode_ahead(ahead, committed, limit)
    assert len(text) <= limit
    kept = decode_ahead(text, committed) if text else Ahead(committed, frozenset())
    assert kept is not None
    assert all(ahead.covers(offset) for offset in range(committed, kept.upto, 7) if kept.covers(offset))
    assert not any(kept.covers(offset) for offset in ahead.pending)


@given(st.integers(0, 40), st.sets(st.integers(0, 60)), st.integers(0, 50))
def test_the_first_open_offset_is_the_first_that_is_not_covered(upto: int, pending: set[int], offset: int) -> None:
    ahead = Ahead(upto, frozenset(pending))
    open_ = next(o for o in range(offset, 1_000) if not ahead.covers(o))
    assert ahead.first_open(offset) == open_


@given(st.text(max_size=20), OFFSETS)
def test_foreign_text_covers_nothing_wrongly(text: str, committed: int) -> None:
    found = decode_ahead(text, committed)
    assert found is None or found.upto >= committed


def test_it_travels_beside_the_epoch_and_the_applications_note() -> None:
    ahead = Ahead(110, frozenset({101, 105}))
    metadata = metadata_of(7, "a;note", encode_ahead(ahead, 100))
    assert epoch_of(metadata) == 7
    assert note_of(metadata) == "a;note"
    assert ahead_of(metadata, 100) == ahead
    assert ahead_of(metadata_of(7), 100) is None
    assert ahead_of("ko1:x+1.", 100) is None
