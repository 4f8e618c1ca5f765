"""Move tombstones: on a compacted topic, a moved key's old values are cleared once its new one is safe.

The first write of a moved key under an epoch is followed, once it is acknowledged at its new home, by a null-value record
to every earlier home that may still hold the key, oldest home last; the application hears of its write when these are
acknowledged too. In the other order a crash in between would lose the value, or bring a deleted one back.
They carry the hint header, by which readers tell them from real deletes, and count as on their way for the next READY: a
late one could otherwise arrive after the key has come back, and erase it.

A home gets none once nothing old is left there: its log begins at or above the cut, or the topic's purge watermark in the
timeline does. A log that is only compacted never advances its beginning; there the watermark ends the sending.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from ...partitioner.routing import HINT_HEADER, Route
from ...partitioner.writers.lanes import Cohort
from ...partitioner.writers.sending import TopicSending
from ...partitioner.writers.tombstones import beginnings, homes_to_clear

_REMEMBERED = 100_000
Told = Callable[[KafkaError | None], None]


class MoveTombstones:
    """The tombstones of one producer. Everything but the delivery reports happens under the producer's lock.

    resolved: called, without the lock, with the cohort of each tombstone whose fate is known, and its error or None.
    log_starts: {partition: log start} of a topic, as far as known.
    """

    def __init__(
        self,
        raw: Producer,
        resolved: Callable[[Cohort, KafkaError | None], None],
        log_starts: Callable[[str], Mapping[int, int]],
    ) -> None:
        self._raw, self._resolved, self._log_starts = raw, resolved, log_starts
        self._compacted: dict[str, bool] = {}
        self._cleared: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        self._waiting: deque[Callable[[], None]] = deque()

    def topic_is(self, topic: str, compacted: bool) -> None:
        """Whether the topic's cleaner keeps the last value of each key."""
        self._compacted[topic] = compacted

    def clears(self, topic: str) -> bool:
        """Whether this topic is one whose moved keys are cleared."""
        return self._compacted.get(topic, False)

    def needed(self, topic: str, key: bytes, route: Route) -> bool:
        """Whether a write of this key, once acknowledged, has to be followed by tombstones."""
        if not route.hint or not self.clears(topic):
            return False
        return self._cleared.get((topic, key)) != route.hint

    def send(self, topic: str, sending: TopicSending[Any], key: bytes, route: Route, told: Told) -> None:
        """Queue the tombstones of `key`; `told` hears when all are acknowledged, or of the first error."""
        homes = homes_to_clear(sending.routing, key, beginnings(self._log_starts(topic), sending.timeline.purged))
        if not homes:
            self._remember(topic, key, route.hint)
            self._waiting.append(partial(told, None))
            return
        left = len(homes)
        failed: list[KafkaError] = []

        def delivered(cohort: Cohort, error: KafkaError | None, _: Message) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failed.append(error)
            self._resolved(cohort, error)
            if not left:
                if not failed:
                    self._remember(topic, key, route.hint)
                told(failed[0] if failed else None)

        for q in homes:
            cohort = sending.side_cohort(q)
            cohort.unresolved += 1
            self._waiting.append(partial(self._produce, topic, key, q, route, partial(delivered, cohort)))

    def pump(self) -> None:
        """Hand queued tombstones to the client library, as far as its queue takes them."""
        while self._waiting:
            try:
                self._waiting[0]()
            except BufferError:
                return
            self._waiting.popleft()

    def __len__(self) -> int:
        return len(self._waiting)

    def _produce(self, topic: str, key: bytes, q: int, route: Route, done: Any) -> None:
        self._raw.produce(topic, None, key, q, on_delivery=done, headers=[(HINT_HEADER, route.header)])

    def _remember(self, topic: str, key: bytes, epoch: int) -> None:
        """Bounded: a key that was forgotten gets its tombstones once more, which changes nothing."""
        self._cleared[topic, key] = epoch
        self._cleared.move_to_end((topic, key))
        if len(self._cleared) > _REMEMBERED:
            self._cleared.popitem(last=False)
