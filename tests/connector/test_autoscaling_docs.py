"""docs/autoscaling.md names every field of a policy with its default, and every option that it speaks of exists."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from keyorder.connector.cli.controller import controller
from keyorder.partitioner.changes.scaling_policy import Policy

TEXT = (Path(__file__).parents[2] / "docs" / "autoscaling.md").read_text()
FIELDS = {each.name: each.default for each in fields(Policy)}


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_has_a_row_with_its_default(name: str) -> None:
    """The table says what holds when a file does not."""
    row = re.search(rf"^\| `{name}` \| (\S+) \|", TEXT, re.MULTILINE)

    assert row is not None
    default = FIELDS[name]
    assert row[1] == ("none" if default in (None, ()) else f"`{json.dumps(_plain(default))}`")


def test_options_that_are_spoken_of_exist() -> None:
    """No flag of the text is one that the command does not have."""
    known = {option for parameter in controller.params for option in parameter.opts}

    assert set(re.findall(r"`(--[a-z-]+)", TEXT)) <= known


def _plain(value: object) -> object:
    """A whole number as TOML and people write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
