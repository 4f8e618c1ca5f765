"""Where logs begin and end, asked of their leaders through clients of their own.

Not through a fetching consumer: its request would wait behind the long poll on the same connection.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from tenacity import retry_if_exception, stop_after_delay, wait_exponential

from ..partitioner.errors import BrokerUnreachableError, KafkaOperationError
from . import clock
from .attempts import Attempts
from .config import at_leaders
from .interruptible import Condition
from .kafka_errors import LOGIN_REFUSED, translate
from .log_reader import read_ranges
from .messages import Place, offset_of, place_of
from .metadata import prefetch_metadata

T = TypeVar("T")
# ListOffsets' own words for "the end" and "the start", where it otherwise takes a time.
_LATEST, _EARLIEST = -1, -2
_COMMITTED, _UNCOMMITTED = "read_committed", "read_uncommitted"
# Seconds to wait for a client that another thread uses, before one more is opened: its leader may be away.
_BUSY = 0.2
# What no second try fixes. All else means that a leader is away or has moved, and that this client knows an old one.
_FINAL = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._INVALID_ARG,
}


class _Loan:
    """One use of a client."""


class LogOffsets:
    """Lists offsets, all places in one request per leader, and reads short ranges. Thread-safe.

    Each isolation level needs clients of its own. Each is used by one thread at a time: calls of several threads through one
    client wait for each other, and one that polls in a loop has been seen to keep all others out.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = at_leaders(config)
        self._servers = str(config.get("bootstrap.servers"))
        self._idle: dict[str, Consumer] = {}
        self._returned_at: dict[str, float] = {}
        # By whom one is used. A loan that a signal's exception leaves behind is over when nobody has it any more.
        self._lent: dict[str, weakref.WeakSet[_Loan]] = {name: weakref.WeakSet() for name in (_COMMITTED, _UNCOMMITTED)}
        self._closed = 0  # how often; what was lent before is not taken back
        self._served = False  # somebody has answered: the login is good
        self._returned = Condition()

    def earliest(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The log starts.

        Raises NotAuthorizedError, BrokerUnreachableError: no leader answered in time, or it refuses a login that was good.
        """
        return self._list(places, _EARLIEST, self._any(), timeout)

    def stable_ends(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The last stable offsets: the end for a read_committed reader. Raises as `earliest`."""
        return self._list(places, _LATEST, _COMMITTED, timeout)

    def stable_ends_at_once(self, places: Iterable[Place], timeout: float) -> dict[Place, int] | None:
        """`stable_ends` by one question that is not asked again; None when not every leader has answered it."""
        wanted = [TopicPartition(*place, _LATEST) for place in places]
        try:
            return self._lending(_COMMITTED, lambda client: self._once(client, wanted, timeout), wanted[0].topic)
        except KafkaException:
            return None

    def high_watermarks(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, int]:
        """The high watermarks, open transactions' records included: cuts are taken from these. Raises as `earliest`."""
        return self._list(places, _LATEST, _UNCOMMITTED, timeout)

    def passed(self, place: Place, position: int, timeout: float = 0.1) -> int | None:
        """The stable end, if no record shows between `position` and it: markers and aborted records are all there is.

        None when a record is there, or nobody answered within `timeout` seconds.
        """

        def look(client: Consumer) -> Message | None:
            client.assign([TopicPartition(*place, position)])
            try:
                return client.poll(timeout)
            finally:
                client.unassign()

        first = self._lending(_COMMITTED, look)
        error = None if first is None else first.error()
        if first is None or error is None or error.code() != KafkaError._PARTITION_EOF or place_of(first) != place:
            return None
        return offset_of(first)

    def read(self, ranges: Mapping[Place, tuple[int, int]], timeout: float = 10.0) -> dict[Place, list[Message]]:
        """All committed records of these ranges: (offset to begin at, offset to end before).

        timeout: seconds without any progress. Raises BrokerUnreachableError, NotAuthorizedError.
        """
        known = self._served
        return self._lending(_COMMITTED, lambda client: read_ranges(client, ranges, self._servers, timeout, known))

    def listed(self, topic: str, timeout: float) -> Any:
        """The cluster's metadata of one topic, as Consumer.list_topics gives it: a look that does not make the topic."""
        return self._lending(self._any(), lambda client: client.list_topics(topic, timeout))

    def close(self) -> None:
        """Release the clients; they are made again when needed."""
        with self._returned:
            clients, self._idle = self._idle, {}
            self._closed += 1
        clients.clear()  # what is not lent ends here, without the lock

    def close_idle(self, seconds: float) -> None:
        """Release those that were not used for so long."""
        now = clock.now()
        with self._returned:
            idle = [name for name in self._idle if now - self._returned_at[name] >= seconds]
            clients = [self._idle.pop(name) for name in idle]
        clients.clear()

    def _any(self) -> str:
        """For what any client can tell: no second one is opened. The first is the one that control topics are read by."""
        return _UNCOMMITTED if _UNCOMMITTED in self._idle and _COMMITTED not in self._idle else _COMMITTED

    def _list(self, places: Iterable[Place], what: int, isolation: str, timeout: float) -> dict[Place, int]:
        wanted = [TopicPartition(topic, partition, what) for topic, partition in places]
        if not wanted:
            return {}
        attempts = Attempts(
            stop=stop_after_delay(timeout),
            wait=wait_exponential(multiplier=0.02, max=1.0),
            retry=retry_if_exception(self._passes),
            reraise=True,
        )
        once, topic = min(timeout, 5.0), wanted[0].topic
        try:
            return attempts(self._lending, isolation, lambda client: self._once(client, wanted, once), topic)
        except KafkaException as raised:
            name = f"topic {topic}"
            if self._passes(raised):
                raise BrokerUnreachableError(self._servers, f"list the offsets of {name}: {raised}") from raised
            raise translate(raised.args[0], "list the offsets of", name, self._servers) from raised

    def _once(self, client: Consumer, wanted: list[TopicPartition], timeout: float) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for place in client.offsets_for_times(wanted, timeout=timeout):
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset < 0:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            found[place.topic, place.partition] = place.offset
        return found

    def _lending(self, isolation: str, use: Callable[[Consumer], T], topic: str | None = None) -> T:
        """Have a client used. topic: let a new one find this topic's leaders first.

        One that was used in vain is not used again: it goes on asking with the leader epoch that it knows.
        """
        loan, lent = _Loan(), self._lent[isolation]
        client: Consumer | None = None
        closed, good = -1, False
        try:
            with self._returned:
                if isolation not in self._idle and len(lent):
                    self._returned.wait(_BUSY)
                lent.add(loan)
                closed = self._closed
                client = self._idle.pop(isolation, None)
            if client is None:
                client = self._open(isolation)
                if topic is not None:
                    prefetch_metadata(client, topic)
            result = use(client)
            good = self._served = True
            return result
        finally:
            with self._returned:
                lent.discard(loan)
                if good and client is not None and closed == self._closed and isolation not in self._idle:
                    # The time first: whoever closes idle clients looks for it.
                    self._returned_at[isolation] = clock.now()
                    self._idle[isolation] = client
                self._returned.notify()

    def _passes(self, error: BaseException) -> bool:
        if not isinstance(error, KafkaException):
            return False
        code = error.args[0].code()
        return self._served if code in LOGIN_REFUSED else code not in _FINAL

    def _open(self, isolation: str) -> Consumer:
        config = {
            **self._config,
            "group.id": "keyorder-log-offsets",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            # For reading: answers at once, and none from another place than the one that was asked for. Below the log start
            # the default goes on at the *end*: a log that was emptied would show nothing, and look well.
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 1,
            "auto.offset.reset": "error",
        }
        try:
            return Consumer(config)
        except KafkaException as raised:
            if not self._served:
                raise
            # It waits for a token, and reads certificates: there is none now, or a file is being replaced.
            raise KafkaOperationError("make a client", str(raised), retriable=True) from raised
