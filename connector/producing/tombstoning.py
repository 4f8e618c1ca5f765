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
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ...partitioner.routing import HINT_HEADER, Route
from ...partitioner.timeline import Timeline
from ...partitioner.writers.lanes import Cohort
from ...partitioner.writers.sending import TopicSending
from ...partitioner.writers.tombstones import beginnings, homes_to_clear
from .exclusion import Exclusion
from .transactions import Transactions

# Of the keys that are known to be cleared, with what a dictionary needs for each.
_REMEMBERED_BYTES = 32 * 1024 * 1024
_ENTRY_BYTES = 250
Told = Callable[[KafkaError | None], None]


class MoveTombstones:
    """The tombstones of one producer. Everything but the delivery reports happens under the producer's lock.

    resolved: called, without the lock, with the cohort of each tombstone whose fate is known, and its error or None.
    log_starts: {partition: log start} of a topic, as far as known. remembered_bytes: for keys that are known to be cleared.
    """

    def __init__(
        self,
        raw: Producer,
        resolved: Callable[[Cohort, KafkaError | None], None],
        log_starts: Callable[[str], Mapping[int, int]],
        transactions: Transactions,
        exclusion: Exclusion,
        remembered_bytes: int = _REMEMBERED_BYTES,
    ) -> None:
        self._raw, self._resolved, self._log_starts, self._exclusion = raw, resolved, log_starts, exclusion
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

    def send(self, topic: str, sending: TopicSending[Any], key: bytes, route: Route, told: Told) -> bool:
        """Queue the tombstones of `key`; `told` hears when all are acknowledged, or of the first error, without the lock.

        False when none is needed: nothing will be told.
        """
        number = self._transactions.number
        homes = homes_to_clear(sending.routing, key, beginnings(self._log_starts(topic), sending.timeline.purged))
        if not homes:
            self._remember(topic, key, route.hint, number)
            return False
        left = len(homes)
        failed: list[KafkaError] = []

        def delivered(cohort: Cohort, error: KafkaError | None, _: Message | None = None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failed.append(error)
            self._resolved(cohort, error)
            if not left:
                if not failed:
                    self._exclusion.run(partial(self._remember, topic, key, route.hint, number))
                told(failed[0] if failed else None)

        for q in homes:
            cohort = sending.side_cohort(q)
            cohort.unresolved += 1
            done = partial(delivered, cohort)
            self._waiting.append((partial(self._produce, topic, key, q, route, done), done))
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
