"""Processes by number and time of birth, so that a number that was given away again is never killed."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from .properties import HOST

# Below the ranges that Linux and macOS hand to outgoing connections: while a broker is down, no
# client's connection can take its port.
_PORTS = range(20000, 32000)
# Seconds. Systems give these times in whole hundredths, and some the start of the system with a fraction.
_ROUNDED = 0.1


@dataclass(frozen=True)
class ProcessId:
    """A process for certain: numbers are used again, a number with its time of birth is not.

    created: seconds from the system's start to the process's. As a time of day it would change when the clock is set.
    """

    pid: int
    created: float

    @staticmethod
    def of(pid: int) -> ProcessId:
        """The identity of a running process; psutil.NoSuchProcess if it has gone."""
        return ProcessId(pid, _created(psutil.Process(pid)))

    def find(self) -> psutil.Process | None:
        """The process if it still runs; None if it ended, is a zombie, or its number is another's now."""
        try:
            process = psutil.Process(self.pid)
            if abs(_created(process) - self.created) > _ROUNDED or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.NoSuchProcess:
            return None
        return process


def _created(process: psutil.Process) -> float:
    while True:
        boot = psutil.boot_time()  # first: some versions go on with this one
        created = process.create_time() - boot
        if psutil.boot_time() == boot:  # else the clock was set in between
            return created


def terminate(processes: Iterable[ProcessId], grace: float) -> None:
    """End all of them: SIGTERM, and SIGKILL for those that still run after `grace` seconds (0: at once)."""
    running = [process for process in (each.find() for each in processes) if process is not None]
    if grace > 0:
        _send(running, signal.SIGTERM)
        _, running = psutil.wait_procs(running, grace)
    _send(running, signal.SIGKILL)
    psutil.wait_procs(running, 10)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            pass  # it ended by itself: just what was wanted


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface that nobody listens on at this moment."""
    chosen: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if is_free(port):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise OSError(f"fewer than {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        # As Java does; without it a port that a stopped broker's connections linger on would seem taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
