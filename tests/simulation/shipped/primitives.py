"""`threading` and `concurrent.futures` on the scheduler's threads."""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from types import ModuleType
from typing import Any

from simulation.shipped.scheduler import Task, here, task_here


class RLock:
    """As threading.RLock; as threading.Lock where nobody takes it twice."""

    again = True

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._count = 0
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As the real one."""
        scheduler = here()
        scheduler.pass_turn()
        me = scheduler.current
        assert me is not None
        if self._owner is None:
            self._owner, self._count = me, 1
            return True
        if self._owner is me and self.again:
            self._count += 1
            return True
        until = None if timeout is None or timeout < 0 else scheduler.now + timeout
        while self._owner is not None:
            if (self._owner.over or not self._owner.process.alive) and self._owner.process is not me.process:
                raise AssertionError("a lock between two processes")
            if not blocking or (until is not None and scheduler.now >= until):
                return False
            self._waiting.append(me)
            scheduler.park(None if until is None else until - scheduler.now, "lock")
            if me in self._waiting:
                self._waiting.remove(me)
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        """As the real one."""
        if self._owner is None or (self.again and self._owner is not here().current):
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if self._count == 0:
            self._owner = None
            if self._waiting:
                here().wake(self._waiting.popleft())

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._owner is not None

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return self._owner is here().current

    def _release_save(self) -> int:
        count, self._count = self._count, 1
        self.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count


class Lock(RLock):
    """As threading.Lock."""

    again = False


class Condition:
    """As threading.Condition."""

    def __init__(self, lock: RLock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: list[Task] = []

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        """As the real one."""
        if not self._lock._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        scheduler, me = here(), task_here()
        self._waiting.append(me)
        count = self._lock._release_save()
        try:
            woken = scheduler.park(timeout, "condition")
        finally:
            if me in self._waiting:
                self._waiting.remove(me)
            self._lock._acquire_restore(count)
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """As the real one."""
        until = None if timeout is None else here().now + timeout
        result = predicate()
        while not result:
            left = None if until is None else until - here().now
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """As the real one."""
        if not self._lock._is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        for task in self._waiting[:n]:
            self._waiting.remove(task)
            here().wake(task)

    def notify_all(self) -> None:
        """As the real one."""
        self.notify(len(self._waiting))


class Event:
    """As threading.Event."""

    def __init__(self) -> None:
        self._condition, self._set = Condition(), False

    def is_set(self) -> bool:
        """As the real one."""
        return self._set

    def set(self) -> None:
        """As the real one."""
        with self._condition:
            self._set = True
            self._condition.notify_all()

    def clear(self) -> None:
        """As the real one."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """As the real one."""
        with self._condition:
            return self._set or bool(self._condition.wait_for(lambda: self._set, timeout))


class Thread:
    """As threading.Thread. It belongs to the process of the thread that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name, self.daemon = name or "thread", bool(daemon)
        self._task: Task | None = None

    def start(self) -> None:
        """As the real one."""
        scheduler = here()
        scheduler.pass_turn()
        self._task = scheduler.begin(task_here().process, self.name, self._body)
        _THREADS[self._task] = self

    def _body(self) -> None:
        try:
            self.run()
        finally:
            _THREADS.pop(task_here(), None)

    def run(self) -> None:
        """As the real one."""
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    @property
    def ident(self) -> int | None:
        """None before it was started; a number that nobody else has."""
        return None if self._task is None else id(self._task)

    def is_alive(self) -> bool:
        """As the real one."""
        return self._task is not None and not self._task.over

    def join(self, timeout: float | None = None) -> None:
        """As the real one."""
        scheduler, task = here(), self._task
        scheduler.pass_turn()
        if task is not None and not task.over:
            task.waiters.append(task_here())
            scheduler.park(timeout, f"join {self.name}")


_THREADS: dict[Task, Thread] = {}


class _Foreign(Thread):
    """A thread that was not started by the code under test."""

    def __init__(self, task: Task) -> None:
        super().__init__(name=task.name)
        self._task = task


def current_thread() -> Thread:
    """As threading.current_thread."""
    task = task_here()
    found = _THREADS.get(task)
    if found is None:
        found = _THREADS[task] = _Foreign(task)
    return found


def get_ident() -> int:
    """As threading.get_ident. 0 between two threads' turns: what is collected there has a finalizer that asks."""
    task = here().current
    return 0 if task is None else id(task)


class Local:
    """As threading.local."""

    def __init__(self) -> None:
        object.__setattr__(self, "_by_task", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._by_task[here().current][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._by_task.setdefault(task_here(), {})[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self._by_task[task_here()][name]
        except KeyError:
            raise AttributeError(name) from None


def module() -> ModuleType:
    """What the code under test imports as `threading`."""
    made = ModuleType("threading")
    made.__dict__.update(
        Lock=Lock,
        RLock=RLock,
        Condition=Condition,
        Event=Event,
        Thread=Thread,
        current_thread=current_thread,
        get_ident=get_ident,
        local=Local,
        TIMEOUT_MAX=_thread.TIMEOUT_MAX,
    )
    return made


class Future:
    """As concurrent.futures.Future, as far as clients use it."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._done, self._result = False, None
        self._error: BaseException | None = None

    def set(self, result: Any = None, error: BaseException | None = None) -> None:
        """The answer. On no thread: whoever waits goes on later."""
        if self._done:
            return
        self._done, self._result, self._error = True, result, error
        for task in self._condition._waiting:
            here().wake(task)

    def done(self) -> bool:
        """As the real one."""
        return self._done

    def result(self, timeout: float | None = None) -> Any:
        """As the real one."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._done, timeout):
                raise FutureTimeout
        if self._error is not None:
            raise self._error
        return self._result


def futures() -> ModuleType:
    """What the code under test imports as `concurrent.futures`."""
    made = ModuleType("concurrent.futures")
    made.__dict__.update(Future=Future, TimeoutError=FutureTimeout)
    return made
