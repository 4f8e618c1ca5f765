"""Folding on a real cluster: the log starts that decide it, asked for; and the controller's periodic job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

from ...partitioner.errors import ControllerFencedError, KeyorderError, PeerError
from ...partitioner.folding import folded, origins_to_fold
from ...partitioner.timeline import Timeline
from .. import clock
from ..control.timeline_edit import ChangeOpenError, edit
from ..control.timeline_writer import UnknownResultError
from ..log_offsets import LogOffsets
from ..metadata import topic_config
from ..refusals import ClusterAdmin
from .claims import Claims
from .periodic import Periodic


def with_folded(admin: AdminClient, bootstrap_servers: str, offsets: LogOffsets, timeline: Timeline) -> Timeline:
    """The timeline with what may fold noted or folded; as it is where that cannot be told now. Writes nothing."""
    origins = origins_to_fold(timeline)
    if not origins:
        return timeline
    try:
        if "compact" in topic_config(admin, timeline.topic, bootstrap_servers)["cleanup.policy"]:
            return timeline
        starts = offsets.earliest([(timeline.topic, q) for q in sorted(origins)], timeout=3.0)
    except PeerError:
        # A leader is away, or this user may not see the topic's configuration. Folding can wait, a change need not.
        return timeline
    return folded(timeline, {q: start for (_, q), start in starts.items()}, clock.wall_ms())


class FoldJob(Periodic):
    """Folds the timelines of some topics every `every` seconds.

    timelines: the topics by name. claims: a topic is claimed while it is worked at, and left alone while somebody else has.
    """

    name = "fold"

    def __init__(
        self,
        config: Mapping[str, Any],
        timelines: Callable[[], Mapping[str, Timeline]],
        claims: Claims,
        every: float = 600.0,
    ) -> None:
        super().__init__(every)
        self._config, self._timelines, self._claims = dict(config), timelines, claims
        self._servers = str(config.get("bootstrap.servers"))
        self._admin = ClusterAdmin(config)

    def run(self) -> Mapping[str, object] | None:
        """One turn over all topics. Tells which epochs are gone. Raises the first error once all topics had their turn."""
        gone: list[dict[str, object]] = []
        failure: KeyorderError | None = None
        offsets = LogOffsets(self._config)
        try:
            for topic, timeline in sorted(self._timelines().items()):
                if timeline.change is not None:
                    continue
                try:
                    with self._claims.claimed(topic) as free:
                        after = self._fold(offsets, timeline) if free else timeline
                except (ChangeOpenError, ControllerFencedError, UnknownResultError):
                    continue  # its turn comes again
                except KeyorderError as error:
                    failure = failure or error
                    continue
                number = after.epochs[0].number
                gone += [{"topic": topic, "epoch": e.number} for e in timeline.epochs[1:] if e.number <= number]
        finally:
            offsets.close()
        if failure is not None:
            raise failure
        return {"folded": gone} if gone else None

    def _fold(self, offsets: LogOffsets, timeline: Timeline) -> Timeline:
        def fold(found: Timeline) -> Timeline:
            return with_folded(self._admin, self._servers, offsets, found)

        # Most have nothing to fold: nobody is fenced for them.
        return timeline if fold(timeline) == timeline else edit(self._config, timeline.topic, fold)
