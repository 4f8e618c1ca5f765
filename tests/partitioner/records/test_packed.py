"""Long timelines in few bytes: read back as they were, refused by older clients, damaged ones never misread."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.epochs import ChangePhase, Epoch, Retirement
from keyorder.partitioner.errors import CorruptRecordError, RecordVersionError
from keyorder.partitioner.records import codec, timeline_record
from keyorder.partitioner.records.control_records import decode_timeline, encode_timeline
from keyorder.partitioner.records.timeline_record import HASHED_TIMELINE, PACKED_TIMELINE, TIMELINE
from keyorder.partitioner.timeline import Timeline, crossings

from .test_records import _timelines


@pytest.fixture
def always_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short they are."""
    monkeypatch.setattr(timeline_record, "_LONG", -1)


def changed(timeline: Timeline, count: int, cut: int, random: Random, groups: tuple[str, ...] = ()) -> Timeline:
    """The timeline after one more change, with cuts around `cut`."""
    prepared = timeline.opened(count, ChangePhase.PLAN, 1, Retirement(groups=groups)).prepared()
    moves = crossings(timeline.initial, timeline.newest.count, count)
    cuts = {p: cut + random.randint(-1_000, 1_000) for move in moves for p in move}
    return prepared.committed(
        {q: cuts[q] for q, _ in moves}, {p: cuts[p] for _, p in moves}, 1_763_000_000_000 + cut, 40
    )


def adopted(count: int, hash: str = "murmur2") -> Timeline:
    return Timeline("orders", "a-topic-id-of-a-broker", "a-cluster-id-of-brokers", count, (Epoch(0, count),), hash=hash)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(timeline=_timelines(), hash=st.sampled_from(["murmur2", "crc32"]))
def test_any_timeline_survives_being_packed(timeline: Timeline, hash: str) -> None:
    """Whatever it holds, whichever its hash."""
    timeline = replace(timeline, hash=hash)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline_record, "_LONG", -1)
        data = encode_timeline(timeline)

    assert data[3] == PACKED_TIMELINE.major == 3
    assert decode_timeline(data) == timeline


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(timeline=_timelines(), data=st.data())
def test_a_damaged_one_is_corrupt_or_valid(timeline: Timeline, data: st.DataObject) -> None:
    """Flipped bits and lost tails decode to some timeline or raise a typed error, and never count to an absurd number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline_record, "_LONG", -1)
        value = bytearray(encode_timeline(timeline))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(4, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode_timeline(bytes(value[: data.draw(st.integers(5, len(value)))]))
    except (CorruptRecordError, RecordVersionError):
        pass


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize(("count", "cuts"), [(2_000_000_000, [1]), (3, []), (3, [1]), (3, [1, 2, 3]), (1, [1, 2])])
def test_counts_and_cuts_have_to_fit(count: int, cuts: list[int]) -> None:
    """2 partitions to `count`: each outer partition has a cut of its own, and the count is no lower than the initial one."""
    known = codec.decode_any((PACKED_TIMELINE,), encode_timeline(changed(adopted(2), 3, 0, Random(1)))).fields
    base, epoch = known["packed_epochs"]
    damaged = {**known, "packed_epochs": [base, {**epoch, "count": count, "cuts": cuts}]}
    with pytest.raises(CorruptRecordError):
        decode_timeline(codec.encode(PACKED_TIMELINE, damaged))


@pytest.mark.parametrize("hash", ["murmur2", "crc32"])
def test_a_short_timeline_stays_as_older_clients_know_it(hash: str) -> None:
    """Only one that has grown long needs a client that can read it; an older one refuses that and says why."""
    random, timeline = Random(2), adopted(100, hash)
    short = changed(timeline, 200, 5_000, random)
    long = changed(short, 100, 9_000, random)

    assert encode_timeline(short)[3] == (TIMELINE if hash == "murmur2" else HASHED_TIMELINE).major
    data = encode_timeline(long)
    assert decode_timeline(data) == long
    with pytest.raises(RecordVersionError, match=r"version 3\.0"):
        codec.decode_any((TIMELINE, HASHED_TIMELINE), data)


def test_a_shrink_of_thousands_of_partitions_takes_few_bytes() -> None:
    """3 000 -> 4 500 -> 3 000: what was 70 kB, and 25 000 bytes at most, with drains that differ in nothing."""
    random = Random(3)
    grown = changed(adopted(3_000), 4_500, 1_000_000, random)
    shrunk = changed(grown, 3_000, 1_005_000, random, ("billing", "audit"))

    data = encode_timeline(shrunk)

    assert len(data) < 25_000
    assert decode_timeline(data) == shrunk
    assert len(codec.decode_any((PACKED_TIMELINE,), data).fields["packed_drains"]) == 1
