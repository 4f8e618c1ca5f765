"""What can go wrong with a local Kafka, on top of the one error tree."""

from __future__ import annotations

from pathlib import Path

from ...partitioner.errors import PeerError, UsageError


class JavaNotFoundError(UsageError):
    """No Java runtime of the needed version is on this machine."""


class UnknownKafkaVersionError(UsageError):
    """No lock file says which jars this Kafka version consists of."""


class MissingExtraError(UsageError):
    """An optional dependency is not installed; the text names the extra to install."""


class ClusterStateError(UsageError):
    """The data folder holds another cluster than the one asked for."""


class AlreadyRunningError(ClusterStateError):
    """The cluster of that data folder runs, started by this or by another process."""


class DataFolderError(UsageError):
    """The data folder cannot be made, read or written."""

    def __init__(self, folder: Path, problem: OSError) -> None:
        super().__init__(folder, problem)
        self.folder, self.problem = folder, problem

    def __str__(self) -> str:
        why = self.problem.strerror or self.problem
        return f"{self.folder} cannot be used as a data folder ({why}): name another one by --data-dir (data_dir)"


class WipeFailedError(UsageError):
    """Something that a local cluster wrote cannot be deleted; what is left can be wiped again."""


class DownloadError(PeerError):
    """A jar could not be fetched; the same call resumes where this one left."""

    retriable = True


class ChecksumError(PeerError):
    """A fetched jar is not the one that was locked; it was not kept."""

    retriable = True


class BrokerFailedError(PeerError):
    """A broker exited early or did not become ready; the text holds the end of its log."""
