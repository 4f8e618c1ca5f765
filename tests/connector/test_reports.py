"""Delivery reports between the client library and the application: none is lost, none is told or counted twice."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from keyorder.connector.producing import reports as module
from keyorder.connector.producing.reports import Call, Reports
from keyorder.partitioner.writers.fast_path import InFlight


class Raised(BaseException):
    """What a signal handler raises."""


class Failure:
    """A fate that counts what it is asked."""

    def __init__(self, call: Any) -> None:
        self.call, self.counted = call, 0

    def settle(self, report: Any, error: Any, message: Any, later: bool) -> Call | None:
        """Counted once, by the rule of Fate."""
        if not report.counted:
            report.counted = True
            self.counted += 1
        return self.call, (error, message)


class Rig:
    """Reports of one InFlight, whose records are numbered by their values."""

    def __init__(self) -> None:
        self.reports = Reports({"stats_cb": lambda text: self.told.append(text)})
        self.in_flight = InFlight(0)
        self.told: list[Any] = []
        self.fate = Failure(lambda error, message: self.told.append((error.code(), message.value())))
        self.note = self.reports.noting((self.in_flight, self.in_flight.ends, self.hear, self.fate))
        self.note_event = self.reports.noting_events()["stats_cb"]
        self.raising = False

    def hear(self, error: None, message: Message) -> None:
        """The application's callback."""
        self.told.append(message.value())
        if self.raising:
            raise Raised

    def come(self, *numbers: int, error: KafkaError | None = None) -> None:
        """The client library tells of records."""
        for number in numbers:
            self.in_flight.started()
            self.note(error, Message(topic="t", value=number))

    def stats(self) -> None:
        """The client library tells of an event."""
        self.note_event("{}")


TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)


class Raising:
    """Raises once, at one of the steps of the module at which an interpreter lets a signal handler run."""

    def __init__(self, step: int) -> None:
        self.left, self.raised = step, False

    def __enter__(self) -> Raising:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        sys.setprofile(None)
        return isinstance(error, Raised)

    def _seen(self, frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_filename == module.__file__ and event in ("call", "c_return") and not self.raised:
            self.left -= 1
            if self.left < 0:
                self.raised = True
                raise Raised


def test_each_is_told_at_once_and_counted() -> None:
    """Successes, failures and events: where nothing comes in between, nothing is left."""
    rig = Rig()
    rig.come(*range(3))
    rig.come(3, error=TIMED_OUT)
    rig.stats()

    assert rig.told == [*range(3), (KafkaError._MSG_TIMED_OUT, 3), "{}"]
    assert rig.fate.counted == 1
    assert rig.in_flight.on_the_way() == 1  # the failure's, which is the fate's business
    assert rig.reports.waiting == 0
    assert rig.reports.run() == 0


@pytest.mark.parametrize("what", ["success", "failure", "event"])
@pytest.mark.parametrize("twice", [False, True], ids=["once", "and when it is worked off"])
def test_an_exception_at_any_step_loses_nothing(what: str, twice: bool) -> None:
    """At the very entry of what the client library calls as well: told once, counted once at most."""
    for step in itertools.count():
        rig = Rig()
        with (raising := Raising(step)):
            if what == "event":
                rig.stats()
            else:
                rig.come(7, error=TIMED_OUT if what == "failure" else None)
        if twice:
            for again in itertools.count():
                left = rig.reports.waiting
                with (second := Raising(again)):
                    rig.reports.run()
                if not second.raised:
                    break
                assert rig.reports.waiting <= left
        rig.reports.run()
        assert rig.told == {"success": [7], "failure": [(KafkaError._MSG_TIMED_OUT, 7)], "event": ["{}"]}[what]
        assert rig.fate.counted == (what == "failure")
        assert rig.in_flight.on_the_way() in ((0, 1) if what == "success" else (1,) if what == "failure" else (0,))
        assert rig.reports.waiting == 0
        if not raising.raised:
            break
    assert step >= 1


class Interrupted:
    """A counter; a signal is handled when its step has returned."""

    def __init__(self, counter: Iterator[int]) -> None:
        self._counter = counter

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        next(self._counter)
        raise Raised


def test_an_exception_behind_the_count_is_no_second_count() -> None:
    """On a thread that counts alone, where the step is a call."""
    rig = Rig()
    note = rig.reports.noting((rig.in_flight, Interrupted(rig.in_flight.ends), rig.hear, rig.fate))
    rig.in_flight.started()
    rig.reports.counting = threading.get_ident()
    with pytest.raises(Raised):
        note(None, Message(topic="t", value=7))
    rig.reports.counting = None
    assert rig.reports.waiting == 1
    assert rig.reports.run() == 1
    assert rig.told == [7]
    assert rig.in_flight.on_the_way() == 0


@pytest.mark.slow
def test_under_a_storm_of_signals_each_is_counted_and_told_once() -> None:
    """The interpreter itself decides at which of its steps a handler runs: in every version of it."""
    rig, count, struck = Rig(), 200_000, 0

    def strike(_: int, frame: FrameType | None) -> None:
        nonlocal struck
        if frame is not None and frame.f_code.co_filename == module.__file__:
            struck += 1
            raise Raised

    messages = [Message(topic="t", value=number) for number in range(count)]
    for _ in messages:
        rig.in_flight.started()
    coming = iter(messages)
    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 5e-5, 5e-5)
    try:
        # As the client library calls: no step of the interpreter between two.
        while coming.__length_hint__():
            with suppress(Raised):
                deque(map(rig.note, itertools.repeat(None), coming), 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rig.reports.run() <= struck

    assert struck > 0
    assert rig.in_flight.on_the_way() == 0
    assert sorted(rig.told) == list(range(count))
    assert rig.reports.waiting == 0


def test_a_callback_that_raises_is_told_once() -> None:
    """Its exception goes out; those behind it are not touched."""
    rig = Rig()
    rig.raising = True
    with pytest.raises(Raised):
        rig.come(0)
    rig.raising = False
    rig.come(1)

    assert rig.told == [0, 1]
    assert rig.in_flight.on_the_way() == 0
    assert rig.reports.waiting == 0


def test_a_thread_that_counts_leaves_the_telling_to_others() -> None:
    """In their order, events as well; and what its callbacks leave by raising is any thread's."""
    rig = Rig()

    def count() -> None:
        rig.reports.counting = threading.get_ident()
        rig.come(0, 1)
        rig.come(2, error=TIMED_OUT)
        rig.stats()
        rig.reports.counting = None

    def tell() -> None:
        with pytest.raises(Raised):
            rig.reports.run()

    rig.raising = True
    for work in (count, tell):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    rig.raising = False

    assert rig.told == [0]
    assert rig.in_flight.on_the_way() == 1
    assert rig.fate.counted == 1
    assert rig.reports.waiting == 3
    assert rig.reports.run() == 3
    assert rig.told == [0, 1, (KafkaError._MSG_TIMED_OUT, 2), "{}"]
    assert rig.fate.counted == 1


def test_another_thread_is_told_at_once_while_one_counts() -> None:
    """The one that counts is known by its name."""
    rig = Rig()
    rig.reports.counting = -1
    rig.come(0)
    rig.come(1, error=TIMED_OUT)
    assert rig.told == [0, (KafkaError._MSG_TIMED_OUT, 1)]
    assert rig.in_flight.on_the_way() == 1
