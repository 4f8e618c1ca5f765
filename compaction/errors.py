"""Errors of compaction, in the project's one tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..connector.compaction_settings import Finding
from ..partitioner.errors import ConfigError, OrderError, PeerError


class CompactionUnsafeError(OrderError):
    """The topic's settings let the broker drop the highest version before it can be written again."""

    def __init__(self, topic: str, findings: Sequence[Finding]) -> None:
        super().__init__(topic, findings)
        self.topic, self.findings = topic, tuple(findings)

    def __str__(self) -> str:
        reasons = ". ".join(str(finding) for finding in self.findings)
        return f"topic {self.topic!r} cannot be compacted by version: {reasons}"


class CompactionWindowError(OrderError):
    """A pass took longer than the broker's cleaner waits: a highest version may have been dropped meanwhile.

    All appends of the pass were made. What was dropped before it was read is not known here.
    """

    def __init__(self, topic: str, seconds: float, margin: float, lag: float) -> None:
        super().__init__(topic, seconds, margin, lag)
        self.topic, self.seconds, self.margin, self.lag = topic, seconds, margin, lag

    def __str__(self) -> str:
        return (
            f"a pass over {self.topic!r} takes {self.seconds:.1f} s, and min.compaction.lag.ms leaves {self.lag:.1f} s less a "
            f"margin of {self.margin:.1f} s: set it to {round((2 * self.seconds + self.margin) * 1000)} or more, or compact "
            "without pause (--follow)"
        )


class CompactorFencedError(PeerError):
    """Another compactor has taken this topic over: one is in charge."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"another compactor took over topic {self.topic!r}: one is enough, so this one has stopped"


class StateInUseError(ConfigError):
    """Another compactor or view has the state file: two would mix what each of them has read.

    Nothing was read or written. The same call succeeds when the other one is closed or its process has ended.
    """

    retriable = True

    def __init__(self, path: Path) -> None:
        problem = f"{path} is in use by another compactor or view, of this process or another one"
        super().__init__("state", problem, "stop or close that one first, or name another file (--state, path=)")
        self.path = path

    def __reduce__(self) -> tuple[type[StateInUseError], tuple[Path]]:
        """It is made of another argument than its base."""
        return type(self), (self.path,)


class TopicReplacedError(OrderError):
    """The topic was deleted and made again while it was read: what was read of the old one is not in the new one."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} was deleted and made again: what was read of the old one does not hold for it. Start "
            "anew, and where there is a state file, name another one"
        )


class LogShorterError(OrderError):
    """A log ends below the offset up to which it was to be read: it was cut off, or its topic was made again."""

    def __init__(self, topic: str, partition: int, found: int, wanted: int) -> None:
        super().__init__(topic, partition, found, wanted)
        self.topic, self.partition, self.found, self.wanted = topic, partition, found, wanted

    def __str__(self) -> str:
        return (
            f"{self.topic}[{self.partition}] ends at {self.found}, before offset {self.wanted}, up to which it was to be "
            "read: records were lost (unclean leader election?). Start anew, by the ends that there are now"
        )


class HeaderMissingError(OrderError):
    """Recent records lack the header that the strategy is to compare: their producers have to write it first."""

    def __init__(self, topic: str, header: str, lacking: int, sampled: int) -> None:
        super().__init__(topic, header, lacking, sampled)
        self.topic, self.header, self.lacking, self.sampled = topic, header, lacking, sampled

    def __str__(self) -> str:
        return (
            f"{self.lacking} of the last {self.sampled} records of {self.topic!r} have no header {self.header!r} of 8 bytes: "
            "let every producer write it first, or give --force if these records may lose to all others"
        )
