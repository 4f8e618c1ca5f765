"""One error tree. The class says whose fault it is; `retriable` says whether the same call may succeed later."""

from __future__ import annotations


class KeyorderError(Exception):
    """The root of every error that keyorder raises by itself."""

    retriable: bool = False


class UsageError(KeyorderError):
    """The caller asked for something that cannot be: mend the call or the setting it names."""


class PeerError(KeyorderError):
    """Kafka, the network or another process: the call was right."""


class OrderError(KeyorderError):
    """Order or durability cannot be proven: keyorder stops here and never guesses."""
