"""Commands that documents, manifests, errors and help texts name are ones that keyorder takes, with their flags."""

from __future__ import annotations

import re
from pathlib import Path

import click
import keyorder
import pytest
from keyorder.connector.cli.main import cli

ROOT = Path(keyorder.__path__[0])
PLACES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(path for path in (ROOT / "docker").rglob("*") if path.suffix in {".yaml", ".yml", ".service", ".json"}),
    *(path for folder in ("partitioner", "connector", "streaming", "compaction") for path in (ROOT / folder).rglob("*.py")),
]  # fmt: skip
_SPAN = re.compile(r"`keyorder ([a-z][^`]*)`")
_LINE = re.compile(r"^(?: {4})?keyorder ([a-z]+ .*)$", re.MULTILINE)
_EXEC = re.compile(
    r"\bexec (?:\S+/)?[a-z]+ keyorder ([a-z]+ .*)$", re.MULTILINE
)  # in a container, by Compose or kubectl
_BROKEN = re.compile(r'"\s*\n\s*f?"')  # a text in the code that goes on in the next line


def named(path: Path) -> set[str]:
    """What stands behind `keyorder` in code spans, and in the code lines of a document."""
    text = path.read_text()
    found = {" ".join(_BROKEN.sub("", span).split()) for span in _SPAN.findall(text)}
    found |= set(_EXEC.findall(text))
    if path.suffix == ".md":
        found |= {line for line in _LINE.findall(text) if "`" not in line}
    return found


def wrong(words: str) -> str:
    """Why keyorder does not take a command; "" if it does. `a|b` are two, what stands in brackets is part of it."""
    rest = words.replace("\\|", "|").replace("[", " ").replace("]", " ").split()
    commands: list[click.Command] = [cli]
    while rest and isinstance(commands[0], click.Group) and not rest[0].startswith(("-", "...", "…")):
        group, names = commands[0], rest.pop(0).split("|")
        found = [group.get_command(click.Context(group), name) for name in names]
        commands = [command for command in found if command is not None]
        if len(commands) < len(found):
            return f"no command {names}"
    for command in commands:
        flags = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)} | {"--help"}
        for word in rest:
            if (flag := re.match(r"--[a-z-]+", word)) and flag[0] not in flags:
                return f"{command.name} has no {flag[0]}"
        takes = any(isinstance(param, click.Argument) for param in command.params)
        if rest and not rest[0].startswith(("-", "#", "&")) and not takes and not isinstance(command, click.Group):
            return f"{command.name} takes no {rest[0]!r}"
    return ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("topics expand --topic T --partitions 6", ""),
        ("topics expand|shrink --topic T", ""),
        ("topics grow --topic T", "no command ['grow']"),
        ("topics expand --count 6", "expand has no --count"),
        ("change status TOPIC", "status takes no 'TOPIC'"),
    ],
)
def test_a_wrong_command_is_found(words: str, expected: str) -> None:
    """By its name, a flag, or a word that stands where no word belongs."""
    assert wrong(words) == expected


def test_alerts_name_commands_as_code() -> None:
    """So that they are looked at here: what an alert says is read in a hurry, and typed as it stands."""
    text = (ROOT / "docker/monitoring/alerts.yaml").read_text()
    descriptions = re.findall(r"^ +description: (.*)$", text, re.MULTILINE)
    assert len(descriptions) > 5
    assert [each for each in descriptions if re.search(r"(?<!`)keyorder [a-z]", each)] == []


def test_every_command_that_is_named_exists() -> None:
    """Each with the flags that stand beside it."""
    commands = {(path.name, words) for path in PLACES for words in named(path)}

    assert len(commands) > 150
    assert sorted((*each, why) for each in commands if (why := wrong(each[1]))) == []


def _cut_off(group: click.Group, path: str = "") -> list[str]:
    """The commands whose line in a group's help ends in dots."""
    names = group.list_commands(click.Context(group))
    room = 80 - 2 - 6 - max(map(len, names))  # as click counts it: its margin, the indents on both sides of the names
    found = []
    for name in names:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if command.get_short_help_str(room).endswith("..."):
            found.append(f"{path}{name}")
        if isinstance(command, click.Group):
            found += _cut_off(command, f"{path}{name} ")
    return found


def test_no_line_of_help_is_cut_off_at_80_columns() -> None:
    """What a command does stands whole in the list of commands."""
    assert _cut_off(cli) == []
