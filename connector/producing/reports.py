"""Delivery reports between the client library, which calls with each of them once, and the application, which hears of it once.

A signal's exception may come at the very entry of a Python function, before a line of it has run, and the library calls
nobody a second time. So what it calls is no function but a class. The object has the report before any Python code runs, and
what is done with it is its `__init__`. If that is broken off, the object's finalizer, which is no Python code either, puts it
into a queue, and it is worked off with the application's next call. How far it is, is its class: one step of the interpreter.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from traceback import walk_tb
from types import MethodType
from typing import Any, NoReturn, Protocol, TypeAlias

from ...partitioner.writers.fast_path import InFlight
from ..weakly import weakly
from .held_record import DeliveryCallback

# Whom the application is to be called by, and with what.
Call: TypeAlias = "tuple[Callable[..., object], tuple[Any, ...]]"


class Fate(Protocol):
    """What a report means, where that is more than one record acknowledged."""

    def settle(self, report: Any, error: Any, message: Any, later: bool) -> Call | None:
        """Take it in; returns what the application is to be called with, or None. later: it will hear of it later.

        May be broken off by an exception at any line, and is then called again: each step has to bear that, or to be noted
        in `report.counted` right before it is done.
        """


# (InFlight or None, its `ends`, the callback or None, fate). Without one a success is the fate's business too.
Told: TypeAlias = "tuple[InFlight | None, Iterator[int] | None, DeliveryCallback | None, Fate]"


class _Event:
    """The fate of an event. The client library must not keep the callbacks alive: they may lead back to the producer."""

    def __init__(self, reports: Reports) -> None:
        self._reports = weakref.ref(reports)

    def settle(self, report: Any, error: Any, message: Any, later: bool) -> Call | None:
        """See Fate. error: the callback's name. message: what it is called with."""
        reports = self._reports()
        return None if reports is None else (reports.events[error], (message,))


class _Reached:
    """What reports know of their Reports: the client library, which knows them, must not keep that alive either."""

    __slots__ = ("counting", "settle")

    def __init__(self, settle: Callable[[Any, Told, Any, Any], None]) -> None:
        self.settle = settle
        self.counting: int | None = None


class PutAside:
    """What the application is still to hear. hears: called before that."""

    __slots__ = ("call", "hears")

    def __init__(self, call: Call | None, hears: Callable[[], object] | None = None) -> None:
        self.call, self.hears = call, hears


class Reports:
    """The reports of one producer, and events, which come in the same way.

    events: the application's event callbacks, by their names. hears(error, message): what to do before it hears of a failure.
    deferred: counted, for the application's threads. counting: the thread that serves reports, and must not call the
    application; None when it does not.
    """

    def __init__(self, events: Mapping[str, Callable[..., object]]) -> None:
        self.events = dict(events)
        self.hears: Callable[[Any, Any], Callable[[], object] | None] = lambda error, message: None
        self.deferred: deque[PutAside] = deque()
        self._broken_off: deque[Any] = deque()
        self._turns: dict[int, deque[Any]] = {}
        self._reached = _Reached(weakly(self.settle))
        self._report, self._told = _classes(self._reached, self._broken_off.append)

    @property
    def counting(self) -> int | None:
        """See the class."""
        return self._reached.counting

    @counting.setter
    def counting(self, thread: int | None) -> None:
        self._reached.counting = thread

    def noting(self, told: Told) -> Callable[..., None]:
        """What the client library is to call with an error and a message."""
        return MethodType(self._report, told)

    def noting_events(self) -> dict[str, Callable[..., None]]:
        """For the client library's settings, in place of the event callbacks."""
        told: Told = (None, None, None, _Event(self))
        return {name: partial(self.noting(told), name) for name in self.events}

    @property
    def waiting(self) -> int:
        """Reports not worked off yet. Never too few, also while another thread takes some or gives them back."""
        before = sum(map(len, list(self._turns.values())))
        queued = len(self._broken_off) + len(self.deferred)
        return queued + max(before, sum(map(len, list(self._turns.values()))))

    def raise_later(self, error: BaseException) -> None:
        """The application's next call raises this."""
        self.deferred.append(PutAside((_again, (error,))))

    def run(self) -> int:
        """Work off what is left, on a thread of the application's. Returns how many reports."""
        turn = self._turns.get(threading.get_ident())
        if not (self.deferred or self._broken_off or turn):
            return 0
        if turn is None:
            turn = self._turns.setdefault(threading.get_ident(), deque())
        count = 0
        try:
            while turn or self._take(turn, self.deferred) or self._take(turn, self._broken_off):
                self._work_off(turn)
                count += 1
        except BaseException:
            # For the others too: this thread may not come again. One step of the interpreter.
            if turn:
                self._broken_off.extendleft(map(deque.pop, (turn,)))
            raise
        return count

    def settle(self, report: Any, told: Told, error: Any, message: Any) -> None:
        """Do what is to be done with a report of the client library's, other than the usual ones."""
        later = threading.get_ident() == self.counting
        call = self._count(report, told, error, message, later)
        if later:
            if call is not None:
                self.deferred.append(PutAside(call, self.hears(error, message)))
            report.__class__ = self._told
            return
        report.__class__ = self._told  # no signal is handled between this and the call
        if call is not None:
            call[0](*call[1])

    def _count(self, report: Any, told: Told, error: Any, message: Any, later: bool) -> Call | None:
        in_flight, ends, heard, fate = told
        if error is not None or in_flight is None or ends is None:
            return fate.settle(report, error, message, later)
        if not report.counted:
            in_flight.last = message
            report.counted = True  # no signal is handled between this and the count: it is counted once at most
            next(ends)
        return None if heard is None else (heard, (None, message))

    def _work_off(self, turn: deque[Any]) -> None:
        """One that was taken. Between `del` and the call that follows it no signal can be handled."""
        report = turn[0]
        if type(report) is PutAside:
            if report.hears is not None:
                report.hears()
            call = report.call
        else:
            told, error, message = report.args
            call = self._count(report, told, error, message, False)
        del turn[0]
        if call is not None:
            call[0](*call[1])

    @staticmethod
    def _take(turn: deque[Any], queue: deque[Any]) -> bool:
        """Move one in one step of the interpreter: no exception comes in the middle."""
        try:
            turn.extend(map(deque.popleft, (queue,)))
        except IndexError:
            return False  # there is none, or another thread was faster
        return True


def _again(error: BaseException) -> NoReturn:
    raise error


def _classes(reports: _Reached, keep: Callable[[Any], None]) -> tuple[type, type]:
    """The classes of a report: as it comes, and when the application was told or it is kept.

    Exceptions are the cheapest of the built-in types that keep what they are made with, as `args`, without Python code. The
    interpreter looks the finalizer up on the object: that looks `put` up, which keeps the object and gives None, and then
    a method of None, which does nothing.
    """

    class Told(Exception):
        counted = heard = False

    class Report(Told):
        put = property(keep)
        __del__ = property(attrgetter("put.__init__"))

        def __init__(self, told: Any, error: Any, message: Any) -> None:
            try:
                in_flight, ends, heard, _ = told
                if error is not None or in_flight is None or reports.counting is not None:
                    reports.settle(self, told, error, message)
                    return
                in_flight.last = message  # before it counts as resolved, so that READY can name it
                for _ in ends:  # a step of the counter without a call: no signal is handled behind it
                    break
                self.__class__ = Told  # type: ignore[assignment]
                if heard is not None:
                    heard(None, message)
            except BaseException:
                # An exception that Python code has caught keeps its frames, and they this object, until nobody has it.
                if type(self) is not Told:
                    self.__class__ = Told  # type: ignore[assignment]
                    keep(self)
                raise

    return Report, Told


def came_of_a_callback(raised: BaseException) -> bool:
    """Whether an exception came out of a report or an event: of the application's callback, or of a signal handler in it."""
    return any(frame.f_code.co_filename == __file__ for frame, _ in walk_tb(raised.__traceback__))
