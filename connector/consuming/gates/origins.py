"""What closed gates wait for, looked at from outside: who owns an origin, and where its log begins and ends.

A thread that is begun when a gate has been closed for a second, so that a group whose gates open at once asks nothing.
It also writes each wedge into the log once, for those who never call `gates()`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ....partitioner.errors import PeerError
from ....partitioner.gates.waits import Reason
from ...config import connection_of
from ...log_offsets import LogOffsets
from ...messages import Place
from ..background import BackgroundThread

PATIENCE = 1.0
_EVERY, _TIMEOUT = 1.0, 5.0
_LOG = logging.getLogger("keyorder.gates")


@dataclass(frozen=True, slots=True)
class OriginLook:
    """One look at one origin. owner: "" when no member owns it; None where nobody could say."""

    owner: str | None
    log_start: int
    stable_end: int
    high_watermark: int


class OriginWatch(BackgroundThread):
    """Looks at the origins that somebody has waited for, about once a second."""

    def __init__(self, config: Mapping[str, Any], group: str) -> None:
        super().__init__("keyorder-origins")
        self._config, self._group = dict(config), group
        self._watched: frozenset[Place] = frozenset()
        self._looks: dict[Place, OriginLook] = {}
        self._warned: dict[tuple[Place, Place], Reason] = {}
        self._clients: list[AdminClient | LogOffsets] = []

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

    def report(self, gate: Place, origin: Place, reason: Reason, detail: str) -> None:
        """Write a wedge into the log, once for as long as it stays the same."""
        known = self._warned.get((gate, origin))
        if reason is known:
            return
        self._warned[gate, origin] = reason
        if reason not in (Reason.READING, Reason.UNKNOWN):
            _LOG.warning("the gate of %s[%d] is closed (%s): %s", *gate, reason.value, detail)

    def opened(self, gate: Place) -> None:
        """Forget what was said of a gate."""
        for key in [key for key in self._warned if key[0] == gate]:
            del self._warned[key]

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from now on; a thread that runs already finds them when it has to log in again."""
        if "sasl.username" in self._config:
            self._config |= {"sasl.username": username, "sasl.password": password}
        for client in self._clients:
            client.set_sasl_credentials(username, password)

    def run(self) -> None:
        """The thread."""
        admin = AdminClient(connection_of(self._config))
        offsets = LogOffsets(self._config)
        self._clients = [admin, offsets]
        try:
            while True:
                with self._wake:
                    self._wake.wait_for(lambda: self._stopping or bool(self._watched))
                    if self._stopping:
                        return
                    places = self._watched
                try:
                    looks = self._look(admin, offsets, places)
                except PeerError:
                    looks = {}  # the reasons that need a look are not given; the next one may succeed
                with self._wake:
                    self._looks = {place: look for place, look in looks.items() if place in self._watched}
                    if not self._stopping:
                        self._wake.wait(_EVERY)
        finally:
            offsets.close()

    def _look(self, admin: AdminClient, offsets: LogOffsets, places: frozenset[Place]) -> dict[Place, OriginLook]:
        owners = owners_of(admin, self._group)
        starts = offsets.earliest(places, _TIMEOUT)
        stable, high = offsets.stable_ends(places, _TIMEOUT), offsets.high_watermarks(places, _TIMEOUT)
        return {
            place: OriginLook(
                None if owners is None else owners.get(place, ""), starts[place], stable[place], high[place]
            )
            for place in places
        }


def owners_of(admin: AdminClient, group: str, timeout: float = _TIMEOUT) -> dict[Place, str] | None:
    """{(topic, partition): member id, client id and host} of a group's members; None where nobody could say."""
    try:
        described = admin.describe_consumer_groups([group], request_timeout=timeout)[group].result(timeout + 1)
    except (KafkaException, FutureTimeout):
        return None
    found: dict[Place, str] = {}
    for member in described.members:
        name = f"{member.member_id} ({member.client_id}, {member.host})"
        if member.assignment is not None:
            found.update({(p.topic, p.partition): name for p in member.assignment.topic_partitions})
    return found
