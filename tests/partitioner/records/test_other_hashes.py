"""Timelines of topics whose keys are not placed by murmur2: clients that know murmur2 alone refuse them."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import fastavro
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

# What clients read before topics had a hash of their own, as it stood then: never to be changed with the product.
CUTS = {"type": "map", "values": "long"}
GROUPS = {"type": "array", "items": "string"}


def record(name: str, **fields: Any) -> dict[str, Any]:
    """An Avro record of these fields."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


EPOCH = record("keyorder.epoch", number="int", count="int", ends=CUTS, begins=CUTS, committed_at_ms="long")
SLICE = record("keyorder.slice", partition="int", first="int", last="int")
CHANGE = record(
    "keyorder.change", epoch="int", count="int", phase="string", attempt="int", immediate="boolean", groups=GROUPS,
    slice=["null", SLICE],
)  # fmt: skip
DRAIN = record(
    "keyorder.drain", partition="int", epoch="int", upto="long", mode="int", immediate="boolean", groups=GROUPS,
    emptied="boolean",
)  # fmt: skip
MORE = record("keyorder.change_more", delay_ms=["null", "long"], forced="boolean", deadline_ms="long")
PURGE = record(
    "keyorder.purge", partition="int", delay_ms=["null", "long"], forced="boolean", tries="int", error="string"
)
OLDER = record(
    "keyorder.timeline", topic="string", topic_id="string", cluster_id="string", initial="int",
    epochs={"type": "array", "items": EPOCH}, last_number="int", ordered="boolean", view_age_ms="int",
    settings={"type": "map", "values": "string"}, change=["null", CHANGE], drains={"type": "array", "items": DRAIN},
    purged=CUTS, change_more=["null", MORE], purges={"type": "array", "items": PURGE}, held_ms=CUTS,
)  # fmt: skip


class Refused(Exception):
    """An older client stops here: "upgrade keyorder here before going on"."""


def older_client_reads(data: bytes) -> dict[str, Any]:
    """A client's rule before: its own major version alone, newer minor versions as far as it knows them."""
    assert data[:3] == b"KO\x01"
    if data[3] != 1:
        raise Refused
    fields = fastavro.schemaless_reader(io.BytesIO(data[5:]), OLDER)  # type: ignore[call-arg]
    assert isinstance(fields, dict)
    return fields


def older_client_writes(fields: dict[str, Any]) -> bytes:
    """As it wrote a timeline."""
    out = io.BytesIO()
    out.write(b"KO\x01\x01\x01")
    fastavro.schemaless_writer(out, OLDER, fields)
    return out.getvalue()


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
