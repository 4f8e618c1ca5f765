"""Many live writers in one process: real writer sessions with leases of their own, driven by one thread on shared clients.

A session of its own has a thread; a thousand of them would measure the scheduler. Here every session runs the product's own
code turn by turn, on the records that one reader hands to all; what it writes goes through the link's one producer. Each has
its lease, is called at the roll, holds, says READY. None sends data.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, cast

from confluent_kafka import Producer
from keyorder.connector import clock
from keyorder.connector.config import connection_of, producer_settings
from keyorder.connector.control.control_reader import ControlMessage, ControlReader, Look
from keyorder.connector.control.control_topics import Slot, all_writer_slots, timeline_slot
from keyorder.connector.link import ClusterLink
from keyorder.connector.log_offsets import LogOffsets
from keyorder.connector.producing.writer_session import ControlWriting, Sending, WriterSession, new_writer
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.lease import Standing

_IDLE, _BUSY = 0.5, 0.02


class _Share:
    """A session's view of the common clients: what was handed to it, and what it looks for."""

    def __init__(self, reader: ControlReader, link: ClusterLink) -> None:
        self._reader, self._link = reader, link
        self.queue: deque[ControlMessage] = deque()
        self.interested: Callable[[bytes], bool] = lambda key: True
        self.servers = link.servers

    @property
    def offsets(self) -> LogOffsets:
        """The link's."""
        return self._link.offsets

    @property
    def writer(self) -> ControlWriting:
        """The link's."""
        return self._link.writer

    def subscribe(self, interested: Callable[[bytes], bool]) -> _Share:
        """Itself."""
        self.interested = interested
        return self

    def close(self) -> None:
        """The common clients stay."""

    def add(self, slots: Iterable[Slot]) -> None:
        """Read already."""

    def poll(self, timeout: float) -> list[ControlMessage]:
        """What has come for this session, at once."""
        read = list(self.queue)
        self.queue.clear()
        return read

    def look(self, slots: Iterable[Slot], timeout: float = 10.0, since: float | None = None) -> Look:
        """Ask the leaders for the ends now, whatever would do."""
        return self._reader.look(slots, timeout)

    def pass_markers(self, look: Look) -> list[ControlMessage]:
        """Left to the common reader's own fetches."""
        return []

    def wake(self) -> None:
        """The common thread comes round to this session by itself."""

    def reached(self, look: Look) -> bool:
        """Whether this session has been given everything below the look's ends."""
        return not self.queue and self._reader.reached(look)


class _NoData:
    """In the place of the client that sends records: knows how many partitions there are, and has nothing in flight."""

    def __init__(self, client: Producer) -> None:
        self._client, self._known, self._at = client, None, float("-inf")

    def poll(self, timeout: float) -> int:
        """Nothing was sent."""
        return 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        """The cluster's answer, asked for once for all sessions of a round."""
        if clock.now() - self._at > _BUSY:
            self._known, self._at = cast(Any, self._client.list_topics(topic, timeout=timeout)), clock.now()
        return self._known


class Crowd:
    """Live writers of one topic. Use as a context manager; raises from `await_that` what a session stopped with."""

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        self.topic, self._config = topic, dict(config)
        self._settings, theirs = producer_settings({**config})
        self._connection = connection_of(theirs)
        self._reader = ControlReader(config)
        self._link = ClusterLink(self._connection)
        self._data = _NoData(Producer(self._connection))
        self._sessions: dict[bytes, WriterSession] = {}
        self._shares: dict[WriterSession, _Share] = {}
        self._due: dict[WriterSession, float] = {}
        self._timeline: ControlMessage | None = None
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="crowd", daemon=True)

    def __enter__(self) -> Crowd:
        self._reader.add([*all_writer_slots(), timeline_slot(self.topic)])
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stopping = True
        self._thread.join(30)
        for session in self._due:
            session.await_reports()
        self._reader.close()
        self._link.close()

    def join(self, count: int) -> None:
        """Let so many more writers join."""
        with self._changed:
            for _ in range(count):
                share = _Share(self._reader, self._link)
                writer = new_writer(str(self._connection.get("client.id", "writer")), self._settings)
                data = cast(Producer, self._data)
                session = WriterSession(self._settings, writer, data, threading.Lock(), share, Sending())
                session.want(self.topic)
                if self._timeline is not None:
                    share.queue.append(self._timeline)
                self._sessions[writer.writer_id.encode()] = session
                self._shares[session] = share
                self._due[session] = 0.0

    def leave(self, count: int) -> None:
        """Let so many leave in order, the oldest first."""
        with self._changed:
            for writer in list(self._sessions)[:count]:
                session = self._sessions.pop(writer)
                session.leave()
                del self._shares[session], self._due[session]

    def live(self) -> int:
        """How many hold a lease and may send."""
        with self._changed:
            writers = [session.writer for session in self._due]
            return sum(w.lease.standing is Standing.LIVE and self.topic in w.topics for w in writers)

    def knowing(self, count: int) -> int:
        """How many have read that the topic has `count` partitions."""
        with self._changed:
            topics = [s.writer.topics.get(self.topic) for s in self._due]
            return sum(t is not None and t.timeline.newest.count == count for t in topics)

    def await_that(self, what: Callable[[], bool], timeout: float) -> None:
        """Wait for something to become true. Raises TimeoutError, or what a session stopped with."""
        deadline = clock.now() + timeout
        while True:
            with self._changed:
                if self._failure is not None:
                    raise self._failure
                self._changed.wait(0.2)
            if what():
                return
            if clock.now() >= deadline:
                raise TimeoutError(f"{self.live()} of {len(self._due)} writers are live")

    def _run(self) -> None:
        try:
            while not self._stopping:
                for message in self._reader.poll(_BUSY):
                    self._hand_out(message)
                with self._changed:
                    self._turns()
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _hand_out(self, message: ControlMessage) -> None:
        with self._changed:
            if isinstance(message.record, Timeline):
                if message.record.topic == self.topic:
                    self._timeline = message
                    for share in self._shares.values():
                        share.queue.append(message)
                return
            session = self._sessions.get(message.key.rpartition(b":")[2])
            if session is not None and self._shares[session].interested(message.key):
                self._shares[session].queue.append(message)

    def _turns(self) -> None:
        now = clock.now()
        for session, due in list(self._due.items()):
            if due <= now or self._shares[session].queue:
                session.turn(wait=False)
                self._due[session] = now + (_IDLE if session.writer.patience > _BUSY else _BUSY)
