"""How the client library fetches: one partition's position, and the messages that have arrived."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, Message
from simulation.shipped.broker import Log, Place, on_process

if TYPE_CHECKING:
    from simulation.shipped.consumer import Consumer

_BATCH, _QUEUE = 50, 200


class Fetcher:
    """One assigned partition. next: where the next fetch begins. returned: behind the last message handed over.

    Whatever makes its messages stale raises `version`: an answer of an older one is thrown away.
    """

    def __init__(self, client: Consumer, place: Place, offset: int) -> None:
        self.client, self.place = client, place
        self.begin, self.returned = offset, OFFSET_INVALID
        self.next: int | None = None
        self.version = 0
        self.busy = self.over = False
        self.queued: deque[Message] = deque()
        self.told_end: int | None = None

    @property
    def log(self) -> Log | None:
        """None while the partition is not there."""
        return self.client.cluster.log(*self.place)

    def restart(self, offset: int | None = None) -> None:
        """Fetch from here; None: from behind what was handed over last."""
        self.version += 1
        self.queued.clear()
        self.told_end = None
        if offset is not None:
            self.begin, self.returned = offset, OFFSET_INVALID
        elif self.returned >= 0:
            self.begin = self.returned
        self.next = None
        self.busy = False
        self.fetch()

    def stop(self) -> None:
        """No longer assigned, or paused."""
        self.version += 1
        self.queued.clear()
        self.busy = False

    def fetch(self) -> None:
        """Ask for more, unless that is under way."""
        if self.busy or self.over or self.place in self.client.paused or len(self.queued) >= _QUEUE:
            return
        if self.client.fetchers.get(self.place) is not self:
            return
        self.busy = True
        cluster = self.client.cluster
        log, version = self.log, self.version
        if log is None:
            cluster.scheduler.after(0.5, self._retry, version)
            return
        late = max(0.0, log.leader_back - cluster.scheduler.now) + cluster.slow.get(self.place[0], 0.0)
        cluster.scheduler.after(cluster.delay() + late, self._at_broker, log, version, True)

    def _retry(self, version: int) -> None:
        if version == self.version:
            self.busy = False
            on_process(self.client.process, self.fetch)

    def _at_broker(self, log: Log, version: int, wait: bool) -> None:
        if version != self.version or not self.client.process.alive:
            return
        if self.next is None:
            self._find_start(log)
        at = self.next
        if at is None:
            return
        stable = self.client.committed_only
        upto = log.stable_end if stable else log.end
        if at > log.end or at < log.start:
            self._answer(version, [], at, KafkaError._AUTO_OFFSET_RESET if self.client.reset == "error" else None)
        elif at < upto:
            taken, offset = [], at
            while offset < upto and len(taken) < _BATCH:
                record = log.records[offset]
                if not record.marker and not (stable and record.transaction and not record.transaction.ended):
                    taken.append(offset)
                offset += 1
            self._answer(version, taken, offset, None)
        elif wait:
            done = [False]

            def look() -> None:
                if not done[0]:
                    done[0] = True
                    self._at_broker(log, version, False)

            log.waiting.append(look)
            self.client.cluster.scheduler.after(self.client.fetch_wait, look)
        else:
            self._answer(version, [], at, None, empty=True)

    def _find_start(self, log: Log) -> None:
        begin = self.begin
        if begin in (OFFSET_BEGINNING, OFFSET_INVALID) or (begin < 0 and begin != OFFSET_END):
            begin = log.start
        elif begin == OFFSET_END:
            begin = log.stable_end if self.client.committed_only else log.end
        self.next = begin

    def _answer(self, version: int, offsets: list[int], upto: int, code: int | None, empty: bool = False) -> None:
        on_way = self.client.cluster.delay()
        args = (self.client.process, self._arrived, version, offsets, upto, code, empty)
        self.client.cluster.scheduler.after(on_way, on_process, *args)

    def _arrived(self, version: int, offsets: list[int], upto: int, code: int | None, empty: bool) -> None:
        if version != self.version:
            return
        self.busy = False
        log = self.log
        if log is None:
            return
        for offset in offsets:
            record = log.records[offset]
            self.queued.append(
                Message(
                    topic=self.place[0],
                    partition=self.place[1],
                    offset=offset,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                    timestamp=record.timestamp,
                    leader_epoch=record.leader_epoch,
                )
            )
        self.next = upto
        if code is not None:
            self.over = True
            self._event(upto, code)
        elif empty and self.client.tells_ends and self.told_end != upto:
            self.told_end = upto
            self._event(upto, KafkaError._PARTITION_EOF)
        if self.queued:
            self.client.arrived()
        self.fetch()

    def _event(self, offset: int, code: int) -> None:
        self.queued.append(Message(topic=self.place[0], partition=self.place[1], offset=offset, error=KafkaError(code)))
