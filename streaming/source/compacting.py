"""Compaction by version as an option of the source: what was asked for, and which task has which keys. Pure.

A key's versions may lie in several partitions, and Spark has no shuffle inside a source. So each task has some keys, those
with certain homes in the layout as it was when the query was planned, and reads every partition in which they have ever
lived. Offsets, and partitions that were made since, are looked up when the task runs, as for any batch: keys that move
meanwhile stay with their task, and no key is given twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import lcm

from ...compaction.strategy import Strategy
from ...connector.compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG
from ...partitioner.errors import ConfigError, OrderError
from ...partitioner.layout import Layout
from ...partitioner.routing import Routing
from .given import Given

COMPACT = "keyorder.compact"
READ = "keyorder.compact.read"
_MOST_SLOTS = 1 << 20


class MisplacedVersionError(OrderError):
    """A record lies in a partition where its key never lived, which the task that has the key does not read."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(topic, partition, offset)
        self.topic, self.partition, self.offset = topic, partition, offset

    def __str__(self) -> str:
        return (
            f"the record at {self.topic}[{self.partition}] offset {self.offset} lies where its key never lived, so the key's "
            f"highest version could be missed: set {READ}=all, with which each task reads every partition"
        )


@dataclass(frozen=True, slots=True)
class Compaction:
    """strategy: None for each topic's own. everywhere: each task reads every partition. memory: bytes that a task may hold."""

    strategy: Strategy | None
    everywhere: bool = False
    tombstones: bool = False
    memory: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Share:
    """The keys of one task: those of `topic` whose home in `layout` is one of `homes`.

    homes: None for all keys. beside: in place of a topic, all topics but these: such as a pattern finds later.
    """

    topic: str
    layout: Layout
    homes: frozenset[int] | None = None
    beside: frozenset[str] | None = None


def compaction_options(given: Given, streaming: bool) -> Compaction | None:
    """What the options say; None where they ask for no compaction. Raises ConfigError."""
    mode = (given.text(COMPACT) or "false").strip().lower()
    if mode not in ("false", "topic"):
        raise ConfigError(COMPACT, f"{given.text(COMPACT)!r} is not one", "use topic or false")
    strategy, header = given.text(STRATEGY_CONFIG), given.text(HEADER_CONFIG)
    if header is not None and (strategy or "").strip().lower() != "header":
        raise ConfigError(HEADER_CONFIG, "it is for the strategy header", f"set {STRATEGY_CONFIG}=header too")
    if strategy is not None and mode == "topic":
        raise ConfigError(COMPACT, f"topic and {STRATEGY_CONFIG} are two strategies", "leave one of both out")
    read = (given.text(READ) or "homes").strip().lower()
    if read not in ("homes", "all"):
        raise ConfigError(READ, f"{given.text(READ)!r} is not one", "use homes or all")
    found = Compaction(
        None if strategy is None else Strategy.parse(strategy, header),
        read == "all",
        given.boolean("keyorder.compact.tombstones", False),
        given.count_or("keyorder.compact.memory.mb", 256, least=1) << 20,
    )
    if strategy is None and mode == "false":
        return None
    if streaming:
        raise ConfigError(
            COMPACT if strategy is None else STRATEGY_CONFIG,
            "a stream has to remember the highest version of each key, which a source cannot: that takes state",
            "use keyorder.compaction.compact(spark, config, topic, streaming=True), which brings the operator",
        )
    return found


def homes_over(layout: Layout, routing: Routing) -> Mapping[int, set[int]] | None:
    """By home in `layout`, every partition in which keys with that home have lived; None where nothing follows from it.

    layout: as of planning; the topic may have grown since, be adopted, or, without a timeline, place all keys anew.
    """
    period = lcm(layout.period, routing.period)
    if layout.hash != routing.timeline.hash or period > _MOST_SLOTS:
        return None
    found: dict[int, set[int]] = {home: set() for home in range(layout.count)}
    lived = [{route.home, *(move.origin for move in route.moves)} for route in routing.all()]
    for slot in range(period):
        found[layout.home_of_hash(slot)] |= lived[slot % len(lived)]
    return found


def answerable(partition: int, layout: Layout) -> int:
    """The home whose task looks at every record of a partition, for such as lie where their key never lived."""
    return layout.origin(partition, layout.count)


def shares(
    topic: str, layout: Layout, lived: Mapping[int, set[int]], sizes: Mapping[int, int], small: int
) -> list[Share]:
    """The tasks for one topic. lived: see `homes_over`. sizes: records by partition. small: up to so many share a task."""
    found: list[Share] = []
    gathered: set[int] = set()
    for home in range(layout.count):
        together = Share(topic, layout, frozenset({*gathered, home}))
        if gathered and sum(sizes[p] for p in read_for(together, lived, sizes)) > small:
            found.append(Share(topic, layout, frozenset(gathered)))
            gathered = set()
        gathered.add(home)
    return [*found, Share(topic, layout, frozenset(gathered))]


def dealt(topic: str, layout: Layout, tasks: int) -> list[Share]:
    """The same where each task reads every partition: so many tasks, a key in one of them."""
    tasks = min(tasks, layout.count)
    return [Share(topic, layout, frozenset(range(n, layout.count, tasks))) for n in range(tasks)]


def read_for(share: Share, lived: Mapping[int, set[int]] | None, there: Collection[int]) -> set[int]:
    """The partitions among `there` that a task reads. lived: see `homes_over`; None where each reads all."""
    if share.homes is None or lived is None:
        return set(there)
    wanted = {p for home in share.homes for p in lived[home]}
    return {p for p in there if p in wanted or answerable(p, share.layout) in share.homes}
