"""The client library's errors as ours: which of them pass by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError
from keyorder.connector.kafka_errors import ends_partition, may_still_arrive, translate, translate_of_known
from keyorder.connector.metadata import answered
from keyorder.partitioner.errors import KafkaOperationError, KeyorderError, NotAuthorizedError, TopicNotFoundError


@pytest.mark.parametrize(
    "code", [KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID]
)
def test_a_commit_in_the_middle_of_a_rebalance_may_be_tried_again(code: int) -> None:
    """A group whose initial commit is made while another member joins refuses it; the next generation takes it."""
    assert translate(KafkaError(code), "commit the offsets of", "group g").retriable


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED])
def test_a_refused_login_is_final_at_the_start_and_passes_later(code: int) -> None:
    """Who never could log in has a wrong password; of who could somebody changes the password, or a token has ended."""
    asked = KafkaError(code), "list the offsets of", "topic t", "broker:9092"

    assert not translate(*asked).retriable
    assert isinstance(translate(*asked), NotAuthorizedError)
    assert translate_of_known(*asked).retriable
    with pytest.raises(NotAuthorizedError):
        ends_partition(KafkaError(code), "topic t")
    assert not ends_partition(KafkaError(code), "topic t", known=True)


@pytest.mark.parametrize(
    ("code", "transactional", "expected"),
    [
        (KafkaError._MSG_TIMED_OUT, False, True),
        (KafkaError._PURGE_INFLIGHT, False, True),
        (KafkaError._PURGE_INFLIGHT, True, False),
        (KafkaError._PURGE_QUEUE, False, False),
        (KafkaError.MSG_SIZE_TOO_LARGE, False, False),
    ],
)
def test_what_may_be_on_the_wire_still(code: int, transactional: bool, expected: bool) -> None:
    """READY and LEFT wait for it: a record that came after them would be a stray."""
    assert may_still_arrive(code, transactional) is expected


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (KafkaError._PARTITION_EOF, True),
        (KafkaError.NOT_LEADER_FOR_PARTITION, False),
        (KafkaError._TRANSPORT, False),
        (KafkaError.FENCED_LEADER_EPOCH, False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False),
    ],
)
def test_what_a_reader_may_pass_over(code: int, ends: bool) -> None:
    """The end of a partition, and what the client library goes on trying by itself."""
    assert ends_partition(KafkaError(code), "topic t") is ends


@pytest.mark.parametrize(
    ("code", "typed"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorizedError),
        (KafkaError._UNKNOWN_TOPIC, TopicNotFoundError),
        (KafkaError._BAD_MSG, KafkaOperationError),
        (KafkaError._AUTO_OFFSET_RESET, KafkaOperationError),
    ],
)
def test_what_a_reader_must_not_pass_over(code: int, typed: type[KeyorderError]) -> None:
    """A log that cannot be read is not an empty one."""
    with pytest.raises(typed):
        ends_partition(KafkaError(code), "topic t")


def test_a_signal_inside_the_bindings_call_is_what_comes_out_of_it() -> None:
    """The binding returns with the exception set, and the interpreter makes a SystemError of it."""

    class Raised(BaseException):
        pass

    def request(_: float) -> Any:
        raise SystemError("returned a result with an exception set") from Raised()

    admin: Any = None
    with pytest.raises(Raised):
        answered(admin, request, "describe", "topic t", "nowhere:1")
