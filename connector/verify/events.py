"""What a run writes down: self-describing record values, and the kinds of events.

A **value** names itself: (run, writer, key, seq, crc). `seq` is 1, 2, ... per (writer, key), so a
reader can tell from the bytes alone which record this is, and the checker can tell what is missing.
As bytes:

    k1|<run>|<writer>|<key>|<seq>|<crc32 as 8 hex digits>|<padding>

`run` and `writer` hold no `|`; `key` may hold anything. The crc covers all the rest, padding included.
A record that is sent without a Kafka key has the key "".

A **history** is a row of events on one clock that all processes of one machine share (see
`recorder`), each a compact JSON array:

    [t, "open", actor, group, run]              a recorder was opened: a new life of the actor
    [t, "si", key, seq]                         send-invoke
    [t, "so", key, seq, partition, offset]      send-ok; offset -1: acknowledged, place not told
    [t, "sf", key, seq]                         send-fail: definitely not written
    [t, "su", key, seq]                         send-unknown: once or not at all
    [t, "ne"]                                   the writer's client library begins a new producer epoch
    [t, "as" | "re" | "lo", [partition, ...]]   assign, revoke, lost
    [t, "ds" | "de", partition, offset, run, writer, key, seq]   deliver-start, deliver-end
    [t, "ds" | "de", partition, offset]         the same for bytes that are no value of ours
    [t, "co", partition, offset, "ok" | "fail" | "unknown"]      commit
    [t, "se", partition, offset]                declared seek
    [t, "cr" | "st", actor]                     crash, restart of an actor (may be another's)

`t` is in nanoseconds. In a send the writer is the recorder's actor.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

_TAG = b"k1"


class Value(NamedTuple):
    """The identity of one record: the `seq`-th that `writer` sent under `key` in `run`."""

    run: str
    writer: str
    key: str
    seq: int


class Kind(IntEnum):
    """The kinds of events of a loaded history."""

    OPEN = 0
    SEND_INVOKE = 1
    SEND_OK = 2
    SEND_FAIL = 3
    SEND_UNKNOWN = 4
    ASSIGN = 5
    REVOKE = 6
    LOST = 7
    DELIVER_START = 8
    DELIVER_END = 9
    COMMIT_OK = 10
    COMMIT_FAIL = 11
    COMMIT_UNKNOWN = 12
    SEEK = 13
    CRASH = 14
    RESTART = 15
    NEW_EPOCH = 16


@lru_cache(maxsize=65_536)
def _head(run: str, writer: str, key: str) -> bytes:
    if "|" in run or "|" in writer:
        raise ValueError(f"run and writer hold no '|': {run!r}, {writer!r}")
    return b"%b|%b|%b|%b|" % (_TAG, run.encode(), writer.encode(), key.encode())


@lru_cache(maxsize=64)
def _padding(size: int) -> bytes:
    return b"." * size


def encode_value(run: str, writer: str, key: str, seq: int, pad: int = 0) -> bytes:
    """The bytes of a value, with `pad` bytes of padding at the end.

    Raises ValueError when `run` or `writer` holds a `|`, or `seq` is below 1.
    """
    if seq < 1:
        raise ValueError(f"seq counts from 1: {seq}")
    body = _head(run, writer, key) + b"%d" % seq
    if not pad:
        return b"%b|%08x|" % (body, zlib.crc32(body))
    padding = _padding(pad)
    return b"%b|%08x|%b" % (body, zlib.crc32(padding, zlib.crc32(body)), padding)


def decode_value(data: bytes) -> Value | None:
    """The value in `data`, or None when the bytes are not ours or do not match their crc."""
    parts = data.rsplit(b"|", 3)
    if len(parts) != 4:
        return None
    head, seq, crc, padding = parts
    fields = head.split(b"|", 3)
    if len(fields) != 4 or fields[0] != _TAG:
        return None
    # The crc covers head and seq with the bar between them, which the slice restores without a copy of both.
    body = data[: len(head) + 1 + len(seq)]
    if crc != b"%08x" % zlib.crc32(padding, zlib.crc32(body)) or not seq.isdigit():
        return None
    try:
        return Value(fields[1].decode(), fields[2].decode(), fields[3].decode(), int(seq))
    except UnicodeDecodeError:
        return None
