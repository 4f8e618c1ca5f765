"""A topic's records folded into the highest version of each key: what the view and the compactor share.

No gate is needed. Gates keep the order in which records are *delivered*; here each record carries its place in a total
order, (version, epoch, offset), and the fold takes the highest, so the order of arrival does not matter. It only has to
know the epoch of each place: the timeline is read to its end after the ends of the data were taken, and again before a
record that says, or shows, that it is of a newer layout is judged.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..connector import clock
from ..connector.compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG
from ..connector.config import split
from ..connector.consuming.view import View, ViewKeeper
from ..connector.link import ClusterLink
from ..partitioner.errors import ConfigError, PeerError, StaleViewError
from .folding import Counts, Folder
from .store import VersionStore
from .strategy import Strategy
from .topic_log import TopicLog
from .versions import positions_text

_OPTIONS = {STRATEGY_CONFIG: "the topic's own by default", HEADER_CONFIG: "the header of the header strategy"}
_LOOK_S = 30.0
_ASK_S = 10.0
_BULK_RECORDS = 20_000  # from here on reading by columns is worth its start

Progress = Callable[[int, int], None]


class VersionTable:
    """Reads a topic, managed or not, and keeps the highest version of each key.

    One thread calls `turn`; others may look into the store while they hold `lock`.

    config: as for confluent_kafka.Consumer; `compaction.strategy` and `compaction.strategy.header` overrule the topic's.
    store: where versions are kept; one with a file goes on where it was left, if it fits.

    Raises ConfigError, TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, store: VersionStore, strategy: Strategy | None = None
    ) -> None:
        ours, theirs = split(config, _OPTIONS, "a compacted view")
        if strategy is None and STRATEGY_CONFIG in ours:
            strategy = Strategy.of({name: str(value) for name, value in ours.items()})
        self.topic, self.store = topic, store
        self._explicit = strategy
        self._log = TopicLog(theirs, topic)
        self._link = ClusterLink(theirs)
        self._keeper = ViewKeeper(self._link, "", lambda _: None)
        self._keeper.start()
        self._keeper.follow(topic)
        self._view: View | None = None
        self._folder = Folder(store, self.topic_id, strategy or Strategy(), self._look)
        self._fetched = 0.0
        self._folded: dict[int, int] = {}  # the next offset of each partition that is not in the store yet
        self._parsed: tuple[tuple[str, str], Strategy] | None = None  # the topic's settings, and what they say
        self._read_ms = 0  # wall clock: of no key in the store a tombstone that was not read was purged before this
        self._asked: tuple[int, dict[int, int]] | None = None  # when, and where the topic ended then
        self._asked_at = clock.now()
        self._torn = False  # a turn was broken off: what was fetched in it is to be read again
        self.rebuilds = 0
        self.lock = threading.RLock()

    @property
    def strategy(self) -> Strategy:
        """How versions compete."""
        return self._folder.strategy

    @property
    def counts(self) -> Counts:
        """What was read."""
        return self._folder.counts

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset to read of each partition."""
        return self._folded

    @property
    def topic_id(self) -> str:
        """The topic's id, which tells it from others of its name."""
        return self._log.identity.topic_id

    @property
    def view(self) -> View:
        """The timeline that records are judged by."""
        assert self._view is not None
        return self._view

    def start(self) -> None:
        """Find the strategy and the positions. Raises ConfigError for a store that belongs to another topic."""
        self._refresh(clock.now())
        self._folder = Folder(self.store, self.topic_id, self._chosen(), self._look)
        # A record that is read from now on shows that no tombstone of its key was purged before.
        self._read_ms = clock.wall_ms()
        self._log.assign(self._resumed())
        self._folded = dict(self._log.positions)

    def renew(self) -> None:
        """See the strategy as it is now; where it was changed, all is to be read again."""
        self._refresh(clock.now())
        self._keep_up()

    def turn(self, timeout: float) -> int:
        """Fold in what has arrived, waiting up to `timeout` seconds for the first record. Returns how many records."""
        self._keep_up()
        if self._torn:
            self._log.assign(self._folded)
        self._torn = True
        batch = self._log.poll(timeout)
        with self.lock:
            self._fetched = clock.now()
            self._folder.fold(batch, self.view)
            self._folded, self._torn = dict(self._log.positions), False
        return len(batch)

    def _keep_up(self) -> None:
        """See partitions that were made since, and a timeline that has changed."""
        grown = self._log.discover(self._count())
        if self._keeper.failure is not None:
            raise self._keeper.failure
        self._take_view()
        if self._chosen() != self.strategy or (grown and not self.view.managed):
            # Losers by the old strategy may win by the new one; without a timeline a growth re-ranks every place.
            self._rebuild()

    def _count(self) -> int:
        """How many partitions the timeline tells of."""
        return self.view.timeline.newest.count if self.view.managed else 0

    def check_identity(self) -> None:
        """Stop unless the topic is still the one that is read. Raises TopicReplacedError, and as the constructor."""
        self._log.check_identity()

    def ends(self) -> dict[int, int]:
        """Where the topic ends now, with the timeline read to its own end afterwards."""
        ends = self._log.ends()
        self._refresh(clock.now())
        count = self._count()
        # Made meanwhile, or the broker that was asked had not heard of them.
        return ends if count <= len(ends) else self._log.ends(count)

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether everything below `ends` is folded in, by the strategy that is known now."""
        return self._chosen() == self.strategy and not self.left(ends)

    def left(self, ends: Mapping[int, int]) -> int:
        """How many offsets below `ends` are not folded in yet."""
        return sum(max(0, end - self._folded.get(p, 0)) for p, end in ends.items())

    def read_to(self, ends: Mapping[int, int], asked_ms: int, progress: Progress | None = None) -> None:
        """Fold everything below `ends`. asked_ms: as of when. progress: called with (offsets passed, offsets in all).

        Raises LogShorterError where a log ends below them by now, TopicReplacedError.
        """
        self._keep_up()
        total = self.left(ends)

        def passed() -> None:
            if progress is not None:
                progress(total - min(self.left(ends), total), total)

        if total >= _BULK_RECORDS:
            for batch in self._log.columns(ends):
                self._folded = dict(self._log.positions)
                passed()
                with self.lock:
                    self._fetched = clock.now()
                    self._folder.fold_columns(batch, self.view)
            self._folded = dict(self._log.positions)
            passed()
        silence = self._log.silence(ends)
        while not self.reached(ends):
            self.turn(0.2)
            passed()
            silence.seen(self._folded)
        self.note_read(asked_ms)

    def note_read(self, asked_ms: int) -> None:
        """All is folded in that the topic had at this time of the wall clock."""
        with self.lock:
            self._read_ms = max(self._read_ms, asked_ms)

    def keep_note(self) -> None:
        """Note that all is read, by asking every ten seconds where the topic ends: a busy one is never seen to end."""
        asked, now = self._asked, clock.now()
        if asked is not None:
            if not self.reached(asked[1]):
                return
            self.note_read(asked[0])
            self._asked = None
        if now - self._asked_at >= _ASK_S:
            asked_ms = clock.wall_ms()
            with suppress(PeerError):  # the next time will do, and what lasts is told by those that read
                self._asked = asked_ms, self._log.ends(patience=1.0)
            self._asked_at = clock.now()

    def save(self) -> None:
        """Write everything down, so that the next start goes on from here."""
        with self.lock:
            # Not when it is saved: since it was read a deletion may have come and gone.
            facts = {"positions": json.dumps(positions_text(self._folded)), "saved_at_ms": str(self._read_ms)}
            self.store.write_down({**self._identity(self.strategy), **facts})

    def close(self) -> None:
        """Release everything but the store."""
        self._keeper.stop()
        self._log.close()
        self._link.close()

    def _refresh(self, since: float) -> None:
        """See that the timeline is as new as `since`. Raises StaleViewError."""
        if self._keeper.as_of(self.topic) < since and not self._keeper.await_look(self.topic, since, _LOOK_S):
            raise StaleViewError(self.topic, _LOOK_S)
        self._take_view()

    def _look(self) -> View:
        """A view that is as new as what was fetched last."""
        self._refresh(self._fetched)
        return self.view

    def _take_view(self) -> None:
        partitions = self._log.partitions or self._log.identity.partitions
        view = self._keeper.view(self.topic, partitions)
        if view is not self._view and view.managed:
            view.timeline.check_identity(self._log.identity.topic_id, self._log.identity.cluster_id)
        self._view = view

    def _chosen(self) -> Strategy:
        if self._explicit is not None:
            return self._explicit
        settings = self.view.timeline.settings
        key = (settings.get(STRATEGY_CONFIG, ""), settings.get(HEADER_CONFIG, ""))
        known = self._parsed  # as one, since another thread may ask
        if known is None or known[0] != key:
            self._parsed = known = key, Strategy.of(settings)
        return known[1]

    def _identity(self, strategy: Strategy) -> dict[str, str]:
        identity, timeline = self._log.identity, self.view.timeline
        rule = f"{strategy.kind.value}:{strategy.header}:{strategy.positive_only}"
        base = f"{timeline.initial}:{timeline.epochs[0].count}"
        isolation = "read_committed" if self._log.committed else "read_uncommitted"
        topic = f"{identity.cluster_id}/{identity.topic_id}"
        return {"topic": topic, "strategy": rule, "base": base, "isolation": isolation}

    def _resumed(self) -> dict[int, int]:
        """The store's positions if what it holds was made under the same rules, else none, and an empty store.

        The store has the topic and the rules from here on; positions once it is saved.
        """
        facts, wanted = self.store.facts(), self._identity(self.strategy)
        if facts and facts.get("topic") != wanted["topic"]:
            raise ConfigError(
                "state", f"it was made for another topic than {self.topic!r} as it is now", "name another file"
            )
        positions = {int(p): int(offset) for p, offset in json.loads(facts.get("positions", "{}")).items()}
        # No facts: a new file, or rows that an earlier release's run left when it died, of a topic that nobody knows.
        said = {"isolation": wanted["isolation"], **facts}
        if not facts or any(said.get(name) != wanted[name] for name in wanted):
            self.store.clear(wanted)
            return {}
        if "isolation" not in facts:
            # Of an earlier release: a view may have put aborted values in. Compactors did not, and made most such files.
            self.store.clear(wanted, keep_floors=True)
            return {}
        # A log that ends below what was read has lost records: what they said must not outlive them.
        places = [(self.topic, p) for p in positions]
        ends = self._link.offsets.high_watermarks(places)
        if any(ends[place] < positions[place[1]] for place in places):
            self.store.clear(wanted)
            return {}
        # A tombstone that came and was purged meanwhile would be missed, and its key live on: read all again. What was
        # a tombstone already stays known, so that an older version does not revive its key.
        read_ms = int(facts.get("saved_at_ms", 0))  # none: that run died before its first save
        away = clock.wall_ms() - read_ms
        if not read_ms or not 0 <= away < self._log.tombstones_last_ms() / 2:
            self.store.clear(wanted, keep_floors=True)
            return {}
        self._read_ms = read_ms
        return positions

    def _rebuild(self) -> None:
        with self.lock:
            self.rebuilds += 1
            read_ms = clock.wall_ms()
            strategy = self._chosen()
            self.store.clear(self._identity(strategy))
            self._log.assign(dict.fromkeys(self._log.positions, 0))
            self._folded, self._read_ms = dict(self._log.positions), read_ms
            # Last: whoever finds the new strategy finds how much is to be read by it.
            self._folder = Folder(self.store, self.topic_id, strategy, self._look)
