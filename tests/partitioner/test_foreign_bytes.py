"""What anybody may have written into keys, headers and commits: it is read as ours or passed by, and raises nothing."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from keyorder.partitioner.changes.rehoming import origin_of_copy
from keyorder.partitioner.gates.starts import ahead_of, epoch_of, note_of
from keyorder.partitioner.records.control_records import topic_of_key, waiver_of_key
from keyorder.partitioner.routing import parse_hint

#: A number that Python refuses to read, and digits that only some of its methods take for digits.
TOO_LONG = "9" * 5000
ODD_DIGITS = ["²", "٣", "1_0", "+1", "-1", " 1", "1\n", "0x1", "1e3", "", TOO_LONG]
NUMBERS = st.one_of(st.sampled_from(ODD_DIGITS), st.integers(-(2**70), 2**70).map(str), st.text(max_size=6))
#: The largest offset that a broker has.
LARGEST = 2**63 - 1


@given(NUMBERS, st.one_of(st.none(), NUMBERS), st.text(max_size=8), st.text(max_size=8), st.integers(0, 2**62))
@example(TOO_LONG, None, "", "", 0)
@example("7", TOO_LONG, "", "", 0)
@example("7", str(2**63), "", "", 0)
def test_commit_metadata(epoch: str, length: str | None, encoded: str, note: str, offset: int) -> None:
    """Of any member of the group: an epoch that a record can have, and offsets that a broker can have, or not ours."""
    metadata = f"ko1:{epoch}" + ("" if length is None else f"+{length}.{encoded}") + (f";{note}" if note else "")

    found, ahead = epoch_of(metadata), ahead_of(metadata, offset)

    assert found is None or 0 <= found <= LARGEST
    assert ahead is None or offset <= ahead.upto <= LARGEST
    assert ahead is None or all(offset <= pending <= LARGEST for pending in ahead.pending)
    if found is None:
        assert (ahead, note_of(metadata)) == (None, metadata)


@given(st.text(max_size=40), st.integers(0, 2**62))
def test_commit_metadata_of_others(metadata: str, offset: int) -> None:
    """A stock group's own words are no metadata of ours."""
    if not metadata.startswith("ko1:"):
        assert (epoch_of(metadata), ahead_of(metadata, offset), note_of(metadata)) == (None, None, metadata)


@given(st.one_of(NUMBERS, NUMBERS.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=12)))
@example(b"\xff")
def test_a_hint(value: str | bytes) -> None:
    """A header of any producer."""
    found = parse_hint(value)
    assert found is None or 0 <= found < 10**10


@given(NUMBERS, st.sampled_from(["", ":", "::"]), NUMBERS, st.booleans())
def test_the_header_of_a_copy(partition: str, colon: str, offset: str, as_bytes: bool) -> None:
    """A header of any producer."""
    text = f"{partition}{colon}{offset}"
    found = origin_of_copy(text.encode("utf-8", "surrogatepass") if as_bytes else text)
    assert found is None or f"{found[0]}:{found[1]}" == ":".join(part.lstrip("0") or "0" for part in text.split(":"))


@given(
    st.sampled_from([b"waiver", b"timeline", b"lease", b"ready", b""]),
    st.lists(st.one_of(st.binary(max_size=6), NUMBERS.map(lambda text: text.encode("utf-8", "replace"))), max_size=5),
)
@example(b"waiver", [b"t", TOO_LONG.encode(), b"1", b"g"])
@example(b"waiver", [b"t", b"1", str(2**63).encode(), b"g"])
@example(b"waiver", [b"\xff", b"1", b"1", b"g"])
@example(b"timeline", [b"\xff"])
def test_the_key_of_a_control_record(kind: bytes, parts: list[bytes]) -> None:
    """Of whoever may write the control topics."""
    key = b":".join([kind, *parts])

    topic, waiver = topic_of_key(key), waiver_of_key(key)

    assert (topic is None) == (key.partition(b":")[0] != b"timeline")
    assert waiver is None or (0 <= waiver[1] <= LARGEST and 0 <= waiver[2] <= LARGEST)
