"""Asking before records are lost: the topic's name, typed on a terminal or given with --confirm."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from ....partitioner.errors import NotConfirmedError
from ..output import echo_wrapped, is_terminal


def confirm(topic: str, given: str | None, losing: Sequence[str]) -> None:
    """Say on stderr what will be lost, and return only if that was confirmed. Raises NotConfirmedError."""
    for line in losing:
        echo_wrapped(line, err=True)
    if given is None and is_terminal(sys.stdin):
        given = click.prompt(f"Type {topic} to go on", default="", show_default=False, err=True)
    if given != topic:
        raise NotConfirmedError(topic, losing[0].rstrip(".:"))
