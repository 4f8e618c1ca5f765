"""Offsets of a query as Spark keeps them: `{"topic":{"0":123}}`, the shape of its own Kafka source. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...partitioner.errors import ConfigError
from ...partitioner.numbers import LARGEST, number_of
from ..errors import CheckpointError

Place = tuple[str, int]
_LAST_PARTITION = 2**31 - 1
LATEST, EARLIEST = -1, -2
# A colon is in no topic's name, so this can never be one.
GATES_KEY = "keyorder:gates"


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Records of one partition: `start` inclusive, `end` exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in it; records may be fewer (markers, compaction)."""
        return max(0, self.end - self.start)


def to_dict(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """The dict that Spark writes to the checkpoint. Sorted, so that equal offsets are equal texts."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_dict(saved: Mapping[str, Mapping[str, int]]) -> dict[Place, int]:
    """What `to_dict` made, also after a round trip through a checkpoint. Raises CheckpointError for anything else."""
    return {(topic, number): offset for topic, _, number, offset in _entries(saved)}


def _entries(saved: Any) -> Iterator[tuple[str, str, int, int]]:
    """(topic, the partition as it is written, the partition, the offset) of what a checkpoint holds. Raises CheckpointError."""
    if not isinstance(saved, Mapping):
        raise CheckpointError("they are no JSON object")
    for topic, parts in saved.items():
        if topic == GATES_KEY:
            continue
        if not isinstance(parts, Mapping):
            raise CheckpointError(f"those of {topic!r} are no JSON object")
        for partition, offset in parts.items():
            number = number_of(partition)
            if number is None or number > _LAST_PARTITION:
                raise CheckpointError(f"{topic!r} has no partition {partition[:20]!r}")
            # -1 and -2 mean an end and a beginning that a later look would find elsewhere: no checkpoint has them.
            if type(offset) is not int or not 0 <= offset <= LARGEST:
                raise CheckpointError(f"partition {partition} of {topic!r} has none that a broker can have")
            yield topic, partition, number, offset


def with_start(saved: Mapping[str, Mapping[str, int]], start: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """The end of a query's first batch, which says where that batch starts, too: `{"topic":{"00":100,"0":150}}`.

    A partition with a zero in front is a start. It stands before the end of the same partition, and a reader that knows
    nothing of it, such as Spark's own source, takes the later entry: the checkpoint stays one of both formats.
    """
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(start.items()):
        found.setdefault(topic, {})[f"0{partition}"] = offset
    for topic, parts in saved.items():
        found.setdefault(topic, {}).update(parts)
    return found


def start_of(saved: Mapping[str, Mapping[str, int]]) -> dict[Place, int]:
    """What `with_start` put in; nothing for the end of any later batch. Raises CheckpointError."""
    return {
        (topic, number): offset
        for topic, partition, number, offset in _entries(saved)
        if len(partition) > 1 and partition.startswith("0")
    }


def parse_offsets(option: str, text: str) -> dict[Place, int]:
    """`{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}`. Raises ConfigError."""
    found, _ = parse_offsets_and_words(option, text, {})
    return found


def parse_offsets_and_words(
    option: str, text: str, words: Mapping[str, int]
) -> tuple[dict[Place, int], dict[str, int]]:
    """As `parse_offsets`, and what stands for all partitions of a topic, as newer versions of Spark take it:
    `{"topicA":"earliest"}`. words: what may stand there. Raises ConfigError.
    """
    example = 'expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    parsed = _json(option, text, example)
    found: dict[Place, int] = {}
    whole: dict[str, int] = {}
    for topic, parts in parsed.items():
        if isinstance(parts, str) and parts.strip().lower() in words:
            whole[topic] = words[parts.strip().lower()]
            continue
        if not isinstance(parts, dict):
            raise ConfigError(option, f"got {text}", example)
        for partition, offset in parts.items():
            number, value = number_of(partition), _offset(offset)
            if number is None or number > _LAST_PARTITION or value is None:
                raise ConfigError(option, f"got {text}", example)
            found[topic, number] = value
    return found, whole


def parse_partitions(option: str, text: str) -> tuple[Place, ...]:
    """`{"topicA":[0,1],"topicB":[0,1]}`. Raises ConfigError."""
    example = 'expected e.g. {"topicA":[0,1],"topicB":[0,1]}'
    parsed = _json(option, text, example)
    for parts in parsed.values():
        if not isinstance(parts, list) or not all(type(p) is int and 0 <= p <= _LAST_PARTITION for p in parts):
            raise ConfigError(option, f"got {text}", example)
    return tuple(sorted((topic, p) for topic, parts in parsed.items() for p in parts))


def _offset(value: Any) -> int | None:
    """An offset, -1 for the end or -2 for the beginning, also as a text; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        number = {"-1": -1, "-2": -2}.get(text, number_of(text))
    else:
        number = value if type(value) is int else None  # a bool is none
    return number if number is not None and -2 <= number <= LARGEST else None


def _json(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigError(option, f"got {text}", example)
    return parsed
