"""The Python processes that Spark starts for a source or a sink: how they start, and what each of them does once."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import shlex
import socket
import stat
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from zlib import crc32

_SCRIPT = """#!/bin/sh
# Runs {python} with the PySpark that is installed for it, and not with the archive of the same that Spark puts in front.
path= ; IFS=: ; set -f
for place in $PYTHONPATH; do
  case "$place" in */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;; *) path="$path${{path:+:}}$place" ;; esac
done
unset IFS
PYTHONPATH=$path
export PYTHONPATH
exec {python} "$@"
"""


def prepare_python(environment: MutableMapping[str, str] | None = None, folder: Path | None = None) -> Path:
    """Set PYSPARK_PYTHON (in `os.environ`) to this Python, and let its workers start quickly. Call before the session starts.

    Spark lets every Python process import PySpark from an archive that has no bytecode: each compiles anew what it
    imports, which takes most of its start. Behind the script that is returned they import the installed package. For a
    local session, or one whose executors see `folder` (by default in the user's cache folder) under the same name.
    Without a PySpark beside this Python nothing is gained, and PYSPARK_PYTHON is this Python itself.
    """
    from ..connector.local.repository import cache_dir

    environment = os.environ if environment is None else environment
    found = [importlib.util.find_spec(name) for name in ("pyspark", "py4j")]
    if all(spec is not None and spec.origin is not None and Path(spec.origin).is_file() for spec in found):
        python = _script(Path(sys.executable), folder or cache_dir() / "spark-python")
    else:
        python = Path(sys.executable)
    environment["PYSPARK_PYTHON"] = str(python)
    return python


@functools.cache
def spare_loaded_objects() -> None:
    """Take what this process has loaded by now out of the garbage collector's sight.

    Spark's worker collects after every task, and a pass over all that NumPy, Arrow and Numba have loaded takes longer
    than a small batch. What is left out was imported, or lives as long as the process.
    """
    gc.freeze()


def answer_at_once() -> None:
    """Let what Spark's executor sends to this worker, and is sent, wait for nothing. Called where a task is unpickled.

    The executor sends a task in two parts over TCP and holds the second one back until the first is acknowledged; a
    worker that has nothing to say acknowledges after 40 ms, as long as a small batch takes for all else. Where there is
    no such setting (it is Linux's), or no such connection, nothing happens.
    """
    for fd in _executor_lines():
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # until the next pause only, so every time


@functools.cache
def _executor_lines() -> tuple[int, ...]:
    """The TCP connections that a worker has when its first task comes: the executor's alone."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(main, "name", "") != "pyspark.daemon" or not hasattr(socket, "TCP_QUICKACK"):
        return ()
    with suppress(OSError):
        return tuple(fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_connected(fd))
    return ()


def _is_connected(fd: int) -> bool:
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            with socket.socket(fileno=os.dup(fd)) as line:
                line.getpeername()
                return line.family in (socket.AF_INET, socket.AF_INET6) and line.type == socket.SOCK_STREAM
    return False


def _script(python: Path, folder: Path) -> Path:
    text = _SCRIPT.format(python=shlex.quote(str(python)))
    script = folder / f"{crc32(text.encode()):08x}" / "python"
    script.parent.mkdir(parents=True, exist_ok=True)
    fresh = script.with_name(f"python.{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(script)
    return script
