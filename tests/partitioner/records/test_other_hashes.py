"""Timelines of topics whose keys are not placed by murmur2: clients that know murmur2 alone refuse them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from keyorder.partitioner.epochs import ChangePhase, OpenChange, Slice
from keyorder.partitioner.errors import CorruptRecordError, LayoutError, RecordVersionError, TimelineRegressionError
from keyorder.partitioner.hashing import HASHES
from keyorder.partitioner.records import codec
from keyorder.partitioner.records.timeline_record import (
    HASHED_TIMELINE,
    TIMELINE,
    decode_timeline,
    encode_timeline,
    require_known_timeline,
)
from support.dumb import timeline_of
from support.older_client import Refused, older_client_reads, older_client_writes

GROWN = timeline_of(2, [(3, {0: 4}, {2: 0}), (2, {2: 7}, {0: 9})])
REHOMING = replace(
    GROWN, last_number=3, change=OpenChange(3, 2, ChangePhase.PREPARE, slice=Slice(2, 2**31 - 9, 2**31 - 1))
)


@pytest.mark.parametrize("name", [name for name in HASHES if name != "murmur2"])
def test_an_older_client_refuses_a_topic_with_another_hash(name: str) -> None:
    """It would place keys by murmur2: so it must not be able to read the timeline at all."""
    data = encode_timeline(replace(GROWN, hash=name))
    with pytest.raises(Refused):
        older_client_reads(data)
    assert decode_timeline(data) == replace(GROWN, hash=name)


def test_murmur2_topics_stay_readable_in_both_directions() -> None:
    """An older client reads what is written now, and what it writes has murmur2 here."""
    fields = older_client_reads(encode_timeline(REHOMING))
    assert (fields["initial"], fields["change"]["slice"]["last"]) == (2, 2**31 - 1)
    again = decode_timeline(older_client_writes(fields))
    assert again == REHOMING
    assert again.hash == "murmur2"


@pytest.mark.parametrize(("name", "highest"), [("crc32", 2**32 - 1), ("fnv1a", 2**31)])
def test_a_slice_holds_hashes_of_32_bits(name: str, highest: int) -> None:
    """Values are re-homed by ranges of hashes, and crc32 uses all 32 bits."""
    timeline = replace(REHOMING, hash=name, change=OpenChange(3, 2, ChangePhase.PREPARE, slice=Slice(2, 0, highest)))
    assert decode_timeline(encode_timeline(timeline)) == timeline


def test_a_newer_minor_version_of_it_is_read_and_not_written_again() -> None:
    """As with the first major version: what is unknown here would be dropped."""
    known = list(HASHED_TIMELINE.schemas[-1]["fields"])  # type: ignore[call-overload,index]
    newer = codec.record_kind(
        1,
        "timeline",
        *[known] * (HASHED_TIMELINE.minor + 1),
        [*known, {"name": "later", "type": "int", "default": 0}],
        major=2,
    )
    timeline = replace(GROWN, hash="crc32")
    require_known_timeline(encode_timeline(timeline))
    data = codec.encode(newer, {**codec.decode(HASHED_TIMELINE, encode_timeline(timeline)).fields, "later": 1})
    assert decode_timeline(data) == timeline
    with pytest.raises(RecordVersionError, match=r"version 2\."):
        require_known_timeline(data)


def test_a_hash_that_is_not_known_here_is_not_guessed() -> None:
    """A record that names another one cannot be used."""
    fields = {**codec.decode(HASHED_TIMELINE, encode_timeline(replace(GROWN, hash="crc32"))).fields, "hash": "xxh3"}
    with pytest.raises(CorruptRecordError, match="xxh3"):
        decode_timeline(codec.encode(HASHED_TIMELINE, fields))
    with pytest.raises(LayoutError, match="xxh3"):
        replace(GROWN, hash="xxh3")


def test_both_major_versions_know_the_same_fields() -> None:
    """But for the hash: whatever is added to one is in the other."""
    first, second = ([f["name"] for f in kind.schemas[-1]["fields"]] for kind in (TIMELINE, HASHED_TIMELINE))  # type: ignore[call-overload,index]
    assert ["hash", *first] == second


def test_a_topics_hash_never_changes() -> None:
    """A timeline with another one is no successor: keys would be elsewhere without a cut."""
    with pytest.raises(TimelineRegressionError, match="murmur2 to crc32"):
        GROWN.check_successor(replace(GROWN, hash="crc32"))
