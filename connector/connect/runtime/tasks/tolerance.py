"""What happens when an operation on a record fails: try again for a while, then fail or tolerate (KIP-298)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from tenacity import (
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    stop_never,
    wait_exponential,
    wait_random,
)

from .....partitioner.errors import KeyorderError
from .... import clock
from ....attempts import Attempts
from ...api.errors import ConnectError
from ..metrics import TaskMetrics

T = TypeVar("T")
_LOG = logging.getLogger("keyorder.connect.errors")


class Stage(Enum):
    """Where a record was when it failed, in Connect's words."""

    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"
    TASK_PUT = "TASK_PUT"
    TASK_POLL = "TASK_POLL"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"


class FailedOperation(ConnectError):
    """An operation failed for good. `error` is why; `executing` the class that did it."""

    def __init__(self, stage: Stage, executing: str, where: str, error: Exception) -> None:
        super().__init__(stage, executing, where, error)
        self.stage, self.executing, self.where, self.error = stage, executing, where, error

    def __str__(self) -> str:
        return f"{self.stage.value} failed on {self.where}: {self.error}"


class StoppedError(ConnectError):
    """The task is to stop while an operation was to be tried again: the record is neither done nor failed, and comes again."""


@dataclass(frozen=True)
class Tolerance:
    """The errors.* settings of one task."""

    tolerate: bool
    retry_timeout: float | None
    delay_max: float
    log: bool
    log_where: bool
    stopping: threading.Event
    metrics: TaskMetrics

    @classmethod
    def of(cls, parsed: Mapping[str, Any], stopping: threading.Event, metrics: TaskMetrics) -> Tolerance:
        """From a connector's parsed settings."""
        timeout = parsed["errors.retry.timeout"]
        return cls(
            parsed["errors.tolerance"] == "all",
            None if timeout < 0 else timeout / 1000,
            parsed["errors.retry.delay.max.ms"] / 1000,
            parsed["errors.log.enable"],
            parsed["errors.log.include.messages"],
            stopping,
            metrics,
        )

    def run(self, stage: Stage, executing: str | Callable[[], str], where: str, call: Callable[[], T]) -> T:
        """The call's result; again while it raises a retriable error and there is time. executing: whose call; asked behind it.

        Raises FailedOperation; StoppedError if the task is to stop before it is known whether the error passes.
        """

        try:
            return call()
        except Exception as error:
            first = error
        if _may_pass(first) and self.retry_timeout != 0:
            try:
                return self._again(call)
            except StoppedError:
                raise
            except Exception as error:
                first = error
        name = executing if isinstance(executing, str) else executing()
        raise self.failed(stage, name, where, first) from first

    def failed(self, stage: Stage, executing: str, where: str, error: Exception) -> FailedOperation:
        """Count and log an operation that has failed for good."""
        self.metrics.add("total_record_errors")
        self.metrics.set("last_error_timestamp", clock.wall_ms())
        if self.log:
            self.metrics.add("total_errors_logged")
            place = f" on {where}" if self.log_where else ""
            _LOG.error("%s failed%s in %s: %s", stage.value, place, executing, type(error).__name__)
        return FailedOperation(stage, executing, where, error)

    def _again(self, call: Callable[[], T]) -> T:
        def counted(_: RetryCallState) -> None:
            self.metrics.add("total_retries")

        first_wait = min(0.3, self.delay_max)
        self.metrics.add("total_retries")
        self._sleep(first_wait)
        attempts = Attempts(
            retry=retry_if_exception(_may_pass),
            stop=stop_never if self.retry_timeout is None else stop_after_delay(self.retry_timeout),
            wait=wait_exponential(multiplier=first_wait, max=self.delay_max) + wait_random(0, 0.1),
            sleep=self._sleep,
            before_sleep=counted,
            reraise=True,
        )
        return attempts(call)

    def _sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise StoppedError("the task is to stop before the operation was tried again")


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, KeyorderError) and error.retriable
