"""What one seed means: an application, its settings, its habits, and the changes of its topic.

A plan is a pure function of its seed. The kind of application and the first habit go round with the seed, so that a row of seeds
has each of them; everything else is drawn.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any

PROTOCOLS: dict[str, dict[str, str]] = {
    "range": {"partition.assignment.strategy": "range"},
    "roundrobin": {"partition.assignment.strategy": "roundrobin"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
}
CALLBACKS = (
    "stats_cb", "on_commit", "on_assign", "key_assigned", "on_revoke", "key_maybe_revoked", "error_cb", "on_lost", "log",
)  # fmt: skip
CONSUMER_CALLS = (
    "poll", "commit", "seek", "pause", "resume", "unsubscribe", "subscribe", "store_offsets", "close", "committed",
    "position", "assignment", "get_watermark_offsets",
)  # fmt: skip
PRODUCER_CALLS = ("produce", "poll", "flush", "len", "close", "produce_batch", "purge")
TRANSACTION_CALLS = ("begin", "produce", "send_offsets", "commit", "abort")


@dataclass(frozen=True)
class Habit:
    """Something hard that an application does, and how."""

    name: str
    how: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name + (f"({', '.join(f'{k}={v}' for k, v in self.how.items())})" if self.how else "")


@dataclass(frozen=True)
class Plan:
    """One scenario. `changes`: the counts that the topic is given, one after the other."""

    seed: int
    kind: str
    partitions: int
    changes: tuple[int, ...]
    protocol: str
    static: bool
    commit: str
    calls: str
    gate: str
    backlog: int
    habits: tuple[Habit, ...]

    def __str__(self) -> str:
        counts = " -> ".join(map(str, (self.partitions, *self.changes)))
        words = [self.protocol, "static" if self.static else "", f"commit={self.commit}", f"calls={self.calls}"]
        words += [f"gate={self.gate}", f"backlog={self.backlog}"]
        habits = "; ".join(map(str, self.habits)) or "none"
        return f"{self.kind}, {counts}, {' '.join(filter(None, words))}; habits: {habits}"

    def as_dict(self) -> dict[str, Any]:
        """For the processes that carry it out."""
        return asdict(self)

    def has(self, name: str) -> bool:
        """Whether a habit of this name is among them."""
        return any(habit.name == name for habit in self.habits)


# Each kind of application with the habits that it may have.
HABITS: dict[str, tuple[str, ...]] = {
    "consumer": (
        "raising", "interrupt", "retry-by-seek", "retry-by-pause", "reopen", "forget", "resubscribe", "reset",
        "close-from-thread", "fork", "slow", "commit-in-revoke", "topic-made-again", "broken-topic", "seek-and-back",
        "queries", "partly-filled", "partition-eof", "pause", "blind",
    ),
    "assigning": (
        "unassign-one", "pause", "interrupt", "raising", "reopen", "retry-by-seek", "retry-by-pause", "assign-anew",
        "seek-and-back",
    ),
    "polling-threads": ("reopen", "raising", "queries"),
    "async-consumer": ("cancel", "tasks-in-callbacks", "raising", "reopen", "retry-by-pause"),
    "producer": (
        "interrupt", "raising", "oversized", "held-long", "small-queue", "threads", "reopen", "forget", "fork", "batches",
        "topic-made-again", "short-flush", "purge", "null-keys",
    ),
    "async-producer": ("cancel", "raising", "held-long"),
    "transactions": ("interrupt", "held-long", "abort", "short-commit", "reopen"),
}  # fmt: skip
KINDS = (
    "consumer", "producer", "consumer", "transactions", "consumer", "assigning", "consumer", "async-consumer",
    "consumer", "producer", "consumer", "async-producer", "consumer", "polling-threads",
)  # fmt: skip
# These take many seconds or make each other pointless: one of them at most.
ALONE = {"forget", "slow", "reset", "topic-made-again", "broken-topic", "close-from-thread", "blind"}

# These name offsets of a partition, as if its records came in their order: where single keys wait they do not.
BY_OFFSET = {"retry-by-seek", "retry-by-pause", "seek-and-back"}


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"application {seed}")
    kind = KINDS[seed % len(KINDS)]
    pool = HABITS[kind]
    turn = seed // len(KINDS) * KINDS.count(kind) + KINDS[: seed % len(KINDS)].count(kind)
    names = [pool[turn % len(pool)]]
    for name in rng.sample(pool, rng.choice((0, 1, 1, 2, 3)) if len(pool) > 4 else rng.choice((0, 1))):
        if name not in names and not (name in ALONE and ALONE & {*names}):
            names.append(name)
    rng.shuffle(names)
    partitions = rng.choice((1, 2, 2, 3, 4))
    changes: list[int] = []
    count = partitions
    for _ in range(rng.choice((1, 2, 2))):
        options = [c for c in (count + 1, count + 2, count * 2, count - 1, partitions) if partitions <= c != count]
        count = rng.choice(options)
        changes.append(count)
    commit = rng.choice(("auto", "auto", "auto", "record", "batch", "async", "store", "never"))
    if kind in ("transactions", "async-producer", "producer", "polling-threads"):
        commit = "auto"
    gate = "key" if rng.random() < 0.2 and kind == "consumer" and not BY_OFFSET & {*names} else "partition"
    if gate == "key" and commit in ("record", "store"):
        commit = "batch"
    return Plan(
        seed=seed,
        kind=kind,
        partitions=partitions,
        changes=tuple(changes),
        protocol=rng.choice(("range", "roundrobin", "cooperative-sticky", "cooperative-sticky", "kip-848")),
        static=rng.random() < 0.15 and "forget" not in names,
        commit=commit,
        calls=rng.choice(("poll", "consume", "consume", "mixed", "arrow")),
        gate=gate,
        backlog=rng.choice((0, 0, 2_000, 5_000)) if "consumer" in kind or kind == "assigning" else 0,
        habits=tuple(Habit(name, _how(name, kind, rng, turn)) for name in names),
    )


def _how(name: str, kind: str, rng: random.Random, turn: int) -> dict[str, Any]:
    if (name == "raising" and "consumer" in kind) or (name == "raising" and kind in ("assigning", "polling-threads")):
        first = CALLBACKS[turn // len(HABITS[kind]) % len(CALLBACKS)]
        which = list(dict.fromkeys([first, *rng.sample(CALLBACKS, rng.choice((0, 1, 3)))]))
        # On an event loop what is no Exception ends the loop, by asyncio's own rules.
        what = "Fault" if kind == "async-consumer" else rng.choice(("Fault", "Interrupted"))
        return {"callbacks": which, "every": rng.choice((1, 1, 2, 3)), "what": what}
    if name == "raising":
        return {
            "callbacks": rng.choice((["on_delivery"], ["on_delivery", "stats_cb"], ["stats_cb"], ["error_cb", "log"])),
            "every": rng.choice((2, 3, 5)),
            "what": rng.choice(("Fault", "Interrupted")),
        }
    if name == "interrupt":
        calls = {"transactions": TRANSACTION_CALLS, "producer": PRODUCER_CALLS}.get(kind, CONSUMER_CALLS)
        first = calls[0] if kind != "transactions" else "commit"
        return {
            "calls": sorted({first, *rng.sample(calls, 3)}),
            "by": rng.choice(("line", "line", "timer")),
            "every": rng.choice((2, 3, 7)),
            "action": rng.choice(("Interrupted", "KeyboardInterrupt", "close", "close and raise")),
            "then": rng.choice(("go on", "go on", "close")),
        }
    if name in ("reopen", "forget", "resubscribe", "unassign-one", "assign-anew", "fork", "close-from-thread"):
        return {"every": rng.choice((15, 30, 60))}
    if name in ("retry-by-seek", "retry-by-pause", "seek-and-back", "pause"):
        return {"every": rng.choice((2, 5, 20))}
    if name == "cancel":
        return {"every": rng.choice((1, 2, 3)), "by": rng.choice(("steps", "wait_for"))}
    return {}
