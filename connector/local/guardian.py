"""Runs a command that must not outlive the process that asked for it. Started as a script, standard library only.

    python guardian.py <read end of a pipe> <command> ...

The process forks and becomes the command, so that its process id is the command's; the fork stays
behind and watches. When the pipe closes because its owner is gone, however it went, the command is
killed. When the owner writes a byte instead, the command is let go and may outlive it. When the
command ends, the watcher ends as well.
"""

import os
import select
import signal
import sys


def watch(owner: int, command_alive: int, command: int) -> None:
    """Return once the command has ended, was let go, or was killed since its owner had gone."""
    readable, _, _ = select.select([owner, command_alive], [], [])
    if command_alive in readable:
        return
    released = os.read(owner, 1)
    # The command's end of its pipe was still open, so the number cannot have passed to another process.
    if not released:
        os.kill(command, signal.SIGKILL)


def main() -> None:
    owner, command_line = int(sys.argv[1]), sys.argv[2:]
    command = os.getpid()
    # The command inherits the write end and never uses it: it closes with the command's last breath.
    alive_read, alive_write = os.pipe()
    between = os.fork()
    if between == 0:
        # Twice, so that the watcher is nobody's child: the command would never collect it.
        if os.fork() != 0:
            os._exit(0)
        os.setsid()
        os.close(alive_write)
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        watch(owner, alive_read, command)
        os._exit(0)
    os.waitpid(between, 0)
    os.close(alive_read)
    os.close(owner)
    os.set_inheritable(alive_write, True)
    os.execv(command_line[0], command_line)


if __name__ == "__main__":
    main()
