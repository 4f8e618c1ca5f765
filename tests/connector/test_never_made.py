"""A client whose `__init__` never ran, since a subclass forgets it: it says so, and costs those nothing that are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from keyorder import OrderedConsumer, OrderedProducer


class Writing(OrderedProducer):
    """Forgets its base."""

    def __init__(self) -> None:  # what is tested
        pass


class Reading(OrderedConsumer):
    """Forgets its base."""

    def __init__(self) -> None:  # what is tested
        pass


PLACE = TopicPartition("t", 0, 0)
WRITING: dict[str, Callable[[Any], object]] = {
    "produce": lambda p: p.produce("t", b"v", b"k"),
    "produce without a key": lambda p: p.produce("t"),
    "produce_batch": lambda p: p.produce_batch("t", [{"value": b"v"}]),
    "poll": lambda p: p.poll(0),
    "flush": lambda p: p.flush(0),
    "purge": lambda p: p.purge(),
    "list_topics": lambda p: p.list_topics(),
    "init_transactions": lambda p: p.init_transactions(),
    "begin_transaction": lambda p: p.begin_transaction(),
    "commit_transaction": lambda p: p.commit_transaction(),
    "abort_transaction": lambda p: p.abort_transaction(),
    "repr": repr,
}
READING: dict[str, Callable[[Any], object]] = {
    "poll": lambda c: c.poll(0),
    "consume": lambda c: c.consume(1, 0),
    "subscribe": lambda c: c.subscribe(["t"]),
    "assign": lambda c: c.assign([PLACE]),
    "assignment": lambda c: c.assignment(),
    "commit": lambda c: c.commit(),
    "committed": lambda c: c.committed([PLACE]),
    "store_offsets": lambda c: c.store_offsets(offsets=[PLACE]),
    "pause": lambda c: c.pause([PLACE]),
    "seek": lambda c: c.seek(PLACE),
    "memberid": lambda c: c.memberid(),
    "consumer_group_metadata": lambda c: c.consumer_group_metadata(),
}


@pytest.mark.parametrize("call", WRITING.values(), ids=WRITING)
def test_a_producer_that_was_never_made_says_so(call: Callable[[Any], object]) -> None:
    """As the library's: a RuntimeError, no missing attribute."""
    with pytest.raises(RuntimeError, match="closed: Writing has not been initialized"):
        call(Writing())


@pytest.mark.parametrize("call", READING.values(), ids=READING)
def test_a_consumer_that_was_never_made_says_so(call: Callable[[Any], object]) -> None:
    """As the library's: a RuntimeError, no missing attribute."""
    with pytest.raises(RuntimeError, match="closed: Reading has not been initialized"):
        call(Reading())


def test_what_the_library_allows_is_allowed() -> None:
    """Its length, and a consumer's end."""
    assert len(Writing()) == 0
    assert Reading().close() is None


@pytest.mark.parametrize("client", [OrderedProducer, OrderedConsumer])
def test_attributes_are_read_as_quickly_as_of_any_object(client: type) -> None:
    """With a `__getattr__` the interpreter takes the slow way to each of them: a third more time for each record."""
    assert [kind for kind in client.__mro__ if {"__getattr__", "__getattribute__"} & vars(kind).keys()] == [object]
