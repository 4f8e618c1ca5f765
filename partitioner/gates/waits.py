"""Why a gate is closed: one reason per origin, found from facts alone.

A gate that only needs its group to read on is ordinary. Everything else here does not pass by itself, or not soon: an
operator has to hear of it by name. The first reason that applies is the one to act on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(str, Enum):
    """What a closed gate waits for. All but READING and UNKNOWN ask somebody to act."""

    READING = "waiting for the origin to be processed"
    UNKNOWN = "not looked at yet"
    NO_OWNER = "origin without an owner"
    PAUSED = "origin paused by the application"
    APPLICATION = "the application has not stored or committed"
    REGRESSED = "the committed offset was rewound"
    TRANSACTION = "open transaction in the origin"
    MISSING = "records of the origin are missing"
    UNPROVEN = "the flush is not proven"
    STALLED = "the origin's owner is not progressing"


@dataclass(frozen=True, slots=True)
class OriginFacts:
    """What is known of an origin `q` of a closed gate. Offsets are the next ones to read; None: not known.

    needs: what the group has to commit. committed: what it has. proven: that, as far as the flush is proven.
    highest_committed: the highest ever seen, above `committed` after it was rewound.
    log_start, stable_end, high_watermark: of the origin's log, as its leader says.
    owner: who owns it, "" when no member does, None when nobody could say.
    returned: how far it was returned to this process's application, None when another member owns it.
    paused: by the application. still_for: seconds since `committed` last changed.
    """

    topic: str
    partition: int
    needs: int
    committed: int
    proven: int
    highest_committed: int
    owner: str | None = None
    log_start: int | None = None
    stable_end: int | None = None
    high_watermark: int | None = None
    returned: int | None = None
    paused: bool = False
    still_for: float = 0.0


def why(facts: OriginFacts, stalled_after: float = 5.0) -> tuple[Reason, str]:
    """(reason, one sentence that says what to look at). `stalled_after`: seconds without any progress that are normal."""
    place = f"{facts.topic}[{facts.partition}]"
    if facts.high_watermark is not None and facts.high_watermark < facts.needs:
        return Reason.MISSING, (
            f"{place} ends at {facts.high_watermark}, records below {facts.needs} were acknowledged: an unclean election "
            "lost them; release the gate once you have dealt with the loss"
        )
    if facts.committed >= facts.needs > facts.proven:
        return Reason.UNPROVEN, (
            f"{place} is committed at {facts.committed}, but its flush is not proven: while a gate of its own is closed that "
            "passes; else a member without the flush callback made the commit: let all members register a listener, or none"
        )
    if facts.highest_committed > facts.committed:
        return Reason.REGRESSED, (
            f"the group's offset of {place} was rewound from {facts.highest_committed} to {facts.committed}: "
            "a reset, or a member that committed what it no longer owns"
        )
    if facts.owner == "":
        return Reason.NO_OWNER, f"no member of the group owns {place}: start one that subscribes to the topic"
    if facts.paused:
        return Reason.PAUSED, f"the application paused {place}: resume it"
    if facts.returned is not None and facts.returned >= facts.needs:
        return Reason.APPLICATION, (
            f"the application was given {place} up to {facts.returned} and has stored or committed {facts.committed}: "
            f"waiting for its own commit of {place} to {facts.needs}"
        )
    if facts.stable_end is not None and facts.committed >= facts.stable_end:
        return Reason.TRANSACTION, (
            f"an open transaction in {place} hides what lies at and above {facts.stable_end}: it ends by itself at its "
            "time-out; kafka-transactions names a hanging one"
        )
    if facts.still_for > stalled_after:
        return Reason.STALLED, (
            f"{facts.owner or 'its owner'} has committed nothing on {place} for {facts.still_for:.0f} s at {facts.committed}: "
            "it hangs, is paused, or its application never stores or commits"
        )
    if facts.log_start is not None and facts.log_start > facts.committed:
        return Reason.READING, (
            f"the log of {place} begins at {facts.log_start}, above the group's {facts.committed}: its owner goes on there"
        )
    owner = facts.owner or "the group"
    return Reason.READING, (
        f"waiting for {owner} to commit {place} up to {facts.needs}; it is at {facts.committed}, "
        f"{facts.needs - facts.committed} offsets to go"
    )
