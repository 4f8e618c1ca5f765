"""Every reason for which a gate may be closed, and which of them is named when several apply."""

from __future__ import annotations

from typing import Any

import pytest
from keyorder.partitioner.gates.waits import OriginFacts, Reason, why

FACTS: dict[str, Any] = {
    "topic": "t",
    "partition": 0,
    "needs": 10,
    "committed": 4,
    "proven": 4,
    "highest_committed": 4,
    "owner": "m1",
    "log_start": 0,
    "stable_end": 12,
    "high_watermark": 12,
}


@pytest.mark.parametrize(
    ("facts", "reason", "text"),
    [
        ({}, Reason.READING, "waiting for m1 to commit t[0] up to 10; it is at 4, 6 offsets to go"),
        ({"owner": None}, Reason.READING, "waiting for the group to commit"),
        ({"log_start": 7}, Reason.READING, "begins at 7"),
        ({"owner": ""}, Reason.NO_OWNER, "no member"),
        ({"returned": 9}, Reason.READING, "it is at 4"),
        ({"returned": 10}, Reason.APPLICATION, "commit of t[0] to 10"),
        ({"returned": 5, "paused": True}, Reason.PAUSED, "resume"),
        ({"highest_committed": 6}, Reason.REGRESSED, "from 6 to 4"),
        ({"stable_end": 4}, Reason.TRANSACTION, "at and above 4"),
        ({"stable_end": 5}, Reason.READING, "it is at 4"),
        ({"high_watermark": 9, "stable_end": 4}, Reason.MISSING, "ends at 9"),
        ({"committed": 10, "proven": 9, "highest_committed": 10}, Reason.UNPROVEN, "listener"),
        ({"still_for": 60.0}, Reason.STALLED, "m1 has committed nothing"),
        ({"still_for": 60.0, "owner": ""}, Reason.NO_OWNER, "no member"),
        ({"still_for": 60.0, "returned": 10}, Reason.APPLICATION, "own commit"),
    ],
)
def test_each_wedge_has_a_name(facts: dict[str, Any], reason: Reason, text: str) -> None:
    """The first reason that somebody can act on, and a sentence that says on what."""
    found, detail = why(OriginFacts(**{**FACTS, **facts}))
    assert found is reason
    assert text in detail
