"""Proof that a transactional writer holds its id: the broker has taken a record that it sent after it had joined.

Every writer takes its id by `init_transactions()` before it joins. So whoever joined under this id before has taken it
before, and is fenced: a change may expel such a one without taking the id from the writer that works with it now.

A writer that has sent nothing yet proves it by where the writers' log ended before it took the id: it joins at once, and
whoever joined below that offset is fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .lease import LeaseKeeper
from .sending import TopicSending


class Proof:
    """What was acknowledged before the present join, and whether more has been since. Used under the producer's lock."""

    def __init__(self, lease: LeaseKeeper) -> None:
        self._lease = lease
        self._before: dict[tuple[str, int], int] = {}

    def joining(self, topics: Mapping[str, TopicSending[Any]]) -> None:
        """A join begins, with nothing on its way."""
        self._before = {
            (topic, partition): offset
            for topic, sending in topics.items()
            for partition, offset in sending.note_acknowledged().items()
        }

    def look(self, topics: Mapping[str, TopicSending[Any]]) -> None:
        """Let the lease say so if a record of this join is acknowledged."""
        if any(
            offset > self._before.get((topic, partition), 0)
            for topic, sending in topics.items()
            for partition, offset in sending.note_acknowledged().items()
        ):
            self._lease.acknowledged()
