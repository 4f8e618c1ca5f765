"""One owned partition's offsets: what a commit would say."""

from __future__ import annotations

from confluent_kafka import Message
from keyorder.connector.consuming.partition_state import PartitionState
from keyorder.connector.consuming.records.batches import MessageBatch
from keyorder.partitioner.gates.ahead import Ahead


def test_what_overtook_a_waiting_record_is_worth_a_commit_of_the_same_position() -> None:
    """The position stays at the record that waits; without another commit the next owner would repeat all behind it."""
    owned = PartitionState("t", 0)
    owned.start_at(4)
    owned.commits.offset = 4
    owned.hold_alone(MessageBatch(("t", 0), [Message(topic="t", partition=0, offset=4, key=b"waits")]))
    assert not owned.uncommitted
    owned.gave(5)
    owned.done_with_all()
    assert (owned.processed, owned.uncommitted) == (4, True)
    owned.commits.ahead = owned.ahead(4)
    assert not owned.uncommitted


def _given_late(owned: PartitionState, *offsets: int) -> None:
    for offset in offsets:
        record = MessageBatch(("t", 0), [Message(topic="t", partition=0, offset=offset, key=b"moved")])
        owned.hold_alone(record)
        owned.let_go(record, late=True)
        owned.held.drop(record)
    for offset in offsets:
        owned.gave(offset)


def test_the_position_passes_records_that_all_came_late_one_by_one() -> None:
    """Each is stored by itself, and no other follows: without that the partition is never committed to its end."""
    owned = PartitionState("t", 0)
    owned.start_at(0)
    _given_late(owned, 0, 1, 2)
    for offset, processed in ((0, 1), (1, 2), (2, 3)):
        owned.done_up_to(offset + 1)
        assert owned.processed == processed


def test_the_position_of_a_late_record_says_nothing_of_an_unfinished_one_before_it() -> None:
    """Record 0 was returned in its place and is not done with when the late record 1 is stored."""
    owned = PartitionState("t", 0)
    owned.start_at(0)
    owned.gave(0)
    _given_late(owned, 1, 2)
    owned.done_up_to(2)
    assert owned.processed == 0
    owned.done_up_to(1)
    assert owned.processed == 1
    owned.done_up_to(3)
    assert owned.processed == 3


def _inherited(upto: int, *pending: int) -> PartitionState:
    """One that begins at the first pending offset; an earlier owner has processed what else lies below `upto`."""
    owned = PartitionState("t", 0)
    owned.start_at(pending[0])
    owned.earlier.inherited = Ahead(upto, frozenset(pending))
    return owned


def test_the_position_passes_what_an_earlier_owner_has_processed() -> None:
    """It had taken 58 to 60 while 55 and 57 waited. They are not given again: nobody would ever name what follows 57."""
    owned = _inherited(61, 55, 57)
    owned.gave(55)
    owned.done_up_to(56)
    assert owned.processed == 57
    owned.gave(57)
    owned.done_up_to(58)
    assert (owned.processed, owned.ahead(61)) == (61, "")


def test_a_position_below_what_was_given_stays_where_the_application_names_it() -> None:
    """It may want to have the rest again."""
    owned = _inherited(61, 55, 57)
    owned.gave(55)
    owned.gave(57)
    owned.done_up_to(56)
    assert owned.processed == 56
