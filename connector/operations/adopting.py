"""Bringing a topic under management: its first timeline, written by whoever is first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import uniform
from typing import Any

from confluent_kafka.admin import AdminClient

from ...partitioner.epochs import Epoch
from ...partitioner.errors import BrokerUnreachableError, ControllerFencedError, KafkaOperationError, LayoutError
from ...partitioner.layout import Layout
from ...partitioner.records.control_records import timeline_key
from ...partitioner.timeline import DEFAULT_VIEW_AGE_S, Timeline
from .. import clock
from ..config import milliseconds
from ..control.control_reader import ControlReader
from ..control.control_topics import timeline_slot
from ..control.timeline_writer import TimelineWriter, UnknownResultError
from ..metadata import JUST_MADE, identify

VIEW_AGE = "keyorder.view.age.ms"


class Adoption:
    """One topic's. layout: the present count over itself when None. again: replace the timeline of a deleted topic."""

    def __init__(
        self,
        config: Mapping[str, Any],
        admin: AdminClient,
        topic: str,
        layout: Layout | None = None,
        settings: Mapping[str, str] | None = None,
        again: bool = False,
    ) -> None:
        self._config, self._admin, self._topic = config, admin, topic
        self._servers = str(config.get("bootstrap.servers"))
        self._layout, self._settings, self._again = layout, settings or {}, again

    def run(self, timeout: float) -> None:
        """Try until it has a timeline. Raises IdentityMismatchError, LayoutError, NotAuthorizedError and Kafka's own."""
        deadline = clock.now() + timeout
        while True:
            writer = TimelineWriter(self._config, self._topic, timeout)
            reader = ControlReader(self._config, fetch_wait_ms=50)
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

    def _once(self, writer: TimelineWriter, reader: ControlReader, deadline: float) -> None:
        """One try under the topic's transactional id. Two adopters agree: the second reads the first's timeline."""
        topic = self._topic
        writer.start()
        reader.add([timeline_slot(topic)])
        awaited = min(JUST_MADE, max(0.0, deadline - clock.now()))
        identity = identify(self._admin, topic, self._servers, just_made=awaited)
        found = [m.record for m in reader.read_to_end() if m.key == timeline_key(topic)]
        if found and isinstance(found[-1], Timeline):
            stale = found[-1].topic_id != identity.topic_id and self._again
            if not stale:
                found[-1].check_identity(identity.topic_id, identity.cluster_id)
                return
        layout = self._layout or Layout(identity.partitions, identity.partitions)
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
            settings={k: v for k, v in self._settings.items() if k not in ("enable.ordered.delivery", VIEW_AGE)},
        )
        writer.write(timeline, "adopt")
        # A transaction is decided before its markers are written: "committed" is not "visible" yet.
        reader.await_message(lambda message: message.key == timeline_key(topic), deadline - clock.now())
        physical = identify(self._admin, topic, self._servers).partitions
        if physical != layout.count:
            raise LayoutError(
                f"topic {topic!r} went from {layout.count} to {physical} partitions while it was adopted: "
                f"run `keyorder topics expand --topic {topic} --partitions {physical}` to make the new ones part of it"
            )
