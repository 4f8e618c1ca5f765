"""Numbers that Java's clients take and the client library does not, brought to the nearest that it takes.

Only settings of pace and of buffers are here: another number of them changes no record and no order. Java knows -1 for "as
the system has it" or "never", where the library has 0. Source: the ranges in librdkafka's CONFIGURATION.md, by its names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_INT = 2**31 - 1
_PACE = (1, 300_000)
RANGES: Mapping[str, tuple[int, int]] = {
    "batch.size": (1, _INT),
    "connections.max.idle.ms": (0, _INT),
    "fetch.max.bytes": (1000, 2_147_483_135),
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.wait.max.ms": (0, 300_000),
    "linger.ms": (0, 900_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "message.max.bytes": (1000, 1_000_000_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "request.timeout.ms": (1, 900_000),
    "retries": (0, _INT),
    "retry.backoff.max.ms": _PACE,
    "retry.backoff.ms": _PACE,
    "socket.connection.setup.timeout.ms": (1000, _INT),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.send.buffer.bytes": (0, 100_000_000),
}
_BACKOFF, _MOST_BACKOFF = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
_BACKOFF_DEFAULTS = {_BACKOFF: 100, _MOST_BACKOFF: 10_000}
_MESSAGE_BYTES = 1_000_000  # message.max.bytes by default


def nearest(name: str, value: Any) -> Any:
    """`value`, or the nearest to it that the library takes for this setting. What is no whole number comes back as it is."""
    number = _number(value)
    if name not in RANGES or number is None:
        return value
    least, most = RANGES[name]
    return value if least <= number <= most else str(min(max(number, least), most))


def fitted(config: Mapping[str, Any], consumer: bool) -> dict[str, Any]:
    """Settings of which each is taken, such that the library takes them together, as Java's clients do.

    A backoff of more than its largest is that one; a fetch may be smaller than the largest message, which Java's consumers never
    compare. Nothing is changed of what fits.
    """
    fit: dict[str, Any] = dict(config)
    backoff = {name: _number(fit.get(name, default)) for name, default in _BACKOFF_DEFAULTS.items()}
    first, most = backoff[_BACKOFF], backoff[_MOST_BACKOFF]
    if first is not None and most is not None and first > most:
        # The one that was given by the application stays; of two, the largest is what Java keeps below.
        fit[_BACKOFF if _MOST_BACKOFF in fit else _MOST_BACKOFF] = str(most if _MOST_BACKOFF in fit else first)
    fetch = _number(fit.get("fetch.max.bytes"))
    if consumer and fetch is not None and fetch < _MESSAGE_BYTES and "message.max.bytes" not in fit:
        fit["message.max.bytes"] = str(fetch)
    return fit


def _number(value: Any) -> int | None:
    try:
        return int(str(value).strip())
    except ValueError:
        return None
