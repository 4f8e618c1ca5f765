"""Move tombstones: on a compacted topic, a moved key's old values are cleared once its new one is safe.

The first write of a moved key under an epoch is followed, once it is acknowledged at its new home, by a null-value record
to every earlier home that may still hold the key, oldest home last; the application hears of its write when these are
acknowledged too. In the other order a crash in between would lose the value, or bring a deleted one back.
They carry the hint header, by which readers tell them from real deletes, and count as on their way for the next READY: a
late one could otherwise arrive after the key has come back, and erase it.

In a transaction they belong to it: an abort drops those that are not sent, and what it had cleared counts for nothing.

A home gets none once nothing old is left there: its log begins at or above the cut, or the topic's purge watermark in the
timeline does. A log that is only compacted never advances its beginning; there the watermark ends the sending.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ...partitioner.routing import HINT_HEADER, Route
from ...partitioner.timeline import Timeline
from ...partitioner.writers.fast_path import InFlight
from ...partitioner.writers.sending import TopicSending
from ...partitioner.writers.tombstones import beginnings, homes_to_clear
from .exclusion import Exclusion
from .reports import Told
from .transactions import Transactions

# Of the keys that are known to be cleared, with what a dictionary needs for each.
_REMEMBERED_BYTES = 32 * 1024 * 1024
_ENTRY_BYTES = 250
Done = Callable[[KafkaError | None], None]


class _Tombstones:
    """The tombstones of one write. told: hears when all are acknowledged, or of the first error; it may hear twice."""

    def __init__(self, owner: MoveTombstones, remember: Callable[[], None], homes: Iterable[int], told: Done) -> None:
        self.left, self.failed = set(homes), list[KafkaError]()
        self._owner, self._remember, self._told = owner, remember, told

    def resolved(self, home: int, report: Any, in_flight: InFlight, error: KafkaError | None) -> None:
        """One of them is acknowledged, or failed. Without the lock. May be called again for the same one."""
        if error is not None:
            self.failed.append(error)
        self._owner.resolved(report, in_flight, error)
        self.left.discard(home)
        if not self.left:
            if not self.failed:
                self._remember()
            self._told(self.failed[0] if self.failed else None)


class _Tombstone:
    """The fate of one tombstone, and the place of its report if it is never sent."""

    __slots__ = ("counted", "home", "in_flight", "of")

    def __init__(self, of: _Tombstones, home: int, in_flight: InFlight) -> None:
        self.of, self.home, self.in_flight, self.counted = of, home, in_flight, False

    def settle(self, report: Any, error: Any, message: Any, later: bool) -> None:
        """See Fate."""
        self.of.resolved(self.home, report, self.in_flight, error)

    def refused(self, error: KafkaError) -> None:
        """It was not sent."""
        self.of.resolved(self.home, self, self.in_flight, error)


class MoveTombstones:
    """The tombstones of one producer. Everything but the delivery reports happens under the producer's lock.

    noting: see Reports. resolved: called, without the lock, with each tombstone's report, what it is counted in,
    and its error or None; it may be called again for the same report.
    log_starts: {partition: log start} of a topic, as far as known. remembered_bytes: for keys that are known to be cleared.
    """

    def __init__(
        self,
        raw: Producer,
        noting: Callable[[Told], Callable[..., None]],
        resolved: Callable[[Any, InFlight, KafkaError | None], None],
        log_starts: Callable[[str], Mapping[int, int]],
        transactions: Transactions,
        exclusion: Exclusion,
        remembered_bytes: int = _REMEMBERED_BYTES,
    ) -> None:
        self._raw, self._noting, self.resolved = raw, noting, resolved
        self._log_starts, self._exclusion = log_starts, exclusion
        self._transactions, self._most_bytes = transactions, remembered_bytes
        self._compacted: dict[str, bool] = {}
        self._cleared: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        self._cleared_bytes = 0
        self._undecided: tuple[int, set[tuple[str, bytes]]] = 0, set()
        self._waiting: deque[tuple[Callable[[], None], Callable[[KafkaError], None]]] = deque()

    def topic_is(self, topic: str, compacted: bool) -> None:
        """Whether the topic's cleaner keeps the last value of each key."""
        self._compacted[topic] = compacted

    def clears(self, topic: str) -> bool:
        """Whether this topic is one whose moved keys are cleared."""
        return self._compacted.get(topic, False)

    def needed(self, topic: str, key: bytes, route: Route, timeline: Timeline) -> bool:
        """Whether a write of this key, once acknowledged, has to be followed by tombstones (KIP-253: if delivery is ordered)."""
        if not route.hint or not timeline.ordered or not self.clears(topic):
            return False
        return self._cleared.get((topic, key)) != route.hint

    def send(self, topic: str, sending: TopicSending[Any], key: bytes, route: Route, told: Done) -> bool:
        """Queue the tombstones of `key`; `told` hears when all are acknowledged, or of the first error, without the lock.

        False when none is needed: nothing will be told.
        """
        number = self._transactions.number
        homes = homes_to_clear(sending.routing, key, beginnings(self._log_starts(topic), sending.timeline.purged))
        if not homes:
            self._remember(topic, key, route.hint, number)
            return False
        remember = partial(self._exclusion.run, partial(self._remember, topic, key, route.hint, number))
        all_of_them = _Tombstones(self, remember, homes, told)
        for q in homes:
            in_flight = sending.side_in_flight(q)
            in_flight.unresolved += 1
            one = _Tombstone(all_of_them, q, in_flight)
            done = self._noting((None, None, None, one))
            self._waiting.append((partial(self._produce, topic, key, q, route, done), one.refused))
        return True

    def pump(self) -> None:
        """Hand queued tombstones to the client library, as far as its queue takes them. Without the lock."""
        while self._waiting:
            refused: KafkaError | None = None
            with self._exclusion.lock:
                # Under the lock: what an abort has dropped must not go out with the next transaction.
                if not self._waiting:
                    return
                send, failed = self._waiting.popleft()
                try:
                    send()
                except BufferError:
                    self._waiting.appendleft((send, failed))
                    return
                except KafkaException as raised:
                    refused = raised.args[0]
            if refused is not None:
                failed(refused)

    def abort(self) -> list[Callable[[KafkaError], None]]:
        """Under the lock: drop what is not sent, and forget what this transaction has cleared.

        Returns whom to tell of the purge, without the lock.
        """
        dropped = [failed for _, failed in self._waiting]
        self._waiting.clear()
        for topic, key in self._undecided[1]:
            self._forget(topic, key)
        self._undecided = self._transactions.number, set()
        return dropped

    def __len__(self) -> int:
        return len(self._waiting)

    def _produce(self, topic: str, key: bytes, q: int, route: Route, done: Any) -> None:
        self._raw.produce(topic, None, key, q, on_delivery=done, headers=[(HINT_HEADER, route.header)])

    def _remember(self, topic: str, key: bytes, epoch: int, number: int) -> None:
        """Bounded: a key that was forgotten gets its tombstones once more, which changes nothing."""
        if self._transactions.transactional:
            if number != self._transactions.number:
                return  # of a transaction that was aborted
            if self._undecided[0] != number:
                self._undecided = number, set()
            self._undecided[1].add((topic, key))
        if (topic, key) not in self._cleared:
            self._cleared_bytes += len(key) + _ENTRY_BYTES
        self._cleared[topic, key] = epoch
        self._cleared.move_to_end((topic, key))
        while self._cleared_bytes > self._most_bytes:
            (_, oldest), _ = self._cleared.popitem(last=False)
            self._cleared_bytes -= len(oldest) + _ENTRY_BYTES

    def _forget(self, topic: str, key: bytes) -> None:
        if self._cleared.pop((topic, key), None) is not None:
            self._cleared_bytes -= len(key) + _ENTRY_BYTES
