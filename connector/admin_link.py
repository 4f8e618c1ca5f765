"""An admin client that is made when first needed, and what is asked of a group's coordinator through it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not re-exported
from tenacity import retry_if_exception, stop_after_delay, wait_exponential

from ..partitioner.errors import KafkaOperationError
from . import clock
from .attempts import Attempts
from .config import connection_of
from .kafka_errors import COORDINATOR_MOVES
from .messages import Place
from .metadata import prefetch_metadata
from .refusals import ClusterAdmin

T = TypeVar("T")

# Seconds; the longest limit of a request that the client library takes, how much later than asked it may give up, and what a
# question is given in any case.
_LONGEST, _LATE, _LEAST = 3600.0, 1.0, 0.1


class AdminLink:
    """One cluster's admin client; threads may share it.

    An admin request to a coordinator that has run out ends the whole process, by an assertion of the client library (2.16), as
    soon as the coordinator is found. So such a request does not run out: the waiting for it ends in time, and its client is
    given up with it. What was not sent by then is never sent, also where it would change a group. A coordinator that moves is
    asked again for as long.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """config: the client's settings, of which those of the connection are taken."""
        self._config = connection_of(config)
        self._client: AdminClient | None = None
        self._made = False  # once: nothing is wrong with the settings
        self._used = 0.0
        self._making = threading.Lock()
        # Those that know the brokers: a question for the ends of logs is not lost.
        self._connected: weakref.WeakSet[AdminClient] = weakref.WeakSet()

    @property
    def client(self) -> AdminClient:
        """The client of this moment. With an `oauth_cb`, making it takes the client library a second.

        Raises KafkaException where none can be made; where one could be before, a KafkaOperationError that is retriable.
        Hold it in a variable while an answer is awaited: one that is dropped never answers. Not to be kept.
        """
        with self._making:
            self._used = clock.now()
            if self._client is None:
                try:
                    self._client = ClusterAdmin(self._config)
                except KafkaException as raised:
                    if not self._made:
                        raise
                    # It waits for a token, and reads certificates: there is none now, or a file is being replaced.
                    raise KafkaOperationError("make a client", str(raised), retriable=True) from raised
                self._made = True
            return self._client

    def close(self) -> None:
        """Release the client; one is made again when needed."""
        self.close_idle(0.0)

    def close_idle(self, seconds: float) -> None:
        """Release the client if nobody has asked for it for so long."""
        with self._making:
            idle = clock.now() - self._used >= seconds
            client, self._client = (self._client, None) if idle else (None, self._client)
        del client  # its threads are waited for here, without the lock

    def stable_ends(self, places: Collection[Place], timeout: float) -> dict[Place, int] | None:
        """The last stable offsets, by one question that is not asked again; None when not every leader has answered it.

        A client that was asked in vain is given up: it goes on asking with the leader epochs that it knows.
        """
        if not places:
            return {}
        client = self.client  # held while the answers are awaited: one that is dropped never answers
        deadline = clock.now() + timeout
        if client not in self._connected:
            # A question for leaders that is on its way when the client comes to know the brokers is lost with its first
            # connection, and asked again after a second. The library's call for metadata is asked again at once.
            prefetch_metadata(client, next(iter(places))[0], timeout)
            self._connected.add(client)
        timeout = max(_LEAST, deadline - clock.now())
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(*place): latest for place in places}
        try:
            asked = client.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout)
        except KafkaException:
            asked = {}
        found = _answered(asked, timeout + _LATE)
        if len(found) == len(places):
            return found
        self._give_up(client)
        return None

    def describe_group(self, group: str, timeout: float) -> Any:
        """The library's description of a group. Raises KafkaException: _TIMED_OUT after `timeout` seconds."""
        return self._of_group(group, timeout, lambda client, **limit: client.describe_consumer_groups([group], **limit))

    def owned_at_rest(self, group: str, timeout: float) -> set[Place] | None:
        """What a group's members own; None while it rebalances. Raises as describe_group."""
        found = self.describe_group(group, timeout)
        if found.state != ConsumerGroupState.STABLE:
            return None
        assignments = [member.assignment for member in found.members if member.assignment is not None]
        return {(p.topic, p.partition) for assignment in assignments for p in assignment.topic_partitions}

    def delete_group(self, group: str, timeout: float) -> None:
        """Delete a group and its commits. Raises as describe_group; after _TIMED_OUT it may have happened."""
        self._of_group(group, timeout, lambda client, **limit: client.delete_consumer_groups([group], **limit))

    def set_offsets(self, group: str, places: list[TopicPartition], timeout: float) -> None:
        """Commit these offsets for a group without members. Raises as delete_group, and what is wrong with a partition."""
        request = [ConsumerGroupTopicPartitions(group, places)]
        found = self._of_group(
            group, timeout, lambda client, **limit: client.alter_consumer_group_offsets(request, **limit)
        )
        for place in found.topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)

    def _give_up(self, client: AdminClient) -> None:
        with self._making:
            if self._client is client:  # else another thread has seen to it, and the one of now may be a good one
                self._client = None

    def _of_group(self, group: str, timeout: float, ask: Callable[..., Mapping[str, Future[T]]]) -> T:
        def once() -> T:
            client = self.client  # held while the answer is awaited: one that is dropped never answers
            try:
                return ask(client, request_timeout=_LONGEST)[group].result(timeout)
            except FutureTimeout:
                self._give_up(client)
                del client  # the error would hold it, and what it has not sent could be sent after all
                silence = f"the coordinator of group {group} has not answered for {timeout:g} s"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, silence)) from None
            except KafkaException as raised:
                if _moves(raised):
                    self._give_up(client)  # this client goes on asking the coordinator that it knows
                raise

        return Attempts(
            retry=retry_if_exception(_moves),
            stop=stop_after_delay(timeout),
            wait=wait_exponential(multiplier=0.1, max=1.0),
            reraise=True,
        )(once)


def _moves(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in COORDINATOR_MOVES


def _answered(asked: Mapping[TopicPartition, Future[Any]], timeout: float) -> dict[Place, int]:
    """The offsets that have come, without those of the first leader that has none and of who is asked after it.

    Not where the client is held: an error would keep it, with its threads, until garbage is collected.
    """
    found: dict[Place, int] = {}
    try:
        for place, answer in asked.items():
            offset = answer.result(timeout).offset
            if offset < 0:
                break
            found[place.topic, place.partition] = offset
    except (KafkaException, FutureTimeout):
        pass
    return found
