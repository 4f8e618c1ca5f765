"""What the cluster says of a topic: its ids, its partitions, and whether each has a leader."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicDescription,
)
from tenacity import (
    RetryCallState,
    retry_if_exception,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_fixed,
)

from ..partitioner.errors import (
    BrokerUnreachableError,
    KeyorderError,
    NotAuthorizedError,
    TopicNotFoundError,
)
from ..partitioner.errors.roots import is_passing
from ..partitioner.timeline import TopicIdentity
from . import clock
from .attempts import Attempts
from .config import JUST_MADE
from .kafka_errors import translate, translated
from .refusals import explained, unknown_hosts

T = TypeVar("T")
_PATIENCE = 5.0
# For whoever asks once more after an error.
_LAST_LOOK = 1.0
# How soon whoever waits for a broker notices that nobody needs its answer any more.
_GLANCE = 0.1
# How long a new client is given to find leaders, in seconds, and how often it asks.
_PREFETCH, _QUESTIONS = 2.0, 3
# What a broker says of a topic that it does not show; of a name that none can have, too.
_NOT_SHOWN = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
# What a controller may say against a topic that it would have to make. One that is there it names as such first.
_OF_NEW_TOPICS = {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
}


def cluster_metadata(
    admin: AdminClient, bootstrap_servers: str, timeout: float = 10.0, hosts_within: float | None = None
) -> ClusterMetadata:
    """Brokers and topics.

    hosts_within: seconds after which it is told that no host has an address; the rest of `timeout` is for slow brokers.
    Raises BrokerUnreachableError (TlsError, HostUnknownError where that is the reason), NotAuthorizedError.
    """
    if hosts_within is not None and hosts_within < timeout:
        try:
            return _listed(admin, bootstrap_servers, hosts_within)
        except BrokerUnreachableError as error:
            unknown = unknown_hosts(bootstrap_servers)
            if unknown is not None:
                raise unknown from error
            timeout -= hosts_within
    try:
        return _listed(admin, bootstrap_servers, timeout)
    except BrokerUnreachableError as error:
        raise explained(admin, error) from error


def _listed(admin: AdminClient, bootstrap_servers: str, timeout: float) -> ClusterMetadata:
    with translated("list", "topics", bootstrap_servers):
        return admin.list_topics(timeout=timeout)


def cluster_id_of(client: Producer | Consumer, list_topics: Callable[..., ClusterMetadata], timeout: float) -> str:
    """The cluster's id. Clients before confluent-kafka 2.16 cannot be asked for it: `list_topics` tells it then."""
    asked: Callable[[float], str] | None = getattr(client, "cluster_id", None)
    return asked(timeout) if asked is not None else str(list_topics(timeout=timeout).cluster_id)


def has_topic(
    admin: AdminClient,
    topic: str,
    bootstrap_servers: str,
    timeout: float = 10.0,
    ended: Callable[[], bool] = lambda: False,
) -> bool:
    """Whether the topic is there. Raises NotAuthorizedError for one that this user may not see, BrokerUnreachableError.

    ended: see `answered`.

    Not asked by `list_topics(topic)`: a broker that creates topics by itself would make it on that occasion, a control topic
    with one partition and no compaction among them.
    """
    try:
        found = described(admin, topic, bootstrap_servers, timeout, ended=ended)
    except TopicNotFoundError:
        return False
    return bool(found.partitions)


def described(
    admin: AdminClient,
    topic: str,
    bootstrap_servers: str,
    timeout: float = 4 * _PATIENCE,
    operations: bool = False,
    ended: Callable[[], bool] = lambda: False,
) -> TopicDescription:
    """Partitions and ids of a topic, with `operations` what this user may do to it. ended: see `answered`.

    Raises TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
    """

    def ask(seconds: float) -> Future[TopicDescription]:
        wanted = TopicCollection([topic])
        return admin.describe_topics(wanted, include_authorized_operations=operations, request_timeout=seconds)[topic]

    return answered(admin, ask, "describe", f"topic {topic}", bootstrap_servers, timeout, ended)


def answered(
    admin: AdminClient,
    request: Callable[[float], Future[T]],
    operation: str,
    resource: str,
    bootstrap_servers: str,
    timeout: float = 4 * _PATIENCE,
    ended: Callable[[], bool] = lambda: False,
) -> T:
    """The answer to one request of an admin client; asked again for up to `timeout` seconds while a broker is away.

    request: makes it, given the seconds that one broker has to answer. It may be made more than once.
    ended: whether nobody waits for the answer any more. It is not waited for then, as if no broker had given it.

    The client waits for the broker that it knows, a dead one too. Only a look at the cluster shows it another one, and
    the cluster itself takes some seconds to notice. Raises what `translate` makes of the last error.
    """

    def ask() -> T:
        seconds = min(timeout, _PATIENCE)
        try:
            return _result(request(seconds), seconds + 1, ended)
        except KafkaException as raised:
            raise translate(raised.args[0], operation, resource, bootstrap_servers) from raised
        except FutureTimeout as raised:
            raise BrokerUnreachableError(bootstrap_servers, f"{operation} {resource}") from raised
        except SystemError as raised:
            # The binding does not look whether what it calls has raised: it was a signal's exception.
            raise raised.__cause__ or raised from None

    try:
        return patiently(ask, timeout, lambda _: None if ended() else _look_again(admin), ended)
    except BrokerUnreachableError as error:
        if ended():
            raise  # nobody needs to know why
        _look_again(admin, _LAST_LOOK)  # a short question has only one try: whoever asks it again asks another broker
        raise explained(admin, error) from error


def _result(future: Future[T], seconds: float, ended: Callable[[], bool]) -> T:
    """Raises FutureTimeout after `seconds`, or once it has `ended`."""
    deadline = clock.now() + seconds
    while (left := deadline - clock.now()) > _GLANCE and not ended():
        with suppress(FutureTimeout):
            return future.result(_GLANCE)
    return future.result(0 if ended() else max(left, 0))


def prefetch_metadata(
    client: Consumer | Producer | AdminClient, topic: str, timeout: float = _PREFETCH, questions: int = 1
) -> None:
    """Let a new client find the topic's leaders before it is used; returns when it has, or after `timeout` seconds.

    A client connects when it is first used. What it cannot send at once, for want of a connection or a leader, the library
    tries again on a timer: a producer's id after half a second, an assigned partition after a whole one. What is wrong
    with the cluster is left for that use to say.

    questions: how often it asks. The first answer comes from the address that was given; the next questions go to the
    brokers that it has named, and connect to them.
    """
    deadline = clock.now() + timeout
    with suppress(KafkaException):
        for _ in range(questions):
            if (left := deadline - clock.now()) > 0:
                client.list_topics(topic, timeout=left)


def get_id(producer: Producer, topic: str) -> None:
    """Let a new idempotent producer have its id soon. topic: one that is there, of which the broker is asked.

    With each answer it asks for one, if the broker that it would ask is connected: that of the first answer is not, for it came
    from the address that was given. By itself it asks half a second after it was made.
    """
    prefetch_metadata(producer, topic, questions=_QUESTIONS)


def take_id(producer: Producer, topic: str, timeout: float) -> None:
    """`init_transactions(timeout)` of a new producer, sooner. topic: one that is there, of which the broker is asked.

    After one question every fourth id still took the half second, after three none of two hundred.
    Raises what `init_transactions` raises.
    """
    began = clock.now()
    prefetch_metadata(producer, topic, _PREFETCH if timeout < 0 else min(_PREFETCH, timeout), _QUESTIONS)
    producer.init_transactions(timeout if timeout < 0 else max(0.0, timeout - (clock.now() - began)))


def identify(
    admin: AdminClient,
    topic: str,
    bootstrap_servers: str,
    timeout: float = 10.0,
    just_made: float = 0.0,
    ask_controller: bool = False,
) -> TopicIdentity:
    """The topic's identity. Raises TopicNotFoundError, BrokerUnreachableError, NotAuthorizedError.

    While a broker is away it asks again, for twenty seconds or for `timeout`, if that is longer.
    just_made: seconds over which it asks again for a topic that is not there: a broker hears of a new one late, and somebody
    may be about to make it. ask_controller: only if the controller knows the topic, or does not say, so that a misspelt name
    is told at once.
    """
    # Not by a list of topics, which grows with what others have in the cluster.
    cluster = answered(
        admin,
        lambda seconds: admin.describe_cluster(request_timeout=seconds),
        "describe",
        "the cluster",
        bootstrap_servers,
        timeout,
    )
    may_come = cache(lambda: not ask_controller or known_to_controller(admin, topic) is not False)
    found = once_known(
        lambda: described(admin, topic, bootstrap_servers, max(timeout, 4 * _PATIENCE)), just_made, may_come
    )
    return TopicIdentity(str(found.topic_id), str(cluster.cluster_id), len(found.partitions))


def once_known(call: Callable[[], T], seconds: float = JUST_MADE, may_come: Callable[[], bool] = lambda: True) -> T:
    """Call again while it raises TopicNotFoundError, for up to `seconds`: one broker has a new topic, the next one not yet."""
    return Attempts(
        stop=stop_after_delay(seconds),
        wait=wait_fixed(0.1),
        retry=retry_if_exception(lambda raised: isinstance(raised, TopicNotFoundError) and may_come()),
        reraise=True,
    )(call)


def known_to_controller(admin: AdminClient, topic: str, timeout: float = _PATIENCE) -> bool | None:
    """Whether the controller has the topic, which brokers hear of late. None where it cannot be told, for want of rights too.

    Asked by a request to create it that is only validated.
    """
    try:
        asked = admin.create_topics([NewTopic(topic, 1, -1)], validate_only=True, request_timeout=timeout)
        asked[topic].result(timeout + 1)
    except FutureTimeout:
        return None
    except KafkaException as raised:
        code = raised.args[0].code()
        return True if code == KafkaError.TOPIC_ALREADY_EXISTS else False if code in _OF_NEW_TOPICS else None
    return False


def identities(
    admin: AdminClient, topics: Collection[str], bootstrap_servers: str, timeout: float
) -> dict[str, TopicIdentity]:
    """The identities of these topics; without those that are not there, or that this user may not see.

    One request for all, and one for the cluster's id at the same time: a list of the whole cluster grows with what others
    have in it. Asked once, of the broker that the client knows. Where that one is away the client looks for another one,
    for whoever asks again. Raises BrokerUnreachableError, NotAuthorizedError, KafkaOperationError.
    """
    if not topics:
        return {}
    asked = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=timeout)
    cluster = admin.describe_cluster(request_timeout=timeout)
    try:
        seen = {topic: _described_once(future, topic, bootstrap_servers, timeout) for topic, future in asked.items()}
        cluster_id = str(_once(cluster, "the cluster", bootstrap_servers, timeout).cluster_id)
    except BrokerUnreachableError:
        _look_again(admin, timeout)
        raise
    return {
        topic: TopicIdentity(str(found.topic_id), cluster_id, len(found.partitions))
        for topic, found in seen.items()
        if found is not None
    }


def _described_once(
    asked: Future[TopicDescription], topic: str, bootstrap_servers: str, timeout: float
) -> TopicDescription | None:
    """None for a topic that is not there, or that this user may not see."""
    try:
        return _once(asked, f"topic {topic}", bootstrap_servers, timeout)
    except KeyorderError as error:
        if isinstance(error.__cause__, KafkaException) and error.__cause__.args[0].code() in _NOT_SHOWN:
            return None
        raise


def _once(asked: Future[T], resource: str, bootstrap_servers: str, timeout: float) -> T:
    try:
        return asked.result(timeout + 1)
    except KafkaException as raised:
        raise translate(raised.args[0], "describe", resource, bootstrap_servers) from raised
    except FutureTimeout as raised:
        raise BrokerUnreachableError(bootstrap_servers, f"describe {resource}") from raised


def partition_counts(
    admin: AdminClient, topics: Collection[str], bootstrap_servers: str, timeout: float = 4 * _PATIENCE
) -> dict[str, int]:
    """How many partitions each topic has; without those that are not there, or that this user may not see.

    One request for all, made again for up to `timeout` seconds while a broker is away. Raises BrokerUnreachableError
    (TlsError, HostUnknownError where that is the reason), NotAuthorizedError, KafkaOperationError.
    """
    if not topics:
        return {}
    seconds = min(timeout, _PATIENCE)

    def ask() -> dict[str, int]:
        asked = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=seconds)
        seen = {topic: _described_once(future, topic, bootstrap_servers, seconds) for topic, future in asked.items()}
        return {topic: len(found.partitions) for topic, found in seen.items() if found is not None}

    try:
        return patiently(ask, timeout, lambda _: _look_again(admin))
    except BrokerUnreachableError as error:
        _look_again(admin, _LAST_LOOK)
        raise explained(admin, error) from error


def _look_again(admin: AdminClient, timeout: float = _PATIENCE) -> None:
    """Let the client see which brokers there are now."""
    with suppress(KafkaException):
        admin.list_topics(timeout=timeout)


def topic_config(admin: AdminClient, topic: str, bootstrap_servers: str) -> dict[str, str]:
    """The configuration of a topic that is there, with the broker's defaults. Raises NotAuthorizedError and Kafka's own."""
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def describe(seconds: float) -> Future[Any]:
        return admin.describe_configs([resource], request_timeout=seconds)[resource]

    entries = once_known(lambda: answered(admin, describe, "describe", f"topic {topic}", bootstrap_servers))
    return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}


def is_compacted(admin: AdminClient, topic: str, bootstrap_servers: str) -> bool:
    """Whether the cleaner of a topic that is there keeps the last value of each key (cleanup.policy has `compact` in it).

    A user that may not describe the topic's configuration gets False: its topic is then treated as an ordinary one.
    """
    try:
        return "compact" in topic_config(admin, topic, bootstrap_servers)["cleanup.policy"]
    except NotAuthorizedError:
        return False


def patiently(
    call: Callable[[], T],
    timeout: float,
    between: Callable[[RetryCallState], None] = lambda _: None,
    ended: Callable[[], bool] = lambda: False,
) -> T:
    """Call again while it raises a retriable PeerError, for up to `timeout` seconds; then its last error leaves.

    between: called before each further try. ended: whether nobody waits any more.
    """
    return Attempts(
        stop=stop_after_delay(timeout),
        wait=wait_fixed(0.1),
        retry=retry_if_exception(lambda raised: is_passing(raised) and not ended()),
        before_sleep=between,
        reraise=True,
    )(call)


class _NotYet(Exception):
    """Some partition has no leader yet."""


def wait_for_partitions(
    admin: AdminClient, topic: str, count: int, bootstrap_servers: str, timeout: float = 20.0
) -> None:
    """Return once `count` partitions of the topic have leaders.

    Raises BrokerUnreachableError after `timeout` seconds, NotAuthorizedError.
    """

    def look() -> None:
        with translated("describe", f"topic {topic}", bootstrap_servers):
            found = admin.list_topics(topic, timeout=5).topics[topic]
        if found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # It is there, and will not show however long one waits.
            raise translate(found.error, "describe", f"topic {topic}", bootstrap_servers)
        partitions = found.partitions
        if len(partitions) < count or any(p.leader < 0 or p.error is not None for p in partitions.values()):
            raise _NotYet

    attempts = Attempts(
        stop=stop_after_delay(timeout),
        wait=wait_fixed(0.05),
        retry=retry_if_exception_type((_NotYet, BrokerUnreachableError)),
        reraise=True,
    )
    try:
        attempts(look)
    except _NotYet as error:
        raise BrokerUnreachableError(
            bootstrap_servers, f"{topic} has no leader for all of {count} partitions"
        ) from error


def wait_until_gone(admin: AdminClient, topic: str, bootstrap_servers: str, timeout: float = 20.0) -> None:
    """Return once the cluster shows no such topic any more, or after `timeout` seconds: the deletion itself was accepted."""
    attempts = Attempts(
        stop=stop_after_delay(timeout),
        wait=wait_fixed(0.05),
        retry=retry_if_result(bool),
        retry_error_callback=lambda state: None,
    )
    attempts(lambda: topic in cluster_metadata(admin, bootstrap_servers).topics)
