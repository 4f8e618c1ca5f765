"""The recorder: one process's part of a history, kept even when the process is killed.

One file per recorder, one line per event (format: `events`), appended with one `write` call per event
or per batch and without a buffer of our own: what has been recorded survives SIGKILL, since the page
cache does. `fsync=True` makes it survive the machine as well, at a thousandth of the speed.

The clock is CLOCK_BOOTTIME: one for all processes of the machine, never set back, and counting through
suspend. All the events of one run are recorded on one machine.

**Record before the effect, or after it?** So that the checker is never stricter than what happened:
send-invoke before `produce`, its result in the delivery callback; deliver-start before the application
sees the record, deliver-end when it is done with it; commit after the broker's answer; assign before the
first poll of the new partitions; revoke at the end of the callback; seek before the seek.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from json.encoder import encode_basestring_ascii as _quote
from typing import Literal

from .events import Value

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Outcome = Literal["ok", "fail", "unknown"]
Delivery = tuple[int, int, "Value | None"]


def now_ns() -> int:
    """The history's clock, in nanoseconds."""
    return time.clock_gettime_ns(_CLOCK)


def _place(value: Value | None) -> str:
    if value is None:
        return ""
    return f",{_quote(value.run)},{_quote(value.writer)},{_quote(value.key)},{value.seq}"


class Recorder:
    """Appends the events of one actor (a writer, a consumer, the test itself) to one file.

    `group` is the consumer group, "" for an actor that does not consume; `run` is the run's name: when
    any recorder of a history states one, values of other runs count as foreign. A name is one life at a
    time: opening a second recorder for the same actor and group means that the first life has ended.
    A writer that comes back under its old name goes on with its old sequence numbers.

    Thread-safe: a client's callbacks may record beside the application.
    """

    def __init__(
        self, path: str | os.PathLike[str], actor: str, *, group: str = "", run: str = "", fsync: bool = False
    ) -> None:
        self.actor = actor
        self.group = group
        self.run = run
        self._fsync = fsync
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")  # a life before was killed inside a line: keep ours apart from it
        self._put(f'"open",{_quote(actor)},{_quote(group)},{_quote(run)}')

    # Writers.

    def send_invoke(self, key: str, seq: int) -> None:
        """The record is about to be handed to the client."""
        self._put(f'"si",{_quote(key)},{seq}')

    def send_ok(self, key: str, seq: int, partition: int, offset: int | None) -> None:
        """The record was acknowledged at this place; `offset` None or negative: the place was not told."""
        self._put(f'"so",{_quote(key)},{seq},{partition},{-1 if offset is None else offset}')

    def send_fail(self, key: str, seq: int) -> None:
        """The record was definitely not written (or its transaction was aborted)."""
        self._put(f'"sf",{_quote(key)},{seq}')

    def send_unknown(self, key: str, seq: int) -> None:
        """The record may be there once or not at all."""
        self._put(f'"su",{_quote(key)},{seq}')

    def new_epoch(self) -> None:
        """The client library begins a new producer epoch: what was not acknowledged yet, it may write a second time."""
        self._put('"ne"')

    # Consumers.

    def assign(self, partitions: Iterable[int]) -> None:
        """These partitions were given to the actor, in addition to those that it has."""
        self._put(f'"as",[{",".join(map(str, partitions))}]')

    def revoke(self, partitions: Iterable[int]) -> None:
        """The actor gave these partitions up in a clean rebalance, or at its close."""
        self._put(f'"re",[{",".join(map(str, partitions))}]')

    def lost(self, partitions: Iterable[int]) -> None:
        """The group took these partitions away; the actor learned it afterwards."""
        self._put(f'"lo",[{",".join(map(str, partitions))}]')

    def deliver_start(self, partition: int, offset: int, value: Value | None) -> None:
        """The application is given this record; `value` None: bytes that are no value of ours."""
        self._put(f'"ds",{partition},{offset}{_place(value)}')

    def deliver_end(self, partition: int, offset: int, value: Value | None) -> None:
        """The application is done with this record."""
        self._put(f'"de",{partition},{offset}{_place(value)}')

    def deliver_starts(self, deliveries: Iterable[Delivery]) -> None:
        """deliver_start for each (partition, offset, value), in this order, in one write."""
        self._put_many("ds", deliveries)

    def deliver_ends(self, deliveries: Iterable[Delivery]) -> None:
        """deliver_end for each (partition, offset, value), in this order, in one write."""
        self._put_many("de", deliveries)

    def commit(self, partition: int, offset: int, outcome: Outcome = "ok") -> None:
        """The group's position in `partition` was committed as `offset`, with this outcome."""
        self._put(f'"co",{partition},{offset},"{outcome}"')

    def seek(self, partition: int, offset: int) -> None:
        """The application itself moves the position: what it reads again is no fault."""
        self._put(f'"se",{partition},{offset}')

    # Lives.

    def crash(self, actor: str | None = None) -> None:
        """`actor` (None: this one) is dead. Record it when it is certain: after the kill."""
        self._put(f'"cr",{_quote(self.actor if actor is None else actor)}')

    def restart(self, actor: str | None = None) -> None:
        """`actor` (None: this one) is being started again."""
        self._put(f'"st",{_quote(self.actor if actor is None else actor)}')

    def close(self) -> None:
        """Closes the file. Says nothing about the actor's partitions."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, event: str) -> None:
        with self._lock:  # the time is taken inside, so that a file's lines are in order
            self._write(f"[{now_ns()},{event}]\n".encode())

    def _put_many(self, kind: str, deliveries: Iterable[Delivery]) -> None:
        with self._lock:
            stamp = f'[{now_ns()},"{kind}",'
            lines = [f"{stamp}{partition},{offset}{_place(value)}]\n" for partition, offset, value in deliveries]
            if lines:
                self._write("".join(lines).encode())

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # a signal may cut a large write short
            view = view[os.write(self._fd, view) :]
        if self._fsync:
            os.fsync(self._fd)
