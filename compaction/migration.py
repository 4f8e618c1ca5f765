"""Changing a topic's strategy in the KIP's order: producers write the header first; on the way back the strategy goes first.

Source: KIP-280, "Compatibility, Deprecation, and Migration Plan".
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ..connector import clock
from ..connector.admin import TopicAdmin
from ..connector.compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG, SWITCHED_CONFIG, Finding, check_compaction
from ..connector.config import connection_of
from ..connector.control.timeline_edit import edit
from ..connector.kafka_errors import ends_partition, translate
from ..connector.log_offsets import LogOffsets
from ..connector.messages import Headers, offset_of, place_of
from ..connector.metadata import topic_config
from ..connector.refusals import ClusterAdmin
from ..partitioner.errors import BrokerUnreachableError, NotAuthorizedError
from ..partitioner.routing import HINT_HEADER
from ..partitioner.timeline import Timeline
from .errors import HeaderMissingError
from .strategy import Strategy, StrategyKind, header_version
from .versions import positions_text

_LOGGER = logging.getLogger("keyorder.compaction")
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class StrategyChange:
    """A change of a topic's strategy, made or planned.

    sampled, lacking: recent keyed records looked at, and those of them without a version in the header concerned.
    switched: {partition: offset} where each ended at the change. What was compacted below stays as it is: a record that
    the cleaner dropped there under the old strategy cannot come back. findings: settings that work against the new one.
    """

    topic: str
    before: Strategy
    after: Strategy
    changed: bool
    sampled: int
    lacking: int
    switched: Mapping[int, int]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def set_strategy(
    config: Mapping[str, Any],
    topic: str,
    strategy: Strategy,
    force: bool = False,
    sample: int = 1000,
    dry_run: bool = False,
) -> StrategyChange:
    """Change the strategy of a managed topic, or say what would happen.

    sample: how many of the newest records are looked at, over all partitions.
    force: also while recent records lack the header.

    Raises HeaderMissingError, UnmanagedTopicError, ChangeOpenError, ControllerFencedError, and Kafka's own.
    """
    with TopicAdmin(config) as admin:
        timeline = admin.timeline(topic)
    before = Strategy.of(timeline.settings)
    servers = str(config.get("bootstrap.servers"))
    findings = _findings(config, topic, strategy, servers)
    notes: list[str] = []
    sampled = lacking = 0
    # To a header: do all producers write it? Away from one: have some stopped before the strategy did?
    concerned = strategy if strategy.kind is StrategyKind.HEADER else before
    if before != strategy and concerned.kind is StrategyKind.HEADER:
        sampled, lacking = lacking_header(config, topic, timeline.highest_count, concerned.header, sample)
        if strategy.kind is StrategyKind.HEADER:
            if lacking and not force:
                raise HeaderMissingError(topic, strategy.header, lacking, sampled)
            if not sampled:
                notes.append("the topic holds no keyed record: whether producers write the header cannot be seen")
        elif lacking:
            notes.append(
                f"{lacking} of the last {sampled} records lack the header {concerned.header!r} already: producers stopped "
                "writing it before the strategy was changed, and these records have lost to every one with the header"
            )
        else:
            notes.append(f"producers may stop writing the header {concerned.header!r} now, not before")
    if before == strategy:
        return StrategyChange(topic, before, strategy, False, 0, 0, _switched(timeline), findings, ())
    notes.append(
        f"what the log cleaner dropped until now, under the strategy {before.kind.value}, cannot come back: keys whose highest "
        "version went that way keep a lower one"
    )
    ends = _ends(config, topic, timeline.highest_count)
    if not dry_run:
        edited = edit(config, topic, lambda found: _with(found, strategy, ends))
        ends = _switched(edited)
    return StrategyChange(topic, before, strategy, True, sampled, lacking, ends, findings, tuple(notes))


def lacking_header(config: Mapping[str, Any], topic: str, partitions: int, header: str, sample: int) -> tuple[int, int]:
    """(keyed records among the newest `sample`, those of them without a version in `header`).

    Move tombstones, which carry keyorder's own header alone, are no producer's and do not count.
    """
    offsets = LogOffsets(config)
    places = [(topic, p) for p in range(partitions)]
    try:
        starts, ends = offsets.earliest(places), offsets.stable_ends(places)
    finally:
        offsets.close()
    share = max(1, sample // max(1, partitions))
    begin = {p: max(starts[t, p], ends[t, p] - share) for t, p in places}
    open_ = {p for t, p in places if begin[p] < ends[t, p]}
    servers = str(config.get("bootstrap.servers"))
    consumer = Consumer(
        {
            **connection_of(config),
            "group.id": "keyorder-sample",  # never joined, never committed to
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    sampled = lacking = 0
    deadline = clock.now() + _PATIENCE
    try:
        consumer.assign([TopicPartition(topic, p, begin[p]) for p in open_])
        while open_:
            if clock.now() >= deadline:
                raise BrokerUnreachableError(servers, f"recent records of {topic} could not be read")
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if ends_partition(error, f"topic {topic}", servers):
                    open_.discard(place_of(message)[1])
                continue
            headers: Headers = message.headers() or []  # type: ignore[assignment]  # values come as bytes
            if message.key() is not None and not _is_move_tombstone(message.value(), headers):
                sampled += 1
                lacking += header_version(headers, header) is None
            if offset_of(message) + 1 >= ends[place_of(message)]:
                open_.discard(place_of(message)[1])
    except KafkaException as raised:
        raise translate(raised.args[0], "read", f"topic {topic}", servers) from raised
    finally:
        consumer.close()
    return sampled, lacking


def _is_move_tombstone(value: bytes | str | None, headers: Headers) -> bool:
    return value is None and [name for name, _ in headers] == [HINT_HEADER]


def _findings(config: Mapping[str, Any], topic: str, strategy: Strategy, servers: str) -> tuple[Finding, ...]:
    try:
        found = topic_config(ClusterAdmin(config), topic, servers)
    except NotAuthorizedError as refused:
        _LOGGER.warning("the settings of topic %s were not checked: %s", topic, refused)
        return ()
    return tuple(check_compaction(found, {STRATEGY_CONFIG: strategy.kind.value, HEADER_CONFIG: strategy.header}))


def _ends(config: Mapping[str, Any], topic: str, partitions: int) -> dict[int, int]:
    offsets = LogOffsets(config)
    try:
        return {p: end for (_, p), end in offsets.high_watermarks([(topic, p) for p in range(partitions)]).items()}
    finally:
        offsets.close()


def _with(timeline: Timeline, strategy: Strategy, ends: Mapping[int, int]) -> Timeline:
    kept = {k: v for k, v in timeline.settings.items() if k not in (STRATEGY_CONFIG, HEADER_CONFIG, SWITCHED_CONFIG)}
    ours = {STRATEGY_CONFIG: strategy.kind.value, SWITCHED_CONFIG: json.dumps(positions_text(ends))}
    if strategy.header:
        ours[HEADER_CONFIG] = strategy.header
    return replace(timeline, settings={**kept, **ours})


def _switched(timeline: Timeline) -> dict[int, int]:
    """Where the partitions ended when the strategy was last changed; empty if it never was."""
    text = timeline.settings.get(SWITCHED_CONFIG)
    return {} if text is None else {int(p): int(offset) for p, offset in json.loads(text).items()}
