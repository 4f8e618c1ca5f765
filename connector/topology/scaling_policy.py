"""The policy file of automatic scaling: TOML, defaults at the top, a table for each topic that differs.

max_records_per_s = 5000
max_partitions = 32

[topics.orders]
max_partitions = 64
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ...partitioner.changes.scaling_policy import Policy
from ...partitioner.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KNOWN = tuple(each.name for each in fields(Policy))
# TOML has no null: a limit that the defaults set is taken back by this word.
_NO_LIMIT = "none"


@dataclass(frozen=True)
class ScalingPolicies:
    """The policy of every topic. topics: those with a table of their own."""

    default: Policy = field(default_factory=Policy)
    topics: Mapping[str, Policy] = field(default_factory=dict)

    def of(self, topic: str) -> Policy:
        """The policy that holds for a topic."""
        return self.topics.get(topic, self.default)

    @property
    def all(self) -> tuple[Policy, ...]:
        """Every policy of the file."""
        return self.default, *self.topics.values()


def load_policies(path: Path) -> ScalingPolicies:
    """Read a policy file. Raises ConfigError, which names the file and the field."""
    try:
        return parse_policies(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"it cannot be read ({type(error).__name__})", "check the path") from error


def parse_policies(text: str, source: str = "policy") -> ScalingPolicies:
    """The policies of a file's text. source: the name that errors begin with."""
    try:
        document = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of thousands of digits is a ValueError that TOML's own does not say
        raise ConfigError(source, f"it is no TOML: {error}", "correct that line") from error
    tables = document.pop("topics", {})
    if not isinstance(tables, dict):
        raise ConfigError(f"{source}: topics", "it is no table", "write [topics.NAME] and that topic's values below")
    topics = {}
    for topic, table in tables.items():
        where = f"{source}: topics.{topic}"
        if not isinstance(table, dict):
            raise ConfigError(where, "it is no table", "write [topics.NAME] and that topic's values below")
        topics[topic] = _policy({**document, **table}, where)
    return ScalingPolicies(_policy(document, source), topics)


def _policy(values: Mapping[str, Any], where: str) -> Policy:
    known: dict[str, Any] = {}
    for name, value in values.items():
        if name not in _KNOWN:
            close = get_close_matches(name, _KNOWN, 1)
            hint = f"did you mean {close[0]}? Known are " if close else "known are "
            raise ConfigError(f"{where}: {name}", "there is no such field", hint + ", ".join(_KNOWN))
        known[name] = None if value == _NO_LIMIT else value
    groups = known.get("groups", ())
    if not isinstance(groups, (list, tuple)):
        raise ConfigError(f"{where}: groups", f"{groups!r} is no list", 'write groups = ["NAME"]')
    try:
        return Policy(**{**known, "groups": tuple(groups)})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.setting}", error.problem, error.fix) from None
