"""The hashes of stock producers, and what counts as a key."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keyorder.partitioner import hashing
from keyorder.partitioner.errors import KeyTypeError, LayoutError, UsageError
from keyorder.partitioner.hashing import HASHES, MAX_HASH, key_bytes, key_hash
from keyorder.partitioner.layout import Layout
from support import dumb

VECTORS = [
    (b"21", -973932308, 1173551340),
    (b"foobar", -790332482, 1357151166),
    (b"abc", 479470107, 479470107),
    (b"a-little-bit-long-string", -985981536, 1161502112),
    (b"a-little-bit-longer-string", -1486304829, 661178819),
    (b"", 275646681, 275646681),
    (b"K1", 1603949219, 1603949219),
]


@pytest.mark.kip("K253-38", "T-4")
@pytest.mark.parametrize(("key", "signed", "positive"), VECTORS)
def test_kafkas_vectors(key: bytes, signed: int, positive: int) -> None:
    """Kafka's own test keys have Kafka's own hashes, here and in the second implementation."""
    assert key_hash(key) == positive
    assert dumb.murmur2(key) == signed


@pytest.mark.kip("K253-38")
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
@example(b"\xff\xff\xff\xff")
@example(b"\x00")
def test_it_agrees_with_the_second_implementation(key: bytes) -> None:
    """Any bytes of any length hash to the algorithm's positive value."""
    assert key_hash(key) == dumb.murmur2(key) & 0x7FFFFFFF


@pytest.mark.parametrize("truth", [0, 1, MAX_HASH - 1, MAX_HASH])
def test_the_highest_hash_is_told_from_zero(truth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library hands out remainders only; by 2**31 - 1 the highest hash leaves 0 as a true 0 does."""
    monkeypatch.setattr(hashing, "murmur2", lambda _key, count: truth % count)
    assert key_hash(b"any") == truth


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=20))
def test_a_str_is_its_utf8_bytes(key: str) -> None:
    """A text key and its UTF-8 bytes are one key."""
    assert key_bytes(key) == key.encode() == key_bytes(key.encode())


def test_subclasses_of_bytes_and_str_are_keys() -> None:
    """They come out as plain bytes."""

    class MyBytes(bytes):
        pass

    class MyStr(str):
        __slots__ = ()

    assert type(key_bytes(MyBytes(b"ab"))) is bytes
    assert key_bytes(MyBytes(b"ab")) == key_bytes(MyStr("ab")) == b"ab"


@pytest.mark.parametrize("key", [None, 1, 1.5, bytearray(b"ab"), memoryview(b"ab"), ("ab",), object()])
def test_other_types_are_refused(key: object) -> None:
    """A key that is neither bytes nor str is the caller's TypeError, and says its type."""
    with pytest.raises(KeyTypeError, match=type(key).__name__) as raised:
        key_bytes(key)  # type: ignore[arg-type]
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, UsageError)
    assert not raised.value.retriable


# What librdkafka and zlib give; of FNV-1a also the edges: -2**31 has no positive counterpart, and counts as 2**31.
OTHER_VECTORS = [
    ("crc32", b"", 0),
    ("crc32", b"123456789", 0xCBF43926),
    ("crc32", b"abc", 891568578),
    ("fnv1a", b"", 2128831035),
    ("fnv1a", b"a", 468965076),
    ("fnv1a", b"foobar", 2**32 - 0xBF9CF968),
    ("fnv1a", b"29e02ed80", 0),
    ("fnv1a", b"4174da201", 1),
    ("fnv1a", b"b23f42c00", 2**31 - 1),
    ("fnv1a", b"010fa2b51", 2**31 - 1),
    ("fnv1a", b"5d3f19010", 2**31),
]


@pytest.mark.parametrize(("name", "key", "expected"), OTHER_VECTORS)
def test_vectors_of_the_other_hashes(name: str, key: bytes, expected: int) -> None:
    """Well-known keys have their well-known hashes, here and in the second implementation, and fill their whole range."""
    assert HASHES[name].of(key) == expected < HASHES[name].limit
    assert dumb.HASHES[name](key) == expected


@pytest.mark.parametrize("name", HASHES)
@settings(max_examples=200, deadline=None)
@given(key=st.binary(max_size=80), count=st.integers(1, 2**31 - 1))
@example(key=b"5d3f19010", count=2**31 - 1)
@example(key=b"010fa2b51", count=2**31 - 1)
@example(key=b"", count=7)
def test_every_hash_agrees_with_the_second_implementation(name: str, key: bytes, count: int) -> None:
    """As a number, and modulo any count as the client library gives it."""
    expected = dumb.HASHES[name](key)
    assert HASHES[name].of(key) == expected
    assert HASHES[name].slot(key, count) == expected % count


def test_an_unknown_hash_is_refused() -> None:
    """And the error names those that there are."""
    with pytest.raises(LayoutError, match="murmur2, crc32, fnv1a"):
        Layout(4, 6, hash="md5")


@pytest.mark.parametrize("name", HASHES)
@settings(max_examples=100, deadline=None)
@given(key=st.binary(max_size=20), initial=st.integers(1, 20), more=st.integers(0, 50))
def test_a_layout_places_keys_by_its_hash(name: str, key: bytes, initial: int, more: int) -> None:
    """At the initial count where a stock producer of that hash puts them, afterwards by linear hashing over it."""
    h = dumb.HASHES[name](key)
    assert Layout(initial, initial, name).home(key) == h % initial
    layout = Layout(initial, initial, name).resized(initial + more)
    assert layout.home(key) == dumb.dumb_home(initial, initial + more, h) == layout.home_of_hash(h)
    assert layout.hash == name
