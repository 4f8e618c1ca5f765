"""The client library's errors as ours: which of them pass by themselves."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from keyorder.connector.kafka_errors import translate


@pytest.mark.parametrize(
    "code", [KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID]
)
def test_a_commit_in_the_middle_of_a_rebalance_may_be_tried_again(code: int) -> None:
    """A group that is founded while another member joins refuses the commit; the next generation takes it."""
    assert translate(KafkaError(code), "commit the offsets of", "group g").retriable
