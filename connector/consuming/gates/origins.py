"""What closed gates wait for, looked at from outside: who owns an origin, and where its log begins and ends.

A thread that is begun when a gate has been closed for a second, so that a group whose gates open at once asks nothing.
It also writes each wedge into the log once, for those who never call `gates()`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaException

from ....partitioner.errors import PeerError
from ....partitioner.gates.waits import Reason
from ... import clock
from ...admin_link import AdminLink
from ...guarded_logger import GuardedLogger
from ...link import ClusterLink
from ...messages import Place
from ..background import BackgroundThread

PATIENCE = 1.0
# From when on a closed gate is told of although it opens by itself.
LONG_S = 10.0
_EVERY, _TIMEOUT = 1.0, 5.0
_SHARE, _SELDOM = 200.0, 5.0
_LOG = GuardedLogger("keyorder.gates")


def wait_after(took: float, least: float) -> float:
    """Seconds until the next look when one took so many: hundreds of origins are to cost no core."""
    return min(max(least, _SHARE * took), _SELDOM)


@dataclass(frozen=True, slots=True)
class OriginLook:
    """One look at one origin. owner: "" when no member owns it; None where nobody could say."""

    owner: str | None
    log_start: int
    stable_end: int
    high_watermark: int


class OriginWatch(BackgroundThread):
    """Looks at the origins that somebody has waited for: each second, or less often where a look takes long."""

    def __init__(self, link: ClusterLink, group: str) -> None:
        super().__init__("keyorder-origins")
        self._link, self._group = link, group
        self._watched: frozenset[Place] = frozenset()
        self._looks: dict[Place, OriginLook] = {}
        self._warned: dict[Place, dict[Place, Reason]] = {}

    def watch(self, places: Iterable[Place]) -> None:
        """Look at these, and only these, from now on."""
        wanted = frozenset(places)
        if wanted == self._watched:
            return
        with self._wake:
            self._watched = wanted
            self._looks = {place: look for place, look in self._looks.items() if place in wanted}
            self._wake.notify_all()
        if wanted:
            self.begin()

    def get(self, place: Place) -> OriginLook | None:
        """The last look, or None."""
        return self._looks.get(place)

    def report(self, gate: Place, origin: Place, reason: Reason, detail: str, seconds: float) -> None:
        """Write into the log why a gate has been closed for `seconds`, once for as long as the reason stays the same.

        What passes by itself is worth a line only where it takes long, and no warning.
        """
        warned = self._warned.setdefault(gate, {})
        passes = reason in (Reason.READING, Reason.UNKNOWN)
        if reason is warned.get(origin):
            return
        if passes and seconds < LONG_S:
            warned.pop(origin, None)
            return
        warned[origin] = reason
        level = logging.INFO if passes else logging.WARNING
        _LOG.log(level, "the gate of %s[%d] has been closed for %.0f s (%s): %s", *gate, seconds, reason.value, detail)

    def opened(self, gate: Place, seconds: float) -> None:
        """Forget what was said of a gate that was closed for `seconds`."""
        if self._warned.pop(gate, None):
            _LOG.info("the gate of %s[%d] is open, after %.1f s", *gate, seconds)

    def run(self) -> None:
        """The thread."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or bool(self._watched))
                if self._stopping:
                    return
                places = self._watched
            began = clock.now()
            try:
                looks = self._look(places)
            except PeerError:
                looks = {}  # the reasons that need a look are not given; the next one may succeed
            with self._wake:
                self._looks = {place: look for place, look in looks.items() if place in self._watched}
                if not self._stopping and self._watched <= places:
                    self._wake.wait(wait_after(clock.now() - began, _EVERY))

    def _look(self, places: frozenset[Place]) -> dict[Place, OriginLook]:
        owners, offsets = owners_of(self._link.admin, self._group), self._link.offsets
        starts = offsets.earliest(places, _TIMEOUT)
        stable, high = offsets.stable_ends(places, _TIMEOUT), offsets.high_watermarks(places, _TIMEOUT)
        return {
            place: OriginLook(
                None if owners is None else owners.get(place, ""), starts[place], stable[place], high[place]
            )
            for place in places
        }


def owners_of(cluster: AdminLink, group: str) -> dict[Place, str] | None:
    """{(topic, partition): member id, client id and host} of a group's members; None where nobody could say."""
    try:
        described = cluster.describe_group(group, _TIMEOUT)
    except KafkaException:
        return None
    found: dict[Place, str] = {}
    for member in described.members:
        name = f"{member.member_id} ({member.client_id}, {member.host})"
        if member.assignment is not None:
            found.update({(p.topic, p.partition): name for p in member.assignment.topic_partitions})
    return found
