"""A topic's first use by a producer: it is looked up, joined, adopted if it is not managed yet, and checked."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Producer

from ...partitioner.errors import TopicNotFoundError, UnmanagedTopicError
from ...partitioner.timeline import TopicIdentity
from ...partitioner.writers.sending import TopicSending
from ..config import connection_of
from ..control.control_topics import ensure
from ..control.rights import require_controller
from ..link import ClusterLink
from ..metadata import get_id, identify, is_compacted, patiently
from ..operations.adopting import Adoption
from .held_record import Record
from .log_starts import LogStarts
from .tombstoning import MoveTombstones
from .writer_session import WriterSession

# Seconds that an adoption may take.
_ADOPTION = 30.0


class TopicRegistration:
    """Lets topics in, once per topic and process. topics: where they are put. config: the producer's, as it is now.

    raw: the client that sends the records. link: the producer's.
    """

    def __init__(
        self,
        config: dict[str, Any],
        raw: Producer,
        link: ClusterLink,
        session: WriterSession,
        tombstones: MoveTombstones,
        log_starts: LogStarts,
        topics: dict[str, TopicSending[Record]],
    ) -> None:
        self._config, self._raw, self._link, self._session = config, raw, link, session
        self._has_id = session.settings.transactional_id is not None  # init_transactions() sees to it there
        self._tombstones, self._log_starts, self._topics = tombstones, log_starts, topics
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._ensured = False  # the control topics are there: the session reads them from the first topic on
        self._missing: set[str] = set()  # waited for in vain: whoever goes on sending there does not wait each time
        # One for each topic: one that is waited for keeps no other waiting. A signal handler may come back here.
        self._locks: dict[str, Any] = {}

    def first_use(self, topic: str) -> TopicSending[Record]:
        """Join the topic's writers, on the caller's thread, so that errors reach it. See OrderedProducer.produce."""
        settings = self._session.settings
        with self._locks.setdefault(topic, threading.RLock()):
            if topic in self._topics:
                return self._topics[topic]
            self._session.writer.check()
            identity = patiently(lambda: self._look_up(topic), settings.control_timeout)
            return self._admitted(topic, identity)

    def _admitted(self, topic: str, identity: TopicIdentity) -> TopicSending[Record]:
        try:
            sending = self._session.admit(topic)
        except UnmanagedTopicError:
            if not self._session.settings.adopt:
                raise
            self._adopt(topic)
            sending = self._session.admit(topic)
        sending.timeline.check_identity(identity.topic_id, identity.cluster_id)
        if self._tombstones.clears(topic):
            self._log_starts.follow(topic, lambda: sending.timeline.highest_count)
        if not self._has_id:
            get_id(self._raw, topic)
            self._has_id = True
        self._topics[topic] = sending
        return sending

    def _adopt(self, topic: str) -> None:
        """As TopicAdmin.adopt, which describes the topic too: half of its time."""
        config = connection_of(self._config)
        link = ClusterLink(config)  # a share of its own: the producer's ends with its session, maybe sooner
        try:
            admin = link.admin.client
            require_controller(admin, self._bootstrap)
            Adoption(config, admin, topic, link=link).run(_ADOPTION)
        finally:
            link.close()

    def _look_up(self, topic: str) -> TopicIdentity:
        """See that the topic and the control topics are there."""
        admin = self._link.admin.client
        patience = 0.0 if topic in self._missing else self._session.settings.propagation
        try:
            identity = identify(admin, topic, self._bootstrap, 5.0, just_made=patience)
        except TopicNotFoundError:
            self._missing.add(topic)
            raise
        self._missing.discard(topic)
        if not self._ensured:
            ensure(admin, self._bootstrap, 5.0)
            self._ensured = True
        self._tombstones.topic_is(topic, is_compacted(admin, topic, self._bootstrap))
        return identity
