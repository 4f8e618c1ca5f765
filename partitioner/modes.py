"""What may be done with a partition: KIP-694's modes.

A retired partition goes from ReadWrite to ReadOnly when the shrink commits, and to None once its delay is over and the
groups that the plan names have processed it. The KIP's text contradicts itself on None; here it is neither written nor read.
"""

from __future__ import annotations

from enum import IntEnum

from .errors import UsageError

DELETE_ENABLE = "delete.topic.partition.enable"
DEFAULT_DELETE_DELAY_MS = 300_000  # delete.topic.partition.interval.delay.ms


class UnknownModeError(UsageError, ValueError):
    """A mode code that KIP-694 does not name: what may be done with the partition is unknown, so nothing is."""

    def __init__(self, code: object) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"unknown partition mode {self.code!r}: known are 0 (ReadWrite), 1 (ReadOnly), -1 (None)"


class Mode(IntEnum):
    """A partition's mode, with KIP-694's codes. `str()` gives the KIP's own spelling."""

    READ_WRITE = 0
    READ_ONLY = 1
    NONE = -1

    @classmethod
    def of_code(cls, code: int | None) -> Mode:
        """The mode of a code; an absent one is ReadWrite (KIP-694: default 0). Raises UnknownModeError."""
        if code is None:
            return cls.READ_WRITE
        if isinstance(code, bool) or not isinstance(code, int):
            raise UnknownModeError(code)
        try:
            return cls(code)
        except ValueError:
            raise UnknownModeError(code) from None

    @property
    def readable(self) -> bool:
        """Whether consumers may read the partition."""
        return self is not Mode.NONE

    def next(self, elapsed_ms: int, delay_ms: int, drained: bool) -> Mode:
        """The mode at a check, `elapsed_ms` after the partition was retired.

        The delay is a minimum wait: without the named groups' drain a delay of 0 would lose what they have not read.
        """
        if self is Mode.READ_ONLY and elapsed_ms >= delay_ms and drained:
            return Mode.NONE
        return self

    def __str__(self) -> str:
        return {Mode.READ_WRITE: "ReadWrite", Mode.READ_ONLY: "ReadOnly", Mode.NONE: "None"}[self]
