"""Whose fault it is where the client library speaks of a wrong header key."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from keyorder.connector.producing.lost_interrupts import raise_lost_interrupt

# As a program without signal handlers of its own: what pytest installs would count.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # Python's own: a shell's background jobs have it ignored
from keyorder.connector.producing.lost_interrupts import raise_lost_interrupt
raise_lost_interrupt(TypeError("expected header key to be unicode string"), {"h": b"v"})
"""


class _Nameless:
    def __str__(self) -> str:
        raise ValueError("has no name")


@pytest.fixture
def handled() -> Any:
    """A signal handler of the application, which may raise."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    yield
    signal.signal(signal.SIGUSR1, before)


def refused(produce: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as raised:  # whichever
        produce()
    return raised.value


def test_a_wrong_key_is_told_by_the_library(handled: None) -> None:
    """Its own words, of the real one, are told apart from those about keys that are well."""
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    wrong: list[Any] = [(_Nameless(), b"v")]
    error = refused(lambda: producer.produce("t", headers=wrong))
    assert (type(error), str(error)) == (TypeError, "expected header key to be unicode string")
    raise_lost_interrupt(error, wrong)
    raise_lost_interrupt(error, None)
    raise_lost_interrupt(TypeError("another"), [("h", b"v")])

    with pytest.raises(InterruptedError, match="the record was not taken"):
        raise_lost_interrupt(error, [("h", b"v")])


def test_where_only_ctrl_c_can_raise_it_was_ctrl_c() -> None:
    """A program that installs no handler has Python's own."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert "KeyboardInterrupt" in ended.stderr, ended
