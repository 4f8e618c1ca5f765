"""Every command explains itself."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from keyorder._version import __version__
from keyorder.connector.cli.main import COMMANDS, cli


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command below `group`, groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, name
        yield (*path, name)
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))


def command_at(path: tuple[str, ...]) -> click.Command:
    """The command of these words."""
    found: click.Command = cli
    for name in path:
        assert isinstance(found, click.Group)
        next_one = found.get_command(click.Context(found), name)
        assert next_one is not None, path
        found = next_one
    return found


ALL = list(commands(cli))


def test_the_table_is_what_is_offered() -> None:
    """The top-level commands are those of the table, and the list of help names each."""
    shown = CliRunner().invoke(cli, ["--help"])

    assert {path[0] for path in ALL} == set(COMMANDS)
    assert shown.exit_code == 0
    assert [name for name in COMMANDS if f"  {name} " not in shown.output] == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_command_answers_help(path: tuple[str, ...]) -> None:
    """--help ends well, shows how to call the command, and says in a sentence what it does."""
    shown = CliRunner().invoke(cli, [*path, "--help"], prog_name="keyorder")
    command = command_at(path)

    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith(f"Usage: keyorder {' '.join(path)} ")
    assert command.help
    assert command.get_short_help_str()


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_of_a_command_has_help(path: tuple[str, ...]) -> None:
    """No option is left to guess."""
    options = [each for each in command_at(path).params if isinstance(each, click.Option)]

    assert [option.name for option in options if not option.help] == []


def test_the_version_is_the_package_s() -> None:
    """--version prints the command's name and the package's version."""
    shown = CliRunner().invoke(cli, ["--version"], prog_name="keyorder")

    assert (shown.exit_code, shown.output) == (0, f"keyorder, version {__version__}\n")
