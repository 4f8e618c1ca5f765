"""The root of keyorder's errors and its three branches: whose fault it is."""

from __future__ import annotations


class KeyorderError(Exception):
    """The root of every error that keyorder raises by itself."""

    retriable: bool = False


class UsageError(KeyorderError):
    """The caller asked for something that cannot be: mend the call or the setting that the text names."""


class PeerError(KeyorderError):
    """Kafka, the network or another process failed; the call itself was right."""


class OrderError(KeyorderError):
    """Order or durability cannot be proven: keyorder stops here and never guesses."""
