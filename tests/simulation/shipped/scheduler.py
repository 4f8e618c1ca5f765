"""Threads that take turns, of which exactly one runs, in virtual time and in an order that the seed decides.

A thread gives its turn away only in a simulated call or wait. When all wait, the time jumps to the next timer. A thread is
a greenlet: a stack of its own in the one thread that the system knows, so that a turn costs no call of the system.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from random import Random
from types import FrameType
from typing import Any

from greenlet import getcurrent, greenlet

# What one simulated call costs, so that a loop without a wait comes to an end.
_STEP = 2e-6


class HistoryFailed(Exception):
    """The history cannot go on: a deadlock, a livelock, an error that nobody may raise."""


class Process:
    """A simulated operating system process: its threads die and freeze together. ahead: its clocks against true time."""

    def __init__(self, scheduler: Scheduler, name: str, ahead: float = 0.0, rate: float = 1.0) -> None:
        self.scheduler, self.name, self.ahead, self.rate = scheduler, name, ahead, rate
        scheduler.processes += 1
        self.number = scheduler.processes
        self.alive = True
        self.frozen_until = 0.0
        self.at_death: list[Callable[[], None]] = []

    def clock(self) -> float:
        """Its monotonic clock, in seconds."""
        return self.ahead + self.scheduler.now * self.rate

    def freeze(self, seconds: float) -> None:
        """It does nothing for a while; its clock goes on."""
        self.frozen_until = max(self.frozen_until, self.scheduler.now + seconds)
        self.scheduler.note("freeze", self.name, seconds)

    def kill(self) -> None:
        """SIGKILL. None of its threads runs again; a thread of its own does not return from this."""
        if not self.alive:
            return
        self.alive = False
        self.scheduler.note("kill", self.name)
        for call in self.at_death:
            call()
        if self.scheduler.current is not None and self.scheduler.current.process is self:
            self.scheduler.park(None)


class Task:
    """One thread. parked: it waits; until: what ends the wait has to name this number of the wait."""

    def __init__(self, process: Process, name: str, call: Callable[[], None]) -> None:
        self.process, self.name, self.call = process, name, call
        self.parked = self.woken = self.over = False
        self.wait_number = 0
        self.waiters: list[Task] = []
        self.waits_for = ""
        self.stack: greenlet


class Scheduler:
    """All threads, timers and the time of one history."""

    def __init__(self, seed: int, switching: float = 0.2) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.switching = switching
        self.current: Task | None = None
        self.ready: list[Task] = []
        self.tasks: list[Task] = []
        self.failure: BaseException | None = None
        self.steps = 0
        self.most_steps = 3_000_000
        self.log: list[str] | None = None
        self._digest = hashlib.sha256()
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = self.processes = 0

    # What was done, for comparison and for people.

    def note(self, *what: object) -> None:
        """An event of the history."""
        line = f"{self.now:.6f} {' '.join(map(str, what))}"
        self._digest.update(line.encode())
        if self.log is not None:
            self.log.append(line)

    @property
    def digest(self) -> str:
        """Of all events so far."""
        return self._digest.hexdigest()

    # Time.

    def after(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        """Call something later, on no thread: it may not wait."""
        self._number += 1
        heappush(self._timers, (self.now + delay if delay > 0 else self.now, self._number, call, args))

    # Threads.

    def begin(self, process: Process, name: str, call: Callable[[], None]) -> Task:
        """A new thread; it runs when its turn comes."""
        task = Task(process, name, call)
        self.tasks.append(task)
        task.stack = greenlet(lambda _=None: self._run(task), self.main.stack)
        self.ready.append(task)
        return task

    def _run(self, task: Task) -> None:
        try:
            task.call()
        except BaseException as error:
            self.fail(error)
        task.over = True
        for waiter in task.waiters:
            self.wake(waiter)
        # Who comes next goes on when this greenlet has ended.
        task.stack.parent = self._next().stack

    def fail(self, error: BaseException) -> None:
        """The history is over, in a bad way."""
        if self.failure is None:
            self.failure = error
            self.wake_main()

    def run(self, main: Task) -> None:
        """Called once, by the real main thread, which becomes the task that plays the history."""
        self.main = main
        self.tasks.append(main)
        main.stack = getcurrent()
        self.current = main

    def wake_main(self) -> None:
        """Let the task that plays the history look at the failure."""
        self.wake(self.main)

    def pass_turn(self) -> None:
        """A point at which others may run. Every simulated call begins with it."""
        self.steps += 1
        self.now += _STEP
        if self.steps > self.most_steps:
            raise HistoryFailed(f"no end after {self.steps} steps\n{self.stacks()}")
        task = self.current
        assert task is not None, "a simulated call outside of the simulation"
        if not task.process.alive:
            self.park(None)
        if self._timers and self._timers[0][0] <= self.now:
            self._fire()
            self.current = task
            if not task.process.alive:
                self.park(None)
        if (self.ready and self.rng.random() < self.switching) or task.process.frozen_until > self.now:
            self.ready.append(task)
            self._switch(task)

    def park(self, timeout: float | None, why: str = "") -> bool:
        """Wait until `wake`, for `timeout` seconds at most. Whether somebody woke it."""
        task = self.current
        assert task is not None
        self.steps += 1
        task.parked, task.woken, task.waits_for = True, False, why
        task.wait_number += 1
        if timeout is not None:
            until = self.now + timeout
            timers = self._timers
            alone = not self.ready and (not timers or until < timers[0][0])
            if alone and self.failure is None and task.process.frozen_until <= self.now:
                # Nobody runs before the time is over: as the timer would, without one.
                task.parked, self.now = False, max(until, self.now)
                return False
            self.after(timeout, self._timed_out, task, task.wait_number)
        self._switch(task)
        if self.failure is not None and task is self.main:
            raise self.failure
        return task.woken

    def wake(self, task: Task) -> None:
        """End its wait."""
        if task.parked:
            task.parked, task.woken = False, True
            self.ready.append(task)

    def _timed_out(self, task: Task, number: int) -> None:
        if task.parked and task.wait_number == number:
            task.parked = False
            self.ready.append(task)

    def _switch(self, me: Task) -> None:
        following = self._next()
        if following is not me:
            following.stack.switch()

    def _next(self) -> Task:
        """Who runs now."""
        while True:
            if self._timers and self._timers[0][0] <= self.now:
                self._fire()
            while self.ready:
                ready = self.ready
                at = int(self.rng.random() * len(ready)) if len(ready) > 1 else 0
                task, ready[at] = ready[at], ready[-1]
                ready.pop()
                process = task.process
                if not process.alive or task.over:
                    continue
                if process.frozen_until > self.now:
                    self.after(process.frozen_until - self.now, self.ready.append, task)
                    continue
                self.current = task
                return task
            if self._timers:
                self.now = max(self.now, self._timers[0][0])
                self._fire()
            elif self.failure is None:
                self.failure = HistoryFailed(f"deadlock: nobody can go on, and no timer runs\n{self.stacks()}")
                self.wake_main()
            else:
                raise SystemExit(1)

    def _fire(self) -> None:
        self.current = None
        while self._timers and self._timers[0][0] <= self.now:
            _, _, call, args = heappop(self._timers)
            try:
                call(*args)
            except BaseException as error:
                self.fail(error)
                if not isinstance(error, Exception):
                    raise

    def stacks(self) -> str:
        """Where every living thread stands."""
        return "\n".join(self._stacks())

    def _stacks(self) -> Iterator[str]:
        for task in self.tasks:
            if task.over or not task.process.alive:
                continue
            yield f"--- {task.process.name} / {task.name} {task.waits_for}"
            frame: FrameType | None = sys._getframe() if task.stack is getcurrent() else task.stack.gr_frame
            shown = traceback.extract_stack(frame) if frame is not None else []
            yield "".join(traceback.format_list([f for f in shown if "/shipped/scheduler" not in f.filename][-8:]))


class _Now:
    """The scheduler of the history that runs in this process."""

    scheduler: Scheduler


def here() -> Scheduler:
    """The scheduler of the history that runs in this process."""
    return _Now.scheduler


def take_place(scheduler: Scheduler) -> None:
    """This one is `here` from now on."""
    _Now.scheduler = scheduler


def monotonic(_: int = 0) -> float:
    """As time.clock_gettime, by the clock of the process that runs. Nothing is asked more often."""
    scheduler = _Now.scheduler
    process = scheduler.current.process  # type: ignore[union-attr]
    return process.ahead + scheduler.now * process.rate


def task_here() -> Task:
    """The thread that runs."""
    task = _Now.scheduler.current
    assert task is not None
    return task


def sleep(seconds: float) -> None:
    """As time.sleep."""
    scheduler = here()
    scheduler.pass_turn()
    scheduler.park(max(0.0, seconds), "sleep")
