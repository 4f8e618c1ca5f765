"""One owned partition's offsets: what a commit would say."""

from __future__ import annotations

from confluent_kafka import Message
from keyorder.connector.consuming.owned import Owned
from keyorder.connector.consuming.records.parcels import MessageParcel


def test_what_overtook_a_waiting_record_is_worth_a_commit_of_the_same_position() -> None:
    """The position stays at the record that waits; without another commit the next owner would repeat all behind it."""
    owned = Owned("t", 0)
    owned.start_at(4)
    owned.committed = 4
    owned.hold_alone(MessageParcel(("t", 0), [Message(topic="t", partition=0, offset=4, key=b"waits")]))
    assert not owned.uncommitted
    owned.gave(5)
    owned.done_with_all()
    assert (owned.processed, owned.uncommitted) == (4, True)
    owned.ahead_committed = owned.ahead(4)
    assert not owned.uncommitted
