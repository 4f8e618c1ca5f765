"""What a client shows of itself at one moment. Made of what it knows already: nothing is asked, and nobody is waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from .durations import Durations
from .extras import needs_extra


@dataclass(frozen=True, slots=True)
class ProducerFigures:
    """Of an OrderedProducer; the maps are by topic.

    held, held_bytes: records that wait for a change, and their size. changing: whether one is prepared now. epochs: the
    epoch that it writes under. lease_left: seconds for which records may still be handed over; 0 without a lease.
    hold_times: of records that were held and have gone out.
    """

    writer: str
    held: Mapping[str, int]
    held_bytes: Mapping[str, int]
    changing: Mapping[str, bool]
    epochs: Mapping[str, int]
    lease_left: float
    hold_times: Durations


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """Of an OrderedConsumer; the maps are by topic, of those that it reads.

    gates: partitions that wait at a closed gate. gate_ages: seconds since the one that has waited longest. held: records
    in memory that wait. epochs: the epoch that it reads under. view_ages: seconds since the last look at the control topic
    began. misplaced: records found where their keys did not live. commits: offsets that the broker has acknowledged.
    gate_times: of gates that were closed and have opened: the hand-over as this member saw it.
    """

    group: str
    gates: Mapping[str, int]
    gate_ages: Mapping[str, float]
    held: Mapping[str, int]
    epochs: Mapping[str, int]
    view_ages: Mapping[str, float]
    misplaced: Mapping[str, int]
    commits: int
    gate_times: Durations


class Client(Protocol):
    """An OrderedProducer or an OrderedConsumer."""

    def figures(self) -> ProducerFigures | ConsumerFigures:
        """What it shows of itself now."""


def shown(client: Client, at: tuple[str, int] | None) -> Callable[[], object]:
    """Show the client's figures over HTTP at (host, port), where `keyorder.metrics.port` names one. Returns what ends that.

    Raises ConfigError when the address cannot be had, ModuleNotFoundError without the extra `keyorder[metrics]`.
    """
    if at is None:
        return _nothing
    with needs_extra("metrics"):
        from .monitoring.client_serving import show
    return show(client, *at)


def _nothing() -> None:
    """Nothing is shown."""
