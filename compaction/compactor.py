"""TopicCompactor: makes the stock log cleaner keep the right record (KIP-280 on a stock cluster).

The cleaner keeps the last record of a key. Where that is not the highest version, the highest is written once more, with
its key, value, headers and timestamp, so that it is also the last. A producer may write between the look and the append:
after each append the log is read on to the own record, and where a higher version lies before it, that one is written
again. A header names the record that a copy was made of, so that for every reader it competes as that one, and does not
win a tie against what was written in between. So appending a winner again is always right, and a compactor that dies
loses nothing: the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from ..connector import clock
from ..connector.compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG, Finding, check_compaction
from ..connector.control.rights import require_write
from ..connector.crash import crash_point
from ..connector.metadata import topic_config
from ..connector.refusals import ClusterAdmin
from ..partitioner.errors import BrokerUnreachableError, UnmanagedTopicError
from .appender import Appender
from .errors import CompactionUnsafeError, CompactionWindowError
from .plan import CompactionPlan, CompactionReport
from .store import DEFAULT_MEMORY, VersionStore
from .strategy import Strategy, StrategyKind
from .table import VersionTable
from .versions import Entry, Version

Progress = Callable[[str, int, int], None]

_BATCH_RECORDS = 500
_BATCH_BYTES = 4 * 1024 * 1024
_READ_BACK_S = 60.0
_WATCH_S = 30.0


class TopicCompactor:
    """Compacts one managed topic by its strategy, beside its writers and readers.

    config: as for confluent_kafka.Consumer. `compaction.strategy` and `compaction.strategy.header` overrule the topic's.
    path: a file that keeps what was read, versions of deleted keys included: a later run goes on from there, and an old
    version of a key whose tombstone the broker has purged does not revive it. No other compactor or view may have it open.
    throttle: bytes per second that may be appended, None for no limit.
    margin: seconds that have to be left between what a pass takes and `min.compaction.lag.ms`.
    force: go on where the settings are unsafe.
    progress: called with ("reading" or "appending", done, total).

    Raises ConfigError, StateInUseError, TopicNotFoundError, NotAuthorizedError, BrokerUnreachableError.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        strategy: Strategy | None = None,
        path: str | Path | None = None,
        memory_limit: int = DEFAULT_MEMORY,
        throttle: float | None = None,
        margin: float = 60.0,
        force: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.topic = topic
        # What a transaction has not committed is no record, to a cleaner neither.
        self._config = {**config, "isolation.level": "read_committed"}
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._admin = ClusterAdmin(config)
        self._throttle, self._margin, self._force = throttle, margin, force
        self._progress = progress or (lambda *_: None)
        self._store = VersionStore(Path(path) if path is not None else None, memory_limit)
        self._persistent = path is not None
        self._appender: Appender | None = None
        self._started = False
        self._whole = 0  # the rebuild of the table after which all of the topic was read
        self._checked = clock.now()
        self._allowed_at = 0.0
        self._lag = 0.0
        self._most = 0  # max.message.bytes
        # The places of winners that the topic does not take, by key.
        self._too_large: dict[bytes, tuple[int, int]] = {}
        try:
            self._table = VersionTable(self._config, topic, self._store, strategy)
        except BaseException:
            self._store.close()
            raise

    def plan(self) -> CompactionPlan:
        """Read the topic and say what a run would do; nothing is written. Raises as the constructor."""
        began = clock.now()
        self._start()
        findings = self._findings()
        self._read()
        self._save()
        counts, (keys, tombstones) = self._table.counts, self._store.count()
        appends, size, after = 0, 0, None
        while page := self._store.displaced(after, _BATCH_RECORDS):
            after = page[-1][0]
            appends += len(page)
            size += sum(len(key) + entry.best.size() for key, entry in page)
        return CompactionPlan(
            topic=self.topic,
            strategy=self._table.strategy,
            managed=self._table.view.managed,
            records=counts.records,
            bytes=counts.bytes,
            keys=keys,
            tombstones=tombstones,
            appends=appends,
            append_bytes=size,
            malformed=counts.malformed,
            unversioned=counts.unversioned,
            seconds=clock.now() - began,
            lag=self._lag,
            findings=tuple(findings),
        )

    def run(self) -> CompactionReport:
        """One pass: read up to where the topic ends now, and write again every winner that is not its key's last record.

        Under the offset strategy nothing is read or written: the last record is the winner.
        Raises CompactionUnsafeError before anything is written, CompactionWindowError after all was, CompactorFencedError,
        TopicReplacedError, UnmanagedTopicError, and Kafka's own.
        """
        began = clock.now()
        self._start()
        if not self._table.view.managed:
            raise UnmanagedTopicError(self.topic)
        report = CompactionReport(self.topic, self._table.strategy)
        if self._table.strategy.kind is StrategyKind.OFFSET:
            return report
        report.findings = tuple(self._guard())
        if self._appender is None:
            require_write(self._admin, self._bootstrap, self.topic)
        self._appender = self._appender or Appender(self._config, self.topic, self._table.topic_id, self._most)
        self._read()
        crash_point("compactor-read")
        self._sweep(report)
        self._save()
        report.seconds = clock.now() - began
        report.strategy = self._table.strategy
        report.records, report.bytes = self._table.counts.records, self._table.counts.bytes
        report.keys, report.tombstones = self._store.count()
        if report.seconds + self._margin > self._lag and not self._force:
            raise CompactionWindowError(self.topic, report.seconds, self._margin, self._lag)
        return report

    def follow(self, stopped: Callable[[], bool], every: float = 1.0) -> CompactionReport:
        """Go on after `run` until `stopped()` is true: displaced winners are written again within `every` seconds or so.

        Raises as `run`.
        """
        report = self.run()
        while not stopped() and self._table.strategy.kind is not StrategyKind.OFFSET:
            began = clock.now()
            while clock.now() - began < every and not stopped():
                self._table.turn(min(0.2, every))
            if clock.now() - self._checked > _WATCH_S:
                self._guard()
            self._sweep(report)
            if self._persistent:
                self._table.keep_note()
            self._save()
            if clock.now() - began + self._margin > self._lag and not self._force:
                raise CompactionWindowError(self.topic, clock.now() - began, self._margin, self._lag)
        report.strategy = self._table.strategy
        return report

    def close(self) -> None:
        """Release everything; a file keeps what was read, and is free for the next one."""
        with ExitStack() as each:  # in the opposite order, and all of them: one that fails must not keep the file
            each.callback(self._store.close)
            each.callback(self._table.close)
            if self._appender is not None:
                each.callback(self._appender.close)

    def __enter__(self) -> TopicCompactor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        if self._started:
            self._table.renew()
        else:
            self._table.start()
            self._started = True

    def _read(self) -> None:
        """Read up to where the topic ends now."""
        asked_ms = clock.wall_ms()
        self._table.read_to(self._table.ends(), asked_ms, lambda done, total: self._progress("reading", done, total))
        self._whole = self._table.rebuilds  # a change of the strategy on the way made it begin anew

    def _findings(self) -> list[Finding]:
        config = topic_config(self._admin, self.topic, self._bootstrap)
        self._lag = int(config.get("min.compaction.lag.ms", 0)) / 1000
        most = int(config.get("max.message.bytes", 1_000_000))
        if most != self._most:
            self._most = most
            self._too_large.clear()
        strategy = self._table.strategy
        found = check_compaction(config, {STRATEGY_CONFIG: strategy.kind.value, HEADER_CONFIG: strategy.header})
        if 0 < self._lag <= self._margin:
            fix = f"set it above {round(self._margin * 1000)}, or lower the margin"
            problem = f"it is {round(self._lag * 1000)}, not longer than the margin of {self._margin:.0f} s"
            found.insert(0, Finding("min.compaction.lag.ms", problem, fix, fatal=True))
        return found

    def _guard(self) -> list[Finding]:
        """The findings, or an error where one would lose versions."""
        self._checked = clock.now()
        found = self._findings()
        wrong = [finding for finding in found if finding.fatal]
        if wrong and not self._force:
            raise CompactionUnsafeError(self.topic, wrong)
        return found

    def _sweep(self, report: CompactionReport) -> None:
        """Each key that is displaced now, once; and again as long as a higher version got between look and append."""
        total, done, after = self._store.count_displaced(), 0, None
        report.unappendable = 0
        while True:
            if self._table.rebuilds != self._whole:
                # The strategy was changed: what is known so far is half of the topic.
                self._read()
                total, after = done + self._store.count_displaced(), None
                report.unappendable = 0
            page = self._store.displaced(after, _BATCH_RECORDS)
            if not page:
                return
            # By bytes too: a transaction that takes long keeps readers waiting.
            taken, size = 0, 0
            while taken < len(page) and (not taken or size < _BATCH_BYTES):
                size += len(page[taken][0]) + page[taken][1].best.size()
                taken += 1
            page, after = page[:taken], page[taken - 1][0]
            self._settle(page, report)
            done += taken
            self._progress("appending", min(done, total), max(done, total))

    def _settle(self, page: list[tuple[bytes, Entry]], report: CompactionReport) -> None:
        assert self._appender is not None
        while True:
            batch = [(key, entry.best) for key, entry in page if self._appendable(key, entry.best, report)]
            if not batch:
                return
            size = sum(len(key) + version.size() for key, version in batch)
            self._pace(size)
            if self._table.rebuilds != self._whole:
                return  # these are winners by a strategy that is no more
            self._table.check_identity()  # or of a topic that is no more
            before = self._appender.transactions
            places = self._appender.append(batch)
            crash_point("compactor-committed")
            for key, winner in batch:
                if key not in places:
                    self._too_large[key] = winner[1:3]
                    report.unappendable += 1
                    size -= len(key) + winner.size()
            report.appends += len(places)
            report.append_bytes += size
            report.transactions += self._appender.transactions - before
            self._read_back(places)
            crash_point("compactor-read-back")
            if self._table.rebuilds != self._whole:
                return
            page = []
            for key, (_, offset) in places.items():
                entry = self._store.get(key)
                # Ours is the last, and not the highest: somebody wrote a higher one between our look and our append.
                if entry is not None and entry.displaced and entry.last.offset == offset:
                    page.append((key, entry))
            report.raced += len(page)

    def _appendable(self, key: bytes, winner: Version, report: CompactionReport) -> bool:
        # To the client library a timestamp of 0 means now.
        fits = winner.timestamp > 0 or self._table.strategy.kind is not StrategyKind.TIMESTAMP
        fits = fits and self._too_large.get(key) != winner[1:3]
        report.unappendable += not fits
        return fits

    def _read_back(self, places: Mapping[bytes, tuple[int, int]]) -> None:
        """Read on until all of these are folded in, or the strategy is changed: then all is to be read again."""
        ends: dict[int, int] = {}
        for partition, offset in places.values():
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        nearest, deadline = self._table.left(ends), clock.now() + _READ_BACK_S
        while nearest and self._table.rebuilds == self._whole:
            if clock.now() >= deadline:
                raise BrokerUnreachableError(self._bootstrap, f"own records did not show within {_READ_BACK_S:.0f} s")
            self._table.turn(0.1)
            # What others write meanwhile may take longer to read than that.
            if (left := self._table.left(ends)) < nearest:
                nearest, deadline = left, clock.now() + _READ_BACK_S

    def _pace(self, size: int) -> None:
        """Wait, reading on, until the rate allows `size` more bytes, or the strategy is changed."""
        if self._throttle is None:
            return
        while (left := self._allowed_at - clock.now()) > 0:
            self._table.turn(min(left, 0.2))
            if self._table.rebuilds != self._whole:
                return
        self._allowed_at = max(self._allowed_at, clock.now()) + size / self._throttle

    def _save(self) -> None:
        if self._persistent:
            self._table.save()
