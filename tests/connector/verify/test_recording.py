"""Values and histories survive the way to disk and back, torn by kills or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder.connector.verify.events import Kind, Value, decode_value, encode_value
from keyorder.connector.verify.history import load
from keyorder.connector.verify.recorder import Recorder, now_ns

NAMES = st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), max_size=8)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SEQS = st.integers(min_value=1, max_value=2**63)


@given(NAMES, NAMES, KEYS, SEQS, st.integers(0, 40))
def test_a_value_survives_its_bytes(run: str, writer: str, key: str, seq: int, pad: int) -> None:
    """Decoding gives back what was encoded, whatever the names hold; padding changes nothing."""
    assert decode_value(encode_value(run, writer, key, seq, pad)) == Value(run, writer, key, seq)


@given(NAMES, KEYS, SEQS, st.integers(0, 40), st.data())
def test_a_damaged_value_is_no_value(writer: str, key: str, seq: int, pad: int, data: st.DataObject) -> None:
    """One changed byte anywhere makes the bytes foreign: the crc covers all of them."""
    encoded = bytearray(encode_value("r", writer, key, seq, pad))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    assert decode_value(bytes(encoded)) is None


@given(st.binary(max_size=60))
def test_foreign_bytes_are_no_value(data: bytes) -> None:
    """Arbitrary bytes decode to None and never raise."""
    assert decode_value(data) is None


def test_names_that_would_be_ambiguous_are_refused() -> None:
    """A bar in the run or the writer, or a seq below 1, is a ValueError."""
    for run, writer, seq in (("a|b", "w", 1), ("r", "w|", 1), ("r", "w", 0)):
        with pytest.raises(ValueError):
            encode_value(run, writer, "k", seq)


def test_every_kind_of_event_is_loaded_as_it_was_recorded(tmp_path: Path) -> None:
    """Each method of the recorder gives the event of its kind with its fields."""
    value = Value("r", "w", 'k"\n|é', 1)
    with Recorder(tmp_path / "w", "w", run="r") as writer, Recorder(tmp_path / "c", "c", group="g") as reader:
        writer.send_invoke(value.key, 1)
        writer.send_ok(value.key, 1, 2, 7)
        writer.send_fail(value.key, 2)
        writer.send_unknown(value.key, 3)
        writer.new_epoch()
        reader.assign([2, 3])
        reader.deliver_start(2, 7, value)
        reader.deliver_end(2, 7, value)
        reader.deliver_starts([(2, 8, None)])
        reader.deliver_ends([])
        for offset, outcome in ((8, "ok"), (9, "fail"), (10, "unknown")):
            reader.commit(2, offset, outcome)  # type: ignore[arg-type]
        reader.seek(2, 0)
        reader.revoke([2])
        reader.lost([3])
        writer.crash("c")
        writer.restart("c")
    history = load([tmp_path / "w", tmp_path / "c"])
    seen = [(e.kind, e.actor, e.partition, e.offset, e.vid) for e in history.events()]
    assert seen[2:] == [
        (Kind.SEND_INVOKE, "w", -1, -1, 0),
        (Kind.SEND_OK, "w", 2, 7, 0),
        (Kind.SEND_FAIL, "w", -1, -1, 1),
        (Kind.SEND_UNKNOWN, "w", -1, -1, 2),
        (Kind.NEW_EPOCH, "w", -1, -1, -1),
        (Kind.ASSIGN, "c", 2, -1, -1),
        (Kind.ASSIGN, "c", 3, -1, -1),
        (Kind.DELIVER_START, "c", 2, 7, 0),
        (Kind.DELIVER_END, "c", 2, 7, 0),
        (Kind.DELIVER_START, "c", 2, 8, -1),
        (Kind.COMMIT_OK, "c", 2, 8, -1),
        (Kind.COMMIT_FAIL, "c", 2, 9, -1),
        (Kind.COMMIT_UNKNOWN, "c", 2, 10, -1),
        (Kind.SEEK, "c", 2, 0, -1),
        (Kind.REVOKE, "c", 2, -1, -1),
        (Kind.LOST, "c", 3, -1, -1),
        (Kind.CRASH, "c", -1, -1, -1),
        (Kind.RESTART, "c", -1, -1, -1),
    ]
    assert history.groups() == ["g"]
    assert history.values[0] == value._replace(run="")


def test_a_value_of_another_run_is_foreign(tmp_path: Path) -> None:
    """When the run has a name, what an earlier run left in the topic has no number."""
    with Recorder(tmp_path / "c", "c", group="g", run="today") as reader:
        reader.deliver_starts([(0, 0, Value("yesterday", "w", "k", 1)), (0, 1, Value("today", "w", "k", 1))])
    assert [e.vid for e in load([tmp_path / "c"]).events()] == [-1, -1, 0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=8), min_size=1, max_size=4))
def test_the_loader_merges_by_time_and_keeps_each_files_order(times: list[list[int]]) -> None:
    """The merged events are sorted by time; events of one time keep the order of files and lines."""
    with tempfile.TemporaryDirectory() as folder:
        paths, expected = [], []
        for number, row in enumerate(times):
            paths.append(Path(folder) / str(number))
            lines = [f'[0,"open","a{number}","",""]']
            expected.append((0, number, -1))
            for seq, t in enumerate(sorted(row), start=1):
                lines.append(f'[{t},"si","k",{seq}]')
                expected.append((t, number, seq))
            paths[-1].write_text("\n".join([*lines, ""]))
        history = load(paths)
    seen = [(e.t, int(e.actor[1:]), history.values[e.vid].seq if e.vid >= 0 else -1) for e in history.events()]
    assert seen == sorted(expected, key=lambda event: event[0])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_torn_last_line_costs_only_itself(data: st.DataObject) -> None:
    """Cut anywhere, a file gives all its whole lines, and a next life can go on in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w"
        with Recorder(path, "w") as recorder:
            for seq in range(1, 6):
                recorder.send_ok("k", seq, 0, seq)
        whole = path.read_bytes()
        cut = data.draw(st.integers(whole.index(b"\n") + 1, len(whole)))
        path.write_bytes(whole[:cut])
        lines = whole[:cut].count(b"\n")
        assert len(load([path])) == lines
        with Recorder(path, "w") as recorder:
            recorder.send_ok("k", 6, 0, 6)
        assert len(load([path])) - lines in (2, 3)  # 3: only the line feed was missing


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """A line that is no event, elsewhere than at the end of a life, is refused with its place."""
    path = tmp_path / "w"
    with Recorder(path, "w") as recorder:
        recorder.send_invoke("k", 1)
        recorder.send_invoke("k", 2)
    lines = path.read_bytes().splitlines(keepends=True)
    for bad in (b"garbage\n", b'[5,"zz",1]\n', b'[5,"co",1,2,"perhaps"]\n'):
        path.write_bytes(lines[0] + bad + lines[2])
        with pytest.raises(ValueError, match=r"w:2"):
            load([path])
    path.write_bytes(lines[1])
    with pytest.raises(ValueError, match="opening"):
        load([path])


def test_a_killed_process_loses_nothing_that_it_recorded(tmp_path: Path) -> None:
    """SIGKILL right after the last call: every event is in the file."""
    code = (
        "import os, signal, sys\n"
        "from keyorder.connector.verify.recorder import Recorder\n"
        "r = Recorder(sys.argv[1], 'w')\n"
        "for seq in range(1, 1001): r.send_invoke('k', seq)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, str(tmp_path / "w")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(load([tmp_path / "w"])) == 1001


def test_the_clock_only_goes_forward_and_fsync_records_too(tmp_path: Path) -> None:
    """Times in a file never go back; a recorder with fsync writes the same events."""
    before = now_ns()
    with Recorder(tmp_path / "w", "w", fsync=True) as recorder:
        recorder.send_invoke("k", 1)
    times = [e.t for e in load([os.fspath(tmp_path / "w")]).events()]
    assert [before, *times] == sorted([before, *times])
