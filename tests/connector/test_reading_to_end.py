"""Reading control records up to an end, by whichever reader."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from keyorder.connector import clock
from keyorder.connector.control.control_reader import ControlMessage, Look, reading_to_end
from keyorder.connector.control.control_topics import Slot
from keyorder.partitioner.errors import BrokerUnreachableError

SLOT = ("_keyorder", 0)


class Silent:
    """Hands out one record below an end of two, and then nothing."""

    def __init__(self) -> None:
        self.left = [ControlMessage(SLOT, 0, b"timeline:t", None)]

    def look(self, slots: Iterable[Slot] | None = None, timeout: float = 10.0) -> Look:
        return Look(clock.now(), {SLOT: 2})

    def reached(self, look: Look) -> bool:
        return False

    def poll(self, timeout: float) -> list[ControlMessage]:
        found, self.left = self.left, []
        return found

    def pass_markers(self, look: Look) -> list[ControlMessage]:
        return []


def test_what_came_before_the_leader_fell_silent_is_not_lost() -> None:
    """It is handed out at once; the wait ends with an error that says what could not be read."""
    taken: list[bytes] = []
    with pytest.raises(BrokerUnreachableError, match="read to their end"):
        taken.extend(message.key for message in reading_to_end(Silent(), [SLOT], 0.1, "localhost:1"))
    assert taken == [b"timeline:t"]
