"""Partition modes: KIP-694's codes and what each allows."""

from __future__ import annotations

import pytest
from keyorder.partitioner.errors import UsageError
from keyorder.partitioner.modes import DEFAULT_DELETE_DELAY_MS, Mode, UnknownModeError


@pytest.mark.kip("K694-05", "K694-14", "C-12", "T-10")
@pytest.mark.parametrize(
    ("code", "name", "readable"), [(0, "ReadWrite", True), (1, "ReadOnly", True), (-1, "None", False)]
)
def test_each_code_has_a_name_and_its_rights(code: int, name: str, readable: bool) -> None:
    """0 and 1 are read, -1 is not; the codes are the KIP's. What is written is active: see the layout."""
    mode = Mode.of_code(code)
    assert (int(mode), str(mode), mode.readable) == (code, name, readable)


@pytest.mark.kip("K694-25", "T-10")
def test_an_absent_mode_is_read_write() -> None:
    """A partition of which nothing is said may be written and read."""
    assert Mode.of_code(None) is Mode.READ_WRITE


@pytest.mark.kip("K694-05")
@pytest.mark.parametrize("code", [2, -2, 127, True, False, "1", 1.0])
def test_an_unknown_code_is_refused(code: object) -> None:
    """A code that the KIP does not name is an error, never a guess; neither is a bool or a text a code."""
    with pytest.raises(UnknownModeError, match="unknown partition mode") as raised:
        Mode.of_code(code)  # type: ignore[arg-type]
    assert isinstance(raised.value, UsageError)


@pytest.mark.kip("K694-04", "K694-22", "C-14", "T-10")
@pytest.mark.parametrize(
    ("elapsed_ms", "delay_ms", "drained", "after"),
    [
        (0, 300_000, True, Mode.READ_ONLY),
        (299_999, 300_000, True, Mode.READ_ONLY),
        (300_000, 300_000, True, Mode.NONE),
        (300_000, 300_000, False, Mode.READ_ONLY),
        (0, 0, True, Mode.NONE),
        (0, 0, False, Mode.READ_ONLY),
    ],
)
def test_read_only_ends_after_the_delay_and_the_drain(
    elapsed_ms: int, delay_ms: int, drained: bool, after: Mode
) -> None:
    """The delay is a minimum: a delay of 0 goes on at the next check, but unread data is never given up by it."""
    assert Mode.READ_ONLY.next(elapsed_ms, delay_ms, drained) is after
    assert DEFAULT_DELETE_DELAY_MS == 300_000


def test_only_a_read_only_partition_goes_on_by_itself() -> None:
    """Neither a written nor a closed partition changes its mode because time passes."""
    assert Mode.READ_WRITE.next(10**9, 0, True) is Mode.READ_WRITE
    assert Mode.NONE.next(10**9, 0, True) is Mode.NONE
