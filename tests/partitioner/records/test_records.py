"""Control records as bytes: round trips, older and newer versions, and damage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.partitioner.epochs import ChangePhase, Drain, DrainState, Retirement, Slice
from keyorder.partitioner.errors import CorruptRecordError, RecordVersionError
from keyorder.partitioner.modes import Mode
from keyorder.partitioner.records import codec, control_records
from keyorder.partitioner.records.control_records import Lease, LeaseState, Ready, Waiver
from keyorder.partitioner.timeline import Timeline
from support.dumb import timeline_of

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
HASHES = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**62)
CUTS = st.dictionaries(st.integers(0, 9), OFFSETS, max_size=10)
LEASES = st.builds(
    Lease,
    writer=NAMES,
    nonce=NAMES,
    state=st.sampled_from(LeaseState),
    incarnation=st.none() | OFFSETS,
    lease_ms=st.integers(0, 2**31 - 1),
    sequence=OFFSETS,
    topics=st.lists(NAMES, max_size=3).map(tuple),
    transactional_id=st.none() | NAMES,
    transaction_timeout_ms=st.integers(0, 2**31 - 1),
)
READIES = st.builds(Ready, NAMES, NAMES, NAMES, st.integers(0, 2**31 - 1), CUTS)
SMALL = st.integers(0, 2**31 - 1)
RETIREMENTS = st.builds(
    Retirement, st.booleans(), st.lists(NAMES, max_size=2).map(tuple), st.none() | OFFSETS, st.booleans()
)
WAIVERS = st.builds(Waiver, NAMES, NAMES, NAMES, st.integers(0, 99), st.integers(0, 99), NAMES, NAMES, OFFSETS)


@st.composite
def _timelines(draw: st.DrawFn) -> Timeline:
    initial = draw(st.integers(1, 3))
    steps = [(initial + more, draw(CUTS), draw(CUTS)) for more in draw(st.lists(st.integers(0, 6), max_size=4))]
    timeline = replace(
        timeline_of(initial, steps, first=draw(st.integers(0, 5)), start=initial + draw(st.integers(0, 3))),
        topic=draw(NAMES),
        topic_id=draw(NAMES),
        cluster_id=draw(NAMES),
        ordered=draw(st.booleans()),
        view_age_s=draw(st.integers(1, 60_000)) / 1000,
        settings=draw(st.dictionaries(NAMES, NAMES, max_size=3)),
        purged=draw(CUTS),
    )
    drains = tuple(
        Drain(p, draw(OFFSETS), draw(OFFSETS), draw(st.sampled_from(Mode)), draw(RETIREMENTS), tries=draw(SMALL))
        for p in draw(st.sets(st.integers(0, 9), max_size=3))
    )
    epochs = tuple(replace(e, held_ms=draw(SMALL)) for e in timeline.epochs)
    timeline = replace(timeline, epochs=epochs, drains=tuple(replace(d, epoch=d.epoch % 99) for d in drains))
    if draw(st.booleans()):
        return timeline.rehoming(Slice(draw(st.integers(0, 9)), draw(HASHES), draw(HASHES)), draw(st.integers(1, 9)))
    phase = draw(st.none() | st.sampled_from(ChangePhase))
    if phase is None:
        return timeline
    opened = timeline.opened(initial + 1, phase, draw(st.integers(1, 9)), draw(RETIREMENTS))
    assert opened.change is not None
    return replace(opened, change=replace(opened.change, deadline_ms=draw(SMALL)))


def _encode(record: Any) -> tuple[bytes, bytes]:
    """(key, value) of any control record."""
    if isinstance(record, Timeline):
        return control_records.timeline_key(record.topic), control_records.encode_timeline(record)
    if isinstance(record, Lease):
        return control_records.lease_key(record.writer, record.nonce), control_records.encode_lease(record)
    if isinstance(record, Ready):
        return control_records.ready_key(record.topic, record.writer, record.nonce), control_records.encode_ready(
            record
        )
    return control_records.waiver_key(record), control_records.encode_waiver(record)


ANY = st.one_of(_timelines(), LEASES, READIES, WAIVERS)


@pytest.mark.kip("K253-06", "K253-07", "K253-37")
@settings(max_examples=150, deadline=None)
@given(ANY)
def test_a_record_survives_its_bytes(record: Any) -> None:
    """Whatever it holds, it is told by its key alone and comes back as it was."""
    key, value = _encode(record)
    assert value[:2] == b"KO"
    assert control_records.decode_record(key, value) == record


@settings(max_examples=60, deadline=None)
@given(ANY, st.data())
def test_a_cut_off_record_is_corrupt_or_valid(record: Any, data: st.DataObject) -> None:
    """Any prefix either decodes or raises CorruptRecordError; a prefix that lacks its last byte never decodes."""
    key, value = _encode(record)
    at = data.draw(st.integers(0, len(value) - 1))
    for cut in (value[:at], value[:-1]):
        with pytest.raises(CorruptRecordError):
            control_records.decode_record(key, cut)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(ANY, st.data())
def test_a_damaged_record_is_corrupt_or_valid(record: Any, data: st.DataObject) -> None:
    """Flip any bits of any bytes: it decodes to some record or raises a typed error, never anything else."""
    key, value = _encode(record)
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        control_records.decode_record(key, bytes(damaged))
    except (CorruptRecordError, RecordVersionError):
        pass


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([b"timeline:t", b"waiver:t:1:2:g", b"lease:n:w", b"ready:t:n:w"]), st.binary(max_size=60))
def test_foreign_bytes_are_corrupt_or_valid(key: bytes, tail: bytes) -> None:
    """Bytes that somebody else wrote under one of our keys, with and without our beginning."""
    kind = {b"t": 1, b"w": 2, b"l": 3, b"r": 4}[key[:1]]
    with pytest.raises(CorruptRecordError):
        control_records.decode_record(key, b"XY" + tail)
    try:
        control_records.decode_record(key, b"KO" + bytes((kind, codec.MAJOR, 0)) + tail)
    except CorruptRecordError:
        pass


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"KO"),
        (b"timeline:t", None),
        (b"later:kind", b"anything"),
        (b"timelines:t", b""),
        (b"", b""),
        (b"\xff\xfe", b"x"),
    ],
)
def test_what_is_not_ours_is_skipped(key: bytes | None, value: bytes | None) -> None:
    """Tombstones, keyless records and kinds that this version does not know are None, and are not decoded."""
    assert control_records.decode_record(key, value) is None


def test_a_record_under_another_kinds_key_is_corrupt() -> None:
    """The kind stands in the value too: a lease under a timeline's key is not guessed at."""
    value = control_records.encode_ready(Ready("t", "w", "n", 1))
    with pytest.raises(CorruptRecordError, match="not a timeline record"):
        control_records.decode_record(b"timeline:t", value)


def test_a_value_that_makes_no_sense_is_corrupt() -> None:
    """It decodes, but its contents contradict themselves: no epochs, an unknown state, a partition that is no number."""
    timeline = timeline_of(1, [])
    fields = dict(codec.decode(control_records.TIMELINE, control_records.encode_timeline(timeline)).fields)
    for change in (
        {"epochs": []},
        {"initial": 0},
        {"change": {"epoch": 1, "count": 2, "phase": "LATER", "attempt": 1, "immediate": False, "groups": []}},
        {"epochs": [{"number": 0, "count": 1, "ends": {"x": 1}, "begins": {}, "committed_at_ms": 0}]},
    ):
        with pytest.raises(CorruptRecordError):
            control_records.decode_timeline(codec.encode(control_records.TIMELINE, {**fields, **change}))
    ready = dict(codec.decode(control_records.READY, control_records.encode_ready(Ready("t", "w", "n", 1))).fields)
    with pytest.raises(CorruptRecordError):
        control_records.decode_ready(codec.encode(control_records.READY, {**ready, "acknowledged": {"x": 1}}))
    lease = Lease("w", "n", LeaseState.JOIN, None, 1, 1, ())
    fields = dict(codec.decode(control_records.LEASE, control_records.encode_lease(lease)).fields)
    with pytest.raises(CorruptRecordError):
        control_records.decode_lease(codec.encode(control_records.LEASE, {**fields, "state": "LATER"}))


# --- versions -------------------------------------------------------------------------------------------------

A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string", "default": "none"}
C = {"name": "c", "type": {"type": "map", "values": "long"}, "default": {}}
OLD = codec.record_kind(9, "thing", [A])
NEW = codec.record_kind(9, "thing", [A], [A, B], [A, B, C])


@pytest.mark.kip("K903-14")
def test_an_older_reader_reads_a_newer_minor() -> None:
    """It sees the fields that it knows, and that the record is newer, so that it does not write it again."""
    decoded = codec.decode(OLD, codec.encode(NEW, {"a": 7, "b": "x", "c": {"1": 2}}))
    assert decoded.fields == {"a": 7}
    assert decoded.minor == 2 > OLD.minor


@pytest.mark.kip("K903-14")
def test_a_newer_reader_reads_an_older_minor() -> None:
    """Fields that did not exist have their defaults."""
    decoded = codec.decode(NEW, codec.encode(OLD, {"a": 7}))
    assert decoded.fields == {"a": 7, "b": "none", "c": {}}
    assert decoded.minor == 0


def test_an_older_build_reads_real_records_of_a_newer_one() -> None:
    """A lease with a field more, written by a newer minor, is the same lease here."""
    lease = Lease("w", "n", LeaseState.LIVE, 4, 1000, 2, ("t",), "tx", 500)
    known = [list(schema["fields"]) for schema in control_records.LEASE.schemas]  # type: ignore[call-overload,index]
    newer = codec.record_kind(control_records.LEASE.number, "lease", *known, [*known[-1], B])
    fields = codec.decode(control_records.LEASE, control_records.encode_lease(lease)).fields
    value = codec.encode(newer, {**fields, "b": "news"})
    assert value[4] == control_records.LEASE.minor + 1
    assert control_records.decode_lease(value) == lease


@pytest.mark.kip("K903-14")
def test_a_timeline_of_the_first_minor_version_is_read_and_its_readers_read_the_newest() -> None:
    """Each side sees what the first version knew; what came later has the meaning that it had before."""
    first = codec.record_kind(1, "timeline", list(control_records.TIMELINE.schemas[0]["fields"]))  # type: ignore[call-overload,index]
    grown = timeline_of(1, [(4, {0: 9}, {}), (2, {2: 5, 3: 6}, {})])
    late = Retirement(False, ("g",), delay_ms=7, forced=True)
    timeline = replace(
        grown.opened(3, ChangePhase.PREPARE, 2, late),
        epochs=(*grown.epochs[:-1], replace(grown.newest, held_ms=12)),
        drains=(Drain(2, 2, 5, Mode.NONE, late, tries=3, error="no leader"), Drain(3, 2, 6, Mode.READ_ONLY, late)),
    )

    by_older = codec.decode(first, control_records.encode_timeline(timeline))
    assert by_older.minor > first.minor
    again = control_records.decode_timeline(codec.encode(first, by_older.fields))

    old = Retirement(False, ("g",))
    assert again == replace(
        timeline,
        epochs=grown.epochs,
        change=replace(timeline.change, retirement=old),  # type: ignore[type-var]
        drains=(Drain(2, 2, 5, Mode.NONE, old), Drain(3, 2, 6, Mode.READ_ONLY, old)),
    )
    assert [d.state for d in timeline.drains] == [DrainState.PURGE_FAILED, DrainState.WAITING]
    assert [d.state for d in again.drains] == [DrainState.PURGING, DrainState.WAITING]


@pytest.mark.kip("K903-15")
@pytest.mark.parametrize("major", [0, 4, 255])
def test_another_major_is_refused(major: int) -> None:
    """Its meaning is unknown: the reader stops and says which version it found."""
    value = bytearray(control_records.encode_timeline(timeline_of(1, [])))
    value[3] = major
    with pytest.raises(RecordVersionError, match=rf"version {major}\.{control_records.TIMELINE.minor}"):
        control_records.decode_record(b"timeline:t", bytes(value))


@pytest.mark.parametrize(
    "versions",
    [
        ([A, B], [B, A]),
        ([A, B], [A]),
        ([A], [A, {"name": "b", "type": "string"}]),
        ([A], [B, A]),
        ([A], [{"name": "a", "type": "long"}, B]),
        ([A], [A, B], [A, C, B]),
    ],
)
def test_a_minor_version_only_appends_fields_with_defaults(versions: tuple[list[dict[str, Any]], ...]) -> None:
    """Anything else is refused where the kind is made, not where some older reader fails."""
    with pytest.raises(ValueError, match="may only append"):
        codec.record_kind(9, "thing", *versions)


def test_keys_are_apart() -> None:
    """Each join has its own key, and so has each READY of a topic and each waiver of a group."""
    keys = {
        control_records.timeline_key("t"),
        control_records.lease_key("w", "n1"),
        control_records.lease_key("w", "n2"),
        control_records.ready_key("t", "w", "n1"),
        control_records.ready_key("t", "w", "n2"),
        control_records.ready_key("u", "w", "n1"),
        control_records.waiver_key(Waiver("t", "id", "g", 1, 2, "who", "why")),
        control_records.waiver_key(Waiver("t", "id", "h", 1, 2, "who", "why")),
        control_records.waiver_key(Waiver("t", "id", "g", 1, 3, "who", "why")),
    }
    assert len(keys) == 9
