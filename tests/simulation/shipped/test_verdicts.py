"""What the simulation forgives: only what no client can prevent."""

from __future__ import annotations

from keyorder.connector.verify.events import Kind, Value, encode_value
from keyorder.connector.verify.history import History
from keyorder.connector.verify.topology import Epoch, Topology
from keyorder.connector.verify.verdict import Verdict, judge
from simulation.shipped.scenario import Outcome

_FIRST, _SECOND = Value("", "w", "k", 1), Value("", "w", "k", 2)


def forgiven(*deliveries: tuple[Kind, str, int, Value | None]) -> bool:
    """Whether the one A13 of these is, in a log with two records of one key. deliveries: (what, member, offset, record)."""
    history, at = History(), 0
    for offset, value in enumerate((_FIRST, _SECOND)):
        history.add(at := at + 1, Kind.SEND_INVOKE, "w", value=value)
        history.add(at := at + 1, Kind.SEND_OK, "w", "", 0, offset, value)
    for kind, member, offset, record in deliveries:
        history.add(at := at + 1, kind, member, "g", 0, offset, record)
    rows = [(0, offset, b"k", encode_value("", "w", "k", offset + 1), None) for offset in (0, 1)]
    verdict: Verdict = judge(history.finish(), rows, Topology(1, [Epoch(1, 1)]), quiesced=True)
    assert verdict.counts["A13"] == 1
    return "A13" not in Outcome(1, "", 1.0, 1, verdict=verdict).wrong


def test_a_record_that_a_frozen_application_ends_last_is_forgiven() -> None:
    """It had the record when the group gave the partition to another; the key's last record had ended before it thawed."""
    assert forgiven(
        (Kind.ASSIGN, "a", -1, None),
        (Kind.DELIVER_START, "a", 0, _FIRST),
        (Kind.LOST, "a", -1, None),
        (Kind.ASSIGN, "b", -1, None),
        (Kind.DELIVER_START, "b", 0, _FIRST),
        (Kind.DELIVER_END, "b", 0, _FIRST),
        (Kind.DELIVER_START, "b", 1, _SECOND),
        (Kind.DELIVER_END, "b", 1, _SECOND),
        (Kind.DELIVER_END, "a", 0, _FIRST),
    )


def test_a_record_that_an_owner_ends_last_is_not_forgiven() -> None:
    """Delivered again behind the newer one by whoever owns the partition."""
    assert not forgiven(
        (Kind.ASSIGN, "a", -1, None),
        (Kind.DELIVER_START, "a", 0, _FIRST),
        (Kind.DELIVER_END, "a", 0, _FIRST),
        (Kind.DELIVER_START, "a", 1, _SECOND),
        (Kind.DELIVER_END, "a", 1, _SECOND),
        (Kind.DELIVER_START, "a", 0, _FIRST),
        (Kind.DELIVER_END, "a", 0, _FIRST),
    )
