"""A state file belongs to one compactor or view at a time, over all processes of a machine.

The lock is the kernel's: it ends with the process that holds it, however that ends, and no file that is left behind
blocks the next one. It lies on a file of its own, `<state>-lock`. SQLite's own exclusive lock would shut out those who
only look, and a lock of this kind on the database itself is in the way of SQLite's on macOS and on network file systems.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO
from weakref import WeakSet

from ..partitioner.errors import ConfigError
from .errors import StateInUseError


class StateLock:
    """Held from the constructor to `release`. path: of the state file, links resolved, or it would have several locks.

    Raises StateInUseError while another one holds it, and ConfigError where no lock can be had.
    """

    def __init__(self, path: Path) -> None:
        try:
            # Never deleted: whoever opened it just before would hold a lock that nobody else meets.
            self._file: IO[bytes] = open(f"{path}-lock", "ab")  # noqa: SIM115  # `release` closes it
        except PermissionError as raised:
            try:  # of another user with whom the state file is shared: to read is enough, but for some network file systems
                self._file = open(f"{path}-lock", "rb")  # noqa: SIM115
            except OSError:
                raise _unusable(path, raised) from raised
        except OSError as raised:
            raise _unusable(path, raised) from raised
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as raised:
            self._file.close()
            raise StateInUseError(path) from raised
        except OSError as raised:
            self._file.close()
            raise _unusable(path, raised) from raised
        _HELD.add(self)

    def release(self) -> None:
        """Let the next one have it. May be called again, and in a child process, where it does nothing."""
        if not self._file.closed:
            # Closing alone would leave the lock with a copy of the file that a child may have.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()

    def forget(self) -> None:
        """In a child that was forked: close its copy of the file, which leaves the lock with the parent alone."""
        self._file.close()


_HELD: WeakSet[StateLock] = WeakSet()


def _forget_all() -> None:
    for lock in list(_HELD):
        lock.forget()


# Or a worker process that outlives its parent would keep the state file from the next one.
os.register_at_fork(after_in_child=_forget_all)


def _unusable(path: Path, raised: OSError) -> ConfigError:
    problem = f"{path} cannot be used: {path}-lock cannot be locked ({raised.strerror})"
    return ConfigError("state", problem, "name a file in a folder that can be written, on a file system with locks")
