"""Conditions and events under signals whose handlers raise or come back."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from keyorder.connector import interruptible
from keyorder.connector.interruptible import Condition, Event, take_each


class Rang(Exception):
    """What the handler raises."""


@pytest.fixture
def alarms() -> Iterator[Any]:
    """Sets what a signal does that comes every 50 microseconds."""

    def begin(handler: Any) -> None:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 5e-5, 5e-5)

    before = signal.getsignal(signal.SIGALRM)
    yield begin
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def free(condition: Any) -> bool:
    """Whether another thread gets in."""
    inside = threading.Event()

    def enter() -> None:
        with condition:
            inside.set()

    threading.Thread(target=enter, daemon=True).start()
    return inside.wait(120)


def test_no_python_code_runs_between_the_lock_and_the_body() -> None:
    """So no signal can be handled there: neither on the way in nor on the way out."""
    condition, called = Condition(), []
    gc.disable()  # its callbacks, which other libraries add, are Python too
    sys.settrace(lambda frame, event, argument: called.append(frame.f_code.co_name))  # type: ignore[func-returns-value]
    try:
        with condition:
            pass
    finally:
        sys.settrace(None)
        gc.enable()

    assert called == []


def test_an_event_is_not_left_locked_by_a_handler_that_raises(alarms: Any) -> None:
    """Exceptions anywhere inside set(), wait() and clear(): afterwards another thread gets in."""
    event, rang = Event(), 0

    def raises(_: int, frame: Any) -> None:
        if rang < 2_000 and frame.f_code.co_filename in (threading.__file__, interruptible.__file__):
            raise Rang

    alarms(raises)
    while rang < 2_000:
        try:
            event.set()
            event.wait(0)
            event.clear()
            event.wait(1e-5)
        except (Rang, RuntimeError):
            rang += 1
    signal.setitimer(signal.ITIMER_REAL, 0)

    assert free(event._condition)


def test_a_handler_may_set_the_event_that_it_interrupted(alarms: Any) -> None:
    """An event's lock may be taken again by the thread that has it."""
    event, came = Event(), 0

    def sets(*_: Any) -> None:
        nonlocal came
        came += 1
        event.set()

    alarms(sets)
    while came < 3_000:
        event.set()
        event.clear()

    assert free(event._condition)


def test_it_wakes_who_waits() -> None:
    """wait() returns True when set() comes, False when it does not."""
    event, result = Event(), []
    waiting = threading.Thread(target=lambda: result.append(event.wait(120)))
    waiting.start()
    event.set()
    waiting.join(120)

    assert result == [True]
    assert event.is_set()
    event.clear()
    assert event.wait(0.001) is False


def taking(taken: list[int], number: int) -> Callable[[], object]:
    """A step, as a Python function."""
    return lambda: taken.append(number)


def test_each_step_is_taken_whatever_breaks_one_off() -> None:
    """At whichever step of the interpreter an exception comes; it goes out."""
    for step in itertools.count():
        taken: list[int] = []
        left, raised = step, False

        def seen(frame: FrameType, event: str, _: object) -> None:
            nonlocal left, raised
            inside = frame.f_code.co_filename in (interruptible.__file__, __file__)
            if inside and event in ("call", "c_return") and frame.f_code is not seen.__code__ and not raised:
                left -= 1
                if left < 0:
                    raised = True
                    raise Rang

        steps: list[Callable[[], object]] = [taking(taken, number) for number in range(3)]
        sys.setprofile(seen)
        try:
            take_each(steps)
        except Rang:
            pass
        finally:
            sys.setprofile(None)
        if not raised:
            break
        assert len(taken) >= 2 or step == 0  # the first is before any
    assert taken == [0, 1, 2]
    assert step > 5
