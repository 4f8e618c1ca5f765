"""What can go wrong with a demonstration, on top of the one error tree."""

from __future__ import annotations

from ...partitioner.errors import PeerError


class WorkerFailedError(PeerError):
    """A writer, consumer or judge process ended early; the text holds the end of what it said."""


class DemoStalledError(PeerError):
    """Something that takes seconds did not happen in a minute."""

    retriable = True
