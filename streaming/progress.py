"""What a query's progress says of lag and gates, and a listener that tells of gates that stay closed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ..connector import clock
from ..partitioner.numbers import number_of
from .errors import CheckpointError
from .source.offsets import GATES_KEY, Place, from_dict

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_LOG = logging.getLogger("keyorder.streaming")


@dataclass(frozen=True)
class Waiting:
    """One source of a query. behind: records not read yet, by place. gates: why a place waits, where one does."""

    behind: dict[Place, int]
    gates: dict[Place, str]

    @property
    def lag(self) -> int:
        """Records not read yet, of all partitions."""
        return sum(self.behind.values())


def waiting_of(progress: StreamingQueryProgress) -> list[Waiting]:
    """How far each Kafka source of a query is behind its logs, and what holds it back; other sources are left out."""
    found = []
    for source in progress.sources:
        latest, end = _dict(source.latestOffset), _dict(source.endOffset)
        try:
            # The progress names no format: a source whose offsets have another shape is another one.
            logs, read, gates = from_dict(latest), from_dict(end), _gates(latest)
        except CheckpointError:
            continue
        if not logs:
            continue
        behind = {place: max(0, log_end - read.get(place, 0)) for place, log_end in logs.items()}
        found.append(Waiting(behind, gates))
    return found


class GateListener(StreamingQueryListener):
    """Calls `closed(name, place, why, seconds)` for every gate that keeps a query's records back for `after` seconds.

    Add it with `spark.streams.addListener(...)`. By default it writes a warning to the log.
    """

    def __init__(self, closed: Callable[[str, Place, str, float], None] | None = None, after: float = 60.0) -> None:
        self._closed, self._after = closed or _warn, after
        self._since: dict[tuple[str, Place], float] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Compare the gates with those of the progress before."""
        progress = event.progress
        run = str(progress.runId)
        now = {(run, place): why for waiting in waiting_of(progress) for place, why in waiting.gates.items()}
        self._since = {
            **{key: since for key, since in self._since.items() if key in now or key[0] != run},
            **{key: clock.now() for key in now if key not in self._since},
        }
        for (_, place), why in now.items():
            seconds = clock.now() - self._since[run, place]
            if seconds >= self._after:
                self._closed(progress.name or str(progress.id), place, why, seconds)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget its gates."""
        self._since = {key: since for key, since in self._since.items() if key[0] != str(event.runId)}


def _dict(text: str | None) -> dict[str, Any]:
    try:
        parsed = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _gates(latest: dict[str, Any]) -> dict[Place, str]:
    """Why places wait. Raises CheckpointError for what no source of ours reports."""
    found: dict[Place, str] = {}
    closed = latest.get(GATES_KEY, {})
    for topic, parts in closed.items() if isinstance(closed, dict) else [(GATES_KEY, None)]:
        for partition, why in parts.items() if isinstance(parts, dict) else [("", None)]:
            number = number_of(partition)
            if number is None or not isinstance(why, str):
                raise CheckpointError(f"{GATES_KEY} holds no gates of {topic!r}")
            found[topic, number] = why
    return found


def _warn(name: str, place: Place, why: str, seconds: float) -> None:
    _LOG.warning("query %s: %s[%d] has been waiting for %.0f s, %s", name, *place, seconds, why)
