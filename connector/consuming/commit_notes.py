"""Commits as the application sees them: with the metadata that it gave, and without keyorder's own in front of it."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import TopicPartition

from ...partitioner.gates.starts import epoch_of, note_of
from ..messages import with_words


def shown(places: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The same places, offsets, with the application's metadata (one with an error says nothing of it)."""
    return [_shown(place) for place in places]


def _shown(place: TopicPartition) -> TopicPartition:
    if place.error is not None or epoch_of(place.metadata) is None:
        return place
    note = note_of(place.metadata)
    return with_words(place.topic, place.partition, place.offset, note or None, place.leader_epoch)
