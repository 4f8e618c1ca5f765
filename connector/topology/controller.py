"""The topology controller: carries a `ChangeMachine`'s actions out on a real cluster, in order.

It can be killed at any step. Whoever starts next takes its transactional id over, finds an open change in the timeline
or none, and goes on from there; so the same command given again resumes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException

from ...partitioner.changes.terms import ChangeTerms
from ...partitioner.epochs import Retirement, Slice
from ...partitioner.errors import (
    BrokerUnreachableError,
    ChangeLateError,
    ControllerFencedError,
    KafkaOperationError,
    KeyorderError,
)
from ..control.control_topics import ensure, record_limit
from ..control.rights import require_controller
from ..control.timeline_edit import give_up
from ..control.timeline_writer import UnknownResultError
from ..refusals import ClusterAdmin
from .controller_run import ControllerRun, Copier
from .results import Change, Progress, StepLog

# After these only a fresh look tells what happened to the last transaction; it also gives an open attempt up.
_START_OVER = (UnknownResultError, BrokerUnreachableError, KafkaOperationError)


class TopologyController:
    """Changes the layout of one topic. Not thread-safe; nothing is kept open between calls."""

    def __init__(self, config: Mapping[str, Any], topic: str, progress: Progress | None = None) -> None:
        self.topic = topic
        self._config = dict(config)
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._admin = ClusterAdmin(config)
        self._log = StepLog(progress)
        self._left_open: int | None = None  # the number of an attempt of an earlier life, until it is known to be over

    def change(self, count: int, terms: ChangeTerms | None = None, retirement: Retirement | None = None) -> Change:
        """Bring the topic to `count` partitions; resumes or gives up what a killed controller left.

        Raises CountError, UnmanagedTopicError, TimelineTooLargeError, WriterLateError (ChangeLateError for all but writers),
        TruncationError, ControllerFencedError, NotAuthorizedError, BrokerUnreachableError.
        """
        terms = terms or ChangeTerms()
        self._log.restart()
        ensure(self._admin, self._bootstrap)
        require_controller(self._admin, self._bootstrap, self.topic, count)
        limit = record_limit(self._admin, self._bootstrap)
        while True:
            run = self._run(count, terms, retirement, limit=limit)
            with self._broken_off(run):
                try:
                    return run.drive()
                except _START_OVER as error:
                    self._start_over(error, terms, run)
                finally:
                    run.close()

    def rehome(
        self, pieces: Iterable[Slice], copier: Copier, terms: ChangeTerms | None = None
    ) -> Generator[bool, None, None]:
        """Re-home one slice after another, each in an attempt of its own; yields for each whether its values were looked at.

        False: the partition is no longer retired, or emptied already. All slices are written by one transactional writer,
        so a growth that fences it in between ends this. Raises ScanOutdatedError, and as `change`.
        """
        terms = terms or ChangeTerms()
        ensure(self._admin, self._bootstrap)
        run: ControllerRun | None = None
        try:
            for piece in pieces:
                self._log.restart()
                while True:
                    run = run or self._run(copier.timeline.newest.count, terms, None, copier)
                    with self._broken_off(run):
                        try:
                            looked_at = run.drive(piece).changed
                            break
                        except _START_OVER as error:
                            self._start_over(error, terms, run)
                            run.close()
                            run = None
                yield looked_at
        finally:
            if run is not None:
                run.close()

    def _run(
        self,
        count: int,
        terms: ChangeTerms,
        retirement: Retirement | None,
        copier: Copier | None = None,
        limit: int | None = None,
    ) -> ControllerRun:
        return ControllerRun(self._config, self.topic, self._admin, self._log, count, terms, retirement, copier, limit)

    @contextmanager
    def _broken_off(self, run: ControllerRun) -> Iterator[None]:
        """An error or an interrupt that leaves here gives the open attempt up first: writers hold records for it."""
        try:
            yield
        except ControllerFencedError:
            raise  # what is open now is the other controller's
        except BaseException:
            number = run.attempt_open or self._left_open
            if number is not None:
                self._give_up(number)
            raise

    def _give_up(self, number: int) -> None:
        try:
            if give_up(self._config, self.topic, number):
                self._log.note(f"given up epoch {number}")
        except (KeyorderError, KafkaException, SystemError) as error:
            self._log.note(f"epoch {number} is still open, the same command again resumes: {error}")

    def _start_over(
        self,
        error: UnknownResultError | BrokerUnreachableError | KafkaOperationError,
        terms: ChangeTerms,
        run: ControllerRun,
    ) -> None:
        """Note it, or raise where trying again is no use or the time is over."""
        self._left_open = run.attempt_open or self._left_open
        if not error.retriable:
            raise error
        self._log.note(f"start over: {error}")
        if self._log.seconds() > terms.timeout:
            raise ChangeLateError(self.topic, str(error), self._log.seconds()) from error
