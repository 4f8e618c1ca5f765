"""The `keyorder` command: its commands by name, and the one place where an error becomes an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused as unsafe, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

import click

from ..._version import __version__
from ...partitioner.errors import KeyorderError, OrderError, UsageError
from ..interruptible import raise_lost
from .output import echo_wrapped, emit_error, wants_json
from .signals import interrupted_by_signals

# Name of a command: "module below keyorder:click command". Imported when called for, so that one
# command does not wait for the libraries of all.
COMMANDS = {
    "change": "connector.cli.changes.change:change",
    "bench": "connector.cli.bench:bench",
    "connect": "connector.cli.connect:connect",
    "compact": "compaction.cli:compact",
    "consume": "connector.cli.consume:consume",
    "controller": "connector.cli.controller:controller",
    "completion": "connector.cli.completion:completion",
    "demo": "connector.cli.demo:demo",
    "doctor": "connector.cli.doctor:doctor",
    "gates": "connector.cli.gates:gates",
    "groups": "connector.cli.groups:groups",
    "local": "connector.cli.local:local",
    "produce": "connector.cli.produce:produce",
    "status": "connector.cli.changes.status:status",
    "topics": "connector.cli.topics:topics",
    "verify": "connector.cli.verify:verify",
}

DONE, FAILED, USAGE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130

_PACKAGE = __name__.partition(".")[0]


class LazyGroup(click.Group):
    """A group that imports a command when it is called or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the alphabet."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(f"{_PACKAGE}.{module}"), attribute)
        assert isinstance(command, click.Command), COMMANDS[cmd_name]
        return command


@click.group(
    cls=LazyGroup, name="keyorder", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="keyorder")
def cli() -> None:
    """Keeps every key in order while a Kafka topic's partition count grows and shrinks."""


def exit_code(error: BaseException) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, OrderError):
        return REFUSED
    if isinstance(error, (UsageError, click.UsageError)):
        return USAGE
    if isinstance(error, (KeyboardInterrupt, InterruptedError, click.Abort)):
        return INTERRUPTED
    library = sys.modules.get("confluent_kafka")  # not imported by commands that need no client
    if library is None or not isinstance(error, library.KafkaException):
        return FAILED
    # A setting that the library does not know or take is the user's.
    return USAGE if error.args[0].code() == library.KafkaError._INVALID_ARG else FAILED


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command line and exit. Errors go to stderr, or with `--output json` to stdout as an object."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    raise SystemExit(_run(words))


def _run(words: list[str]) -> int:
    try:
        try:
            with interrupted_by_signals():
                result = cli.main(words, prog_name="keyorder", standalone_mode=False)
        except SystemError as error:
            raise_lost(error)
        # Without its standalone mode click hands back the code of ctx.exit(code).
        return result if isinstance(result, int) else DONE
    except (click.Abort, KeyboardInterrupt, InterruptedError):  # the last where the client library loses the second
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        return _report(words, error, error.format_message(), False)
    except KeyorderError as error:
        return _report(words, error, str(error), error.retriable)
    except BrokenPipeError:
        # Whoever read our output has left, as `head` does. Nothing is to be said, and to nobody.
        if sys.stderr is not None:
            sys.stderr.close()
        return FAILED
    except Exception as error:
        told = _of_the_library(error) or _of_the_system(error)
        if told is not None:
            return _report(words, error, *told)
        # A bug, ours or a library's: the trace is for the report of it.
        if sys.stderr is not None:  # else it would stand on stdout
            traceback.print_exc()
        return _report(words, error, str(error), False)


def _of_the_library(error: Exception) -> tuple[str, bool] | None:
    """What the client library says of an error of its own, and whether to try again; None for any other error.

    A broker or a setting has refused something: its words help, a trace does not.
    """
    library = sys.modules.get("confluent_kafka")  # not imported by commands that need no client
    if library is None or not isinstance(error, library.KafkaException):
        return None
    found = error.args[0]
    return f"{found.name()}: {found.str()}", found.retriable()


def _of_the_system(error: Exception) -> tuple[str, bool] | None:
    """What the operating system has refused, such as a file or a full disk, with the file; None for any other error."""
    if not isinstance(error, OSError) or not error.strerror:  # such as a time-out of a future, which is an OSError too
        return None
    if _lost("stdout"):
        return f"standard output cannot be written: {error.strerror}", False
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([*names, error.strerror]), False


def _lost(name: str) -> bool:
    """Whether `stdout` or `stderr` does not take what is left for it. It is dropped then: Python's end would fail with it."""
    stream = getattr(sys, name)
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        setattr(sys, name, None)  # as where it was closed from the beginning
        return True
    return False


def _report(words: list[str], error: Exception, message: str, retriable: bool) -> int:
    try:
        if wants_json(words) and sys.stdout is not None:
            emit_error(type(error).__name__, message, retriable)
            return exit_code(error)
    except OSError:  # a full disk below stdout: what was to be said there is said on stderr
        _lost("stdout")
    try:
        if not isinstance(error, click.UsageError):
            echo_wrapped(f"Error: {message}", err=True)
        elif sys.stderr is not None:
            error.show()
    except OSError:
        _lost("stderr")
    return exit_code(error)
