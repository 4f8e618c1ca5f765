"""The periodic job of a controller that empties retired partitions when their time has come."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...partitioner.epochs import Drain
from ...partitioner.errors import ConsentNeededError, ControllerFencedError, KeyorderError
from ...partitioner.timeline import Timeline
from .. import clock
from ..admin import TopicAdmin
from ..control.timeline_edit import ChangeOpenError
from .claims import Claims
from .controller_run import ScanOutdatedError
from .draining import Drainer, DrainStep
from .periodic import Periodic
from .rehoming import RehomingTerms
from .supervised import typed_errors


class DrainJob(Periodic):
    """Moves every retired partition of some topics as far as it may go.

    A topic's are looked at every `delete.topic.partition.interval.delay.ms` of it (KIP-694), and when a delay that a shrink
    has of its own is over. timelines: the topics by name. claims: a topic is claimed while it is worked at, and left alone
    while somebody else has. every: how often it is asked which topics are due, in seconds.
    """

    name = "drain"

    def __init__(
        self,
        config: Mapping[str, Any],
        timelines: Callable[[], Mapping[str, Timeline]],
        claims: Claims,
        every: float = 1.0,
        now: Callable[[], float] = clock.now,
    ) -> None:
        super().__init__(every)
        self._now = now
        self._looked: dict[
            str, tuple[tuple[Drain, ...], float]
        ] = {}  # the drains that were seen, and when to look again
        self._config, self._timelines, self._claims = dict(config), timelines, claims
        self._servers = str(config.get("bootstrap.servers"))
        # One for all turns: it knows since when each partition has been waiting.
        self._drainer = Drainer(config, now)
        self._said: set[tuple[str, int, str]] = set()

    def run(self) -> Mapping[str, object] | None:
        """One turn over all topics. What was emptied is told, and once what a partition waits for.

        Raises the first error once all topics had their turn, those apart that say that another controller is at work.
        """
        told: list[DrainStep] = []
        failure: KeyorderError | None = None
        for topic, timeline in sorted(self._timelines().items()):
            left = any(not drain.emptied for drain in timeline.drains)
            if not left or timeline.change is not None:
                continue
            try:
                with self._claims.claimed(topic) as free:
                    if free and self._is_due(timeline):
                        told += [step for step in self._drain(topic) if self._is_news(step)]
            except (ControllerFencedError, ChangeOpenError, ScanOutdatedError):
                pass  # its turn comes again
            except ConsentNeededError as error:
                waiting = [DrainStep(topic, d.partition, False, str(error)) for d in timeline.drains if not d.emptied]
                told += [step for step in waiting if self._is_news(step)]
            except KeyorderError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        if not told:
            return None
        steps = [
            {"topic": s.topic, "partition": s.partition, "done": s.done, "what": s.what, "state": s.state.value}
            for s in told
        ]
        return {"steps": steps}

    def _drain(self, topic: str) -> list[DrainStep]:
        with typed_errors(topic, self._servers), TopicAdmin(self._config) as admin:
            return admin.drain(topic, self._drainer, RehomingTerms())

    def _is_due(self, timeline: Timeline) -> bool:
        """Whether to look at it now; asking counts as a look. What changed since the last one is looked at anew."""
        seen, again = self._looked.get(timeline.topic, ((), 0.0))
        now = self._now()
        if seen == timeline.drains and now < again:
            return False
        self._looked[timeline.topic] = timeline.drains, now + self._drainer.due_in(timeline)
        return True

    def _is_news(self, step: DrainStep) -> bool:
        # A wait names the seconds that are left: it is the same wait all the same.
        key = (step.topic, step.partition, re.sub(r"\d+", "", step.what))
        if step.done:
            self._said = {said for said in self._said if said[:2] != key[:2]}
            return True
        news = key not in self._said
        self._said.add(key)
        return news
