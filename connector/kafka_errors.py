"""confluent_kafka's errors, translated in this one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from ..partitioner.errors import (
    BrokerUnreachableError,
    Cause,
    KafkaOperationError,
    KeyorderError,
    NotAuthorizedError,
    TopicNotFoundError,
)
from .interruptible import raise_lost

_UNREACHABLE = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}
# What failed in these ways may be on the wire still.
_UNRESOLVED = {KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT}
_UNAUTHORIZED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# The coordinator is another broker, or will be one in a moment.
COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
# The library marks an answer of the broker as retriable, but not its own words for "that broker has just gone".
_PASSING = {
    *COORDINATOR_MOVES,
    KafkaError._DESTROY_BROKER,
    KafkaError._WAIT_COORD,
    KafkaError._NOENT,
    KafkaError._UNKNOWN_PARTITION,
    # The group rebalances: the member gets a new generation, or joins anew, by itself.
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
}
_UNKNOWN_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
# What a consumer is told while the library goes on trying: a broker away, a leader that moves. All else is final.
_READ_AGAIN = {
    *_UNREACHABLE,
    *_PASSING,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.REQUEST_TIMED_OUT,
    # The library looks for the coordinator of any `group.id`. A reader by assign() needs nothing of its group.
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}
#: What a broker, or the library, says of a login that is refused.
LOGIN_REFUSED = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}


def translate(error: KafkaError, operation: str, resource: str, bootstrap_servers: str = "?") -> KeyorderError:
    """The typed error for what the client library reported while doing `operation` on `resource`."""
    if isinstance(error, Cause):
        return error.typed  # it was translated already
    code = error.code()
    if code in _UNAUTHORIZED:
        return NotAuthorizedError(operation, resource, error.name())
    if code in _UNKNOWN_TOPIC and resource.startswith("topic "):
        return TopicNotFoundError(resource.removeprefix("topic "))
    if code in _UNREACHABLE:
        return BrokerUnreachableError(bootstrap_servers, f"{operation} {resource}: {error.name()}")
    if code in LOGIN_REFUSED:
        return NotAuthorizedError("log in to", "the cluster", error.str())
    passing = error.retriable() or code in _PASSING
    return KafkaOperationError(f"{operation} {resource}", f"{error.name()}: {error.str()}", passing)


def translate_of_known(error: KafkaError, operation: str, resource: str, bootstrap_servers: str = "?") -> KeyorderError:
    """`translate` for a client whose login was good once. When it is refused later this passes, as for the library's own
    clients: a password is being changed, or a token has just run out. Then the error is a BrokerUnreachableError.
    """
    if error.code() in LOGIN_REFUSED:
        return BrokerUnreachableError(bootstrap_servers, f"{operation} {resource}: {error.str()}")
    return translate(error, operation, resource, bootstrap_servers)


def ends_partition(error: KafkaError, resource: str, bootstrap_servers: str = "?", known: bool = False) -> bool:
    """Whether an error in place of a record is the end of its partition; False for one that passes by itself.

    known: the login was good once, so a refusal passes, as in `translate_of_known`.
    Raises what no second try fixes, typed: whoever reads a log to its end must not take "may not read" for "is empty".
    """
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.code() in _READ_AGAIN or error.retriable() or (known and error.code() in LOGIN_REFUSED):
        return False
    raise translate(error, "read", resource, bootstrap_servers)


@contextmanager
def translated(operation: str, resource: str, bootstrap_servers: str = "?") -> Iterator[None]:
    """Run a client library call; its KafkaException leaves as one of ours."""
    try:
        yield
    except KafkaException as raised:
        raise translate(raised.args[0], operation, resource, bootstrap_servers) from raised


def meant(raised: KafkaException | SystemError) -> KafkaError:
    """The client library's error. Raises what a signal's handler has raised, if this is what became of it.

    A fatal error, or a signal, that meets the library as it calls a delivery callback leaves it as a SystemError.
    """
    if isinstance(raised, SystemError):
        if not isinstance(raised.__cause__, KafkaException):
            raise_lost(raised)
        raised = raised.__cause__
    error: KafkaError = raised.args[0]
    return error


def may_still_arrive(code: int, transactional: bool) -> bool:
    """Whether a record that failed with this code may be appended yet.

    A purge drops what is on the wire from the client's books alone. The record of an aborted transaction is none.
    """
    return code in _UNRESOLVED or (code == KafkaError._PURGE_INFLIGHT and not transactional)
