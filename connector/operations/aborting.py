"""Giving an open change up from outside: whoever works on it is fenced, and the writers go on with the old layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...partitioner.epochs import OpenChange
from ...partitioner.errors import BrokerUnreachableError, ControllerFencedError, KafkaOperationError
from ...partitioner.timeline import Timeline
from .. import clock
from ..control.timeline_edit import edit
from ..control.timeline_writer import UnknownResultError


@dataclass(frozen=True, slots=True)
class Abort:
    """What an abort did. change: the attempt that was given up, None when there was nothing to abort.

    count, epoch: the layout in force afterwards; its change may have been committed just before.
    """

    topic: str
    aborted: bool
    change: OpenChange | None
    count: int
    epoch: int


def abort(config: Mapping[str, Any], topic: str, timeout: float) -> Abort:
    """Give the open change up, if there is one. Once it returns the timeline without it is visible to all.

    Raises UnmanagedTopicError, RecordVersionError, NotAuthorizedError, ControllerFencedError (others keep coming),
    BrokerUnreachableError.
    """
    deadline = clock.now() + timeout
    given_up: OpenChange | None = None

    def close(timeline: Timeline) -> Timeline:
        nonlocal given_up
        # Once seen it stays: a try whose end is unknown may have been the one that gave it up.
        given_up = timeline.change or given_up
        return timeline.given_up()

    while True:
        try:
            after = edit(config, topic, close, even_open=True)
        except (UnknownResultError, ControllerFencedError, BrokerUnreachableError, KafkaOperationError) as error:
            if not error.retriable or clock.now() >= deadline:
                raise
        else:
            newest = after.newest
            committed = given_up is not None and newest.number == given_up.epoch
            change = None if committed else given_up
            return Abort(topic, change is not None, change, newest.count, newest.number)
