"""KIP-280's order: which of a key's records survives, under each strategy."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.compaction.strategy import (
    ABSENT,
    Rank,
    Strategy,
    StrategyKind,
    encode_version,
    header_version,
    malformed,
    survivor,
)
from keyorder.partitioner.errors import ConfigError

NAMES = ("offset", "timestamp", "header")
Row = tuple[int, str | None, int, tuple[int, ...]]  # offset, value, timestamp, versions in header order


def _headers(versions: tuple[int, ...]) -> list[tuple[str, bytes | None]]:
    return [("other", b"\xff" * 8), *(("v", encode_version(version)) for version in versions)]


def _winner(strategy: str, rows: list[Row]) -> str | None:
    chosen = Strategy.parse(strategy, "v")
    ranked = {chosen.rank(offset, ts, _headers(versions)): value for offset, value, ts, versions in rows}
    return ranked[survivor(ranked)]


@pytest.mark.kip("T-12", "K280-01", "K280-02", "K280-11", "K280-12", "K280-13", "K280-14", "K280-19", "C-18")
@pytest.mark.parametrize(
    ("rows", "winners"),
    [
        ([(1, "a", 100, ()), (2, "b", 90, (5,))], ("b", "a", "b")),
        ([(1, "a", 100, (7,)), (2, "b", 100, (7,))], ("b", "b", "b")),
        ([(1, "a", 100, (7,)), (2, "b", 110, ())], ("b", "b", "a")),
        ([(1, "a", 100, (5, 9)), (2, "b", 110, (8,))], ("b", "b", "a")),
        ([(1, "a", 100, (7,)), (2, None, 90, (6,))], (None, "a", "a")),
        ([(1, "V2", 100, (2,)), (2, "V1", 100, (1,))], ("V1", "V1", "V2")),
        ([(1, "a", 100, ()), (2, "b", 100, ())], ("b", "b", "b")),
    ],
)
def test_the_kips_cases(rows: list[Row], winners: tuple[str | None, ...]) -> None:
    """Each strategy's survivor, in whatever order the records are looked at."""
    for name, expected in zip(NAMES, winners, strict=True):
        for order in permutations(rows):
            assert _winner(name, list(order)) == expected, name


@pytest.mark.kip("K280-03", "K280-10", "K280-15")
def test_settings_name_a_strategy() -> None:
    """Any case, spaces around; nothing means offset; a header is kept for the header strategy only."""
    assert Strategy.parse(None) == Strategy.parse("") == Strategy.parse(" Offset ", "v") == Strategy()
    assert Strategy.parse("TIMESTAMP").kind is StrategyKind.TIMESTAMP
    assert Strategy.parse("header", " v ").header == "v"


@pytest.mark.kip("K280-15", "C-18")
@pytest.mark.parametrize("header", [None, "", " \t"])
def test_a_header_strategy_without_a_header_acts_as_offset(
    header: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """As the KIP says of a blank name, with a warning that names the setting; code that asks for it by hand is refused."""
    assert Strategy.parse("Header", header) == Strategy()
    assert "compaction.strategy.header" in caplog.text
    with pytest.raises(ConfigError, match=r"compaction\.strategy\.header"):
        Strategy(StrategyKind.HEADER, header or "")


@pytest.mark.kip("K280-15")
def test_an_unknown_strategy_is_refused() -> None:
    """With the setting's name and what there is."""
    with pytest.raises(ConfigError, match=r"compaction\.strategy: 'newest' .* offset, timestamp, header"):
        Strategy.parse("newest", "v")


@pytest.mark.kip("K280-12")
@pytest.mark.parametrize(
    ("value", "version"),
    [
        (b"\x00" * 8, 0),
        (b"\x00" * 7 + b"\x01", 1),
        (b"\x7f" + b"\xff" * 7, 2**63 - 1),
        (b"\xff" * 8, -1),
        (b"\x80" + b"\x00" * 7, -(2**63)),
        (b"\x01" + b"\x00" * 7, 2**56),
    ],
)
def test_a_version_is_a_big_endian_signed_long(value: bytes, version: int) -> None:
    """Eight bytes, highest first, two's complement; both ways."""
    assert header_version([("v", value)], "v") == version
    assert encode_version(version) == value


@pytest.mark.kip("K280-16")
@pytest.mark.parametrize("value", [None, b"", b"\x01", b"\x00" * 7, b"\x00" * 9])
def test_a_header_of_another_length_is_absent_and_can_be_counted(value: bytes | None) -> None:
    """It competes as a record without a version, and is told apart from one without a header."""
    headers = [("v", encode_version(5)), ("v", value)]
    assert header_version(headers, "v") is None
    assert malformed(headers, "v")
    assert Strategy.parse("header", "v").version(1, 2, headers) == ABSENT
    assert not malformed(None, "v")
    assert not malformed([("v", value), ("v", encode_version(5))], "v")


@pytest.mark.kip("K280-14")
def test_a_record_with_the_lowest_version_beats_one_without() -> None:
    """Exactly one has the header: it wins, even with the lowest long there is."""
    by_header = Strategy.parse("header", "v")
    lowest = by_header.rank(1, 0, [("v", encode_version(-(2**63)))])
    assert lowest > by_header.rank(2, 0, None)
    assert lowest > by_header.rank(2, 0, [])


@pytest.mark.kip("C-18", "K280-16")
@pytest.mark.parametrize("version", [0, -1, -(2**63)])
def test_only_positive_versions_count_where_that_is_asked_for(version: int) -> None:
    """The public implementation takes 0 and below for absent; the text does not, and is the default."""
    headers = [("v", encode_version(version))]
    assert Strategy(StrategyKind.HEADER, "v", positive_only=True).version(1, 1, headers) == ABSENT
    assert Strategy(StrategyKind.HEADER, "v").version(1, 1, headers) == version
    assert Strategy(StrategyKind.HEADER, "v", positive_only=True).version(1, 1, [("v", encode_version(1))]) == 1


@pytest.mark.kip("C-19")
def test_between_two_homes_the_later_epoch_decides_before_the_offset() -> None:
    """A key that moved has a low offset at its new home: the offset strategy must not keep the old value."""
    for name in NAMES:
        strategy = Strategy.parse(name, "v")
        headers = _headers((3,))
        old, new = strategy.rank(900, 50, headers, epoch=1), strategy.rank(2, 50, headers, epoch=2)
        assert survivor([old, new]) == new


@pytest.mark.kip("K280-11", "K280-12", "C-19")
def test_a_higher_version_beats_a_later_epoch() -> None:
    """What the application says comes first: a late old version at the new home does not win."""
    for name in ("timestamp", "header"):
        strategy = Strategy.parse(name, "v")
        assert strategy.rank(900, 51, _headers((4,)), epoch=1) > strategy.rank(2, 50, _headers((3,)), epoch=2)


PLACES = st.tuples(
    st.integers(0, 3),
    st.integers(-1, 2),
    st.lists(st.one_of(st.none(), st.just(b"bad"), st.integers(-2, 2).map(encode_version)), max_size=2),
    st.integers(0, 2),
)


def _rank(name: str, place: tuple[int, int, list[bytes | None], int]) -> Rank:
    offset, timestamp, values, epoch = place
    return Strategy.parse(name, "v").rank(offset, timestamp, [("v", value) for value in values], epoch)


@pytest.mark.kip("K280-08")
@settings(max_examples=120, deadline=None)
@given(st.sampled_from(NAMES), PLACES, PLACES, PLACES)
def test_the_order_is_total(name: str, one: object, two: object, three: object) -> None:
    """Any two ranks compare, exactly one way; the order is transitive; equal only at the same epoch and offset."""
    a, b, c = (_rank(name, place) for place in (one, two, three))  # type: ignore[arg-type]
    assert (a < b) + (a == b) + (a > b) == 1
    if a <= b and b <= c:
        assert a <= c
    offsets_and_epochs = ((place[0], place[3]) for place in (one, two))  # type: ignore[index]
    assert (a == b) <= (next(offsets_and_epochs) == next(offsets_and_epochs))


@pytest.mark.kip("K280-08")
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.lists(PLACES, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_survivor_does_not_depend_on_the_order_of_reading(name: str, places: list, random: object) -> None:  # type: ignore[type-arg]
    """Compacting in pieces and in any order keeps the record that compacting at once keeps."""
    ranks = [_rank(name, place) for place in places]
    whole = survivor(ranks)
    random.shuffle(ranks)  # type: ignore[attr-defined]
    cut = len(ranks) // 2
    pieces = [survivor(piece) for piece in (ranks[:cut], ranks[cut:]) if piece]
    assert survivor(pieces) == whole
