"""Bringing a topic under management: its first timeline, written by whoever is first, after a look at its records."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from random import uniform
from typing import Any

from confluent_kafka.admin import AdminClient

from ...partitioner.adoption import KeySample, KeySampler, chosen_hash
from ...partitioner.epochs import Epoch
from ...partitioner.errors import (
    BrokerUnreachableError,
    ControllerFencedError,
    KafkaOperationError,
    LayoutError,
    MisplacedKeysError,
    NotAuthorizedError,
)
from ...partitioner.layout import Layout
from ...partitioner.records.control_records import timeline_key
from ...partitioner.timeline import DEFAULT_VIEW_AGE_S, Timeline
from .. import clock
from ..acting_user import acting_user
from ..config import JUST_MADE
from ..control.control_reader import READ_WITHIN, ControlReader, await_message, reading_to_end
from ..control.control_topics import timeline_slot
from ..control.timeline_writer import TimelineWriter, UnknownResultError
from ..link import ClusterLink, ControlSubscription
from ..log_offsets import LogOffsets
from ..metadata import identify
from ..settings import milliseconds
from .key_sample import sample_keys
from .stray_scan import scan

_LOGGER = logging.getLogger("keyorder.admin")

VIEW_AGE = "keyorder.view.age.ms"
_NEWEST = 200
_Reader = ControlReader | ControlSubscription
#: Set by an adoption with `accept_misplaced`: when, by whom, and what the records showed.
ACCEPTED = "keyorder.accepted.misplaced"


def look(
    config: Mapping[str, Any], topic: str, partitions: int, timeout: float = 20.0, offsets: LogOffsets | None = None
) -> KeySample:
    """The sample from which a topic's hash is chosen. Raises as `sample_keys`; its NotAuthorizedError says who can look."""
    try:
        return sample_keys(config, topic, partitions, timeout=timeout, offsets=offsets)
    except NotAuthorizedError as error:
        raise NotAuthorizedError(
            "adopt",
            f"topic {topic}",
            f"it holds records, and whoever adopts it has to read some to see how its keys are placed: {error.detail}; a user "
            f"with the right to read it can run `keyorder topics adopt --topic {topic}`",
        ) from error


class Adoption:
    """One topic's. layout: the present count over itself when None. again: replace the timeline of a deleted topic.

    hash: only under this one; the one that the topic's records show when None. accept_misplaced: also where records lie
    elsewhere. new: the topic was just created by the caller, so there is nothing to look at. link: whose clients read, which
    are there already; clients of its own if None.
    sample: what was looked at, None while nothing was.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        admin: AdminClient,
        topic: str,
        layout: Layout | None = None,
        settings: Mapping[str, str] | None = None,
        again: bool = False,
        hash: str | None = None,
        accept_misplaced: bool = False,
        new: bool = False,
        link: ClusterLink | None = None,
    ) -> None:
        self._config, self._admin, self._topic = config, admin, topic
        self._servers = str(config.get("bootstrap.servers"))
        self._layout, self._settings, self._again = layout, settings or {}, again
        self._hash, self._accept, self._new, self._link = hash, accept_misplaced, new, link
        self.sample: KeySample | None = None

    def run(self, timeout: float) -> None:
        """Try until it has a timeline. Raises IdentityMismatchError, LayoutError, NotAuthorizedError, MisplacedKeysError,
        OrphanedTopicError and Kafka's own."""
        deadline = clock.now() + timeout
        while True:
            writer = TimelineWriter(self._config, self._topic, timeout)
            reader = self._reader()
            try:
                self._once(writer, reader, deadline)
                return
            except (UnknownResultError, BrokerUnreachableError, KafkaOperationError, ControllerFencedError) as error:
                if not error.retriable or clock.now() >= deadline:
                    raise
                # Adopters that fence each other take turns: whoever comes second reads the first's timeline.
                time.sleep(uniform(0.05, 0.5))
            finally:
                writer.close()
                reader.close()

    def _reader(self) -> _Reader:
        if self._link is None:
            return ControlReader(self._config, fetch_wait_ms=50)
        return self._link.subscribe(lambda key: key == timeline_key(self._topic))

    def _once(self, writer: TimelineWriter, reader: _Reader, deadline: float) -> None:
        """One try under the topic's transactional id. Two adopters agree: the second reads the first's timeline."""
        topic = self._topic
        writer.start()
        slots = [timeline_slot(topic)]
        reader.add(slots)
        awaited = min(JUST_MADE, max(0.0, deadline - clock.now()))
        identity = identify(self._admin, topic, self._servers, just_made=awaited)
        read = reading_to_end(reader, slots, READ_WITHIN, self._servers)
        found = [m.record for m in read if m.key == timeline_key(topic)]
        if found and isinstance(found[-1], Timeline):
            stale = found[-1].topic_id != identity.topic_id and self._again
            if not stale:
                found[-1].check_identity(identity.topic_id, identity.cluster_id)
                check_hash(found[-1], self._hash)
                if found[-1].released is not None:
                    self._take_back(found[-1], identity.partitions, writer, reader, deadline)
                return
        layout = self._layout or Layout(identity.partitions, identity.partitions)
        settings = dict(self._settings)
        sample = KeySampler(topic, layout.count).sample() if self._new else self._look(identity.partitions)
        layout = replace(layout, hash=chosen_hash(sample, self._hash, self._accept))
        if layout.hash not in sample.explaining:
            settings[ACCEPTED] = f"{when_and_who()}: {sample}"
        ordered = self._settings.get("enable.ordered.delivery", "true").lower() != "false"
        view_age = milliseconds(self._settings, VIEW_AGE, round(DEFAULT_VIEW_AGE_S * 1000))
        timeline = Timeline(
            topic=topic,
            topic_id=identity.topic_id,
            cluster_id=identity.cluster_id,
            initial=layout.initial,
            epochs=(Epoch(0, layout.count, committed_at_ms=clock.wall_ms()),),
            ordered=ordered,
            view_age_s=view_age,
            settings={k: v for k, v in settings.items() if k not in ("enable.ordered.delivery", VIEW_AGE)},
            hash=layout.hash,
        )
        writer.write(timeline, "adopt")
        # A transaction is decided before its markers are written: "committed" is not "visible" yet.
        await_message(reader, lambda m: m.key == timeline_key(topic), deadline - clock.now(), self._servers)
        if not self._new:
            _LOGGER.info("%s: adopted with hash %s (%s), by %s", topic, layout.hash, sample, acting_user())
        physical = identify(self._admin, topic, self._servers, just_made=awaited).partitions
        if physical != layout.count:
            raise LayoutError(
                f"topic {topic!r} went from {layout.count} to {physical} partitions while it was adopted: "
                f"run `keyorder topics expand --topic {topic} --partitions {physical}` to make the new ones part of it"
            )

    def _take_back(
        self, timeline: Timeline, physical: int, writer: TimelineWriter, reader: _Reader, deadline: float
    ) -> None:
        """Bring a topic that was released under management again, with its old timeline.

        What stock producers wrote meanwhile has to lie where the timeline puts it.
        """
        topic, count = self._topic, timeline.newest.count
        if physical != count:
            raise LayoutError(
                f"topic {topic!r} went from {count} to {physical} partitions after it was released ({timeline.released}), which "
                "moved keys that nobody held: copy it into a managed topic with Connect's MirrorConnector "
                "(docs/connect-migrate.md)"
            )
        counted = scan(self._config, timeline, physical, _NEWEST, max(1.0, deadline - clock.now()))
        records, misplaced = sum(each.records for each in counted), sum(each.strays for each in counted)
        sample = f"{misplaced} of the newest {records} records lie elsewhere than the hash {timeline.hash} puts them"
        if misplaced and not self._accept:
            raise MisplacedKeysError(topic, physical, sample, timeline.hash)
        back = timeline.taken_back()
        if misplaced:
            back = replace(back, settings={**back.settings, ACCEPTED: f"{when_and_who()}: {sample}"})
        writer.write(back, "adopt")
        await_message(reader, lambda message: message.record == back, deadline - clock.now(), self._servers)
        _LOGGER.info("%s: under management again, was released %s", topic, timeline.released)

    def _look(self, partitions: int) -> KeySample:
        offsets = None if self._link is None else self._link.offsets
        self.sample = look(self._config, self._topic, partitions, offsets=offsets)
        return self.sample


def check_hash(timeline: Timeline, wanted: str | None) -> None:
    """Stop where another hash is asked for than the topic has. Raises LayoutError."""
    if wanted is not None and wanted != timeline.hash:
        raise LayoutError(
            f"topic {timeline.topic!r} is under management with hash {timeline.hash}, {wanted} was asked for: a topic's hash "
            "never changes; leave it out, or copy the topic into one that was created with that hash"
        )


def when_and_who() -> str:
    """The time by this machine's clock, and the user who acts, as an entry that people read."""
    return f"{clock.utc_now()} {acting_user()}"
