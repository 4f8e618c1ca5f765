"""Checks of one managed topic: settings that lose records, writers and groups beside keyorder, changes and gates that stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ...partitioner.adoption import counts_of_stock_writers
from ...partitioner.errors import KeyorderError, NotAuthorizedError
from ...partitioner.gates.waits import Reason
from ...partitioner.timeline import Timeline
from ..compaction_settings import check_compaction
from ..group_gates import GroupOffsets
from ..groups.group_admin import GroupAdmin
from ..log_offsets import LogOffsets
from ..metadata import described, identify
from ..operations.adopting import ACCEPTED
from ..operations.key_sample import sample_keys
from ..operations.notices import stock_right
from ..operations.stray_scan import scan
from .control import topic_config
from .findings import Finding, Status


def check_topic(
    config: Mapping[str, Any], admin: AdminClient, timeline: Timeline, records: int, timeout: float
) -> Iterator[Finding]:
    """Everything about one topic. A check that fails in itself becomes a finding of its own."""
    topic, servers = timeline.topic, str(config.get("bootstrap.servers"))
    try:
        found = identify(admin, topic, servers, timeout)
        timeline.check_identity(found.topic_id, found.cluster_id)
    except KeyorderError as error:
        yield Finding("timeline", topic, Status.FAIL, str(error))
        return
    yield from _timeline(timeline, found.partitions)
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        lambda: _settings(admin, timeline, servers, timeout),
        lambda: _strays(config, timeline, found.partitions, records, timeout),
        lambda: _above_cuts(config, timeline, timeout),
        lambda: _groups(config, admin, timeline, timeout),
    )
    for check in checks:
        try:
            yield from check()
        except NotAuthorizedError as error:
            yield Finding("rights", topic, Status.UNKNOWN, str(error))
        except (KeyorderError, KafkaException) as error:
            yield Finding("check", topic, Status.FAIL, str(error))


def _timeline(timeline: Timeline, physical: int) -> Iterator[Finding]:
    topic, change = timeline.topic, timeline.change
    if physical > max(timeline.highest_count, change.count if change is not None else 0):
        yield Finding(
            "layout", topic, Status.WARN,
            f"it has {physical} partitions, its layout knows {timeline.highest_count}: somebody else added some, and stock "
            "producers place keys by the higher count",
            f"keyorder topics expand --topic {topic} --partitions {physical}",
        )  # fmt: skip
    else:
        layout = timeline.layout
        text = (
            f"{layout.count} of {physical} partitions active, initial {layout.initial}, epoch {timeline.newest.number}"
        )
        yield Finding("layout", topic, Status.OK, text)
    yield _stock_producers(timeline, physical)
    accepted = timeline.settings.get(ACCEPTED)
    if accepted is not None:
        yield Finding(
            "adoption", topic, Status.WARN,
            f"it was adopted with records that lie elsewhere than its hash {timeline.hash} puts them: {accepted}",
            "keys of such records may have been read out of order; read to the end once by every group, they do no more harm",
        )  # fmt: skip
    if change is not None:
        yield Finding(
            "change", topic, Status.WARN,
            f"a change to {change.count} partitions is open (attempt {change.attempt}, {change.phase.value})",
            "if nobody runs it, give the same `topics expand` or `shrink` again",
        )  # fmt: skip
    if not timeline.ordered:
        yield Finding(
            "ordered delivery", topic, Status.WARN, "enable.ordered.delivery is false: no gate holds anything"
        )


def _stock_producers(timeline: Timeline, physical: int) -> Finding:
    """Whether a stock producer may write beside keyorder. What it has written is found as strays and foreign writers."""
    layout = timeline.layout
    if stock_right(layout, physical):
        text = f"stock producers that place keys by {layout.hash} may write it: at {physical} partitions they agree with keyorder"
    else:
        right = ", ".join(map(str, counts_of_stock_writers(layout.initial, 4 * layout.count)))
        text = (
            f"stock producers may not write it: with {layout.count} of {physical} partitions in use they place keys elsewhere; "
            f"those that hash by {layout.hash} agree where it has {right}, … partitions and uses all"
        )
    return Finding("stock producers", timeline.topic, Status.OK, text)


def _settings(admin: AdminClient, timeline: Timeline, servers: str, timeout: float) -> Iterator[Finding]:
    topic = timeline.topic
    config = topic_config(admin, topic, timeout)
    if config is None:
        yield Finding(
            "settings", topic, Status.UNKNOWN, "this user may not describe its settings", "grant DescribeConfigs"
        )
        return
    replicas = min(len(p.replicas) for p in described(admin, topic, servers, timeout).partitions)
    isr = int(config.get("min.insync.replicas", "1"))
    found: list[Finding] = []
    if config.get("unclean.leader.election.enable") == "true":
        found.append(
            Finding(
                "settings", topic, Status.FAIL, "unclean.leader.election.enable=true: acknowledged records may vanish",
                "set it to false",
            )
        )  # fmt: skip
    if replicas > 1 and isr < 2:
        found.append(
            Finding(
                "settings", topic, Status.WARN,
                f"min.insync.replicas={isr} of {replicas}: a record may be acknowledged by one broker alone", "set it to 2",
            )
        )  # fmt: skip
    if isr >= replicas > 1:
        found.append(
            Finding(
                "settings", topic, Status.WARN,
                f"min.insync.replicas={isr} of {replicas}: with one broker away nothing can be written",
                "keep it below the replication factor",
            )
        )  # fmt: skip
    for problem in check_compaction(config, timeline.settings):
        status = Status.FAIL if problem.fatal else Status.WARN
        found.append(Finding("compaction", topic, status, f"{problem.setting}: {problem.problem}", problem.fix))
    if not found:
        text = f"cleanup.policy={config.get('cleanup.policy')}, {replicas} replicas, min.insync.replicas={isr}"
        found.append(Finding("settings", topic, Status.OK, text))
    yield from found


def _above_cuts(config: Mapping[str, Any], timeline: Timeline, timeout: float) -> Iterator[Finding]:
    """Records above the cut of a partition that nobody reads any more, with keys or without."""
    places = {(timeline.topic, d.partition): d.upto for d in timeline.drains if not d.mode.readable}
    if not places:
        return
    with closing(LogOffsets(config)) as offsets:
        ends = offsets.high_watermarks(places, timeout)
    for (topic, partition), upto in places.items():
        if ends[topic, partition] > upto:
            yield Finding(
                "retired", f"{topic}[{partition}]", Status.WARN,
                f"its mode is None, and {ends[topic, partition] - upto} offsets lie above its cut {upto}: somebody still writes "
                "there, and no consumer is given these records before a growth uses the partition again",
                "find the producer that is no OrderedProducer, or names partitions itself, and send its records again",
            )  # fmt: skip


def _strays(
    config: Mapping[str, Any], timeline: Timeline, physical: int, records: int, timeout: float
) -> Iterator[Finding]:
    topic = timeline.topic
    counted = scan(config, timeline, physical, records, timeout)
    looked = sum(each.records for each in counted)
    bad = [each for each in counted if each.strays]
    if not bad:
        yield Finding("misplaced records", topic, Status.OK, f"none among the newest {looked} records")
    for each in counted:
        if each.foreign:
            right = stock_right(timeline.layout, physical)
            yield Finding(
                "records of stock producers", f"{topic}[{each.partition}]", Status.OK if right else Status.WARN,
                f"{each.foreign} of its newest {each.records} records have moved keys and lack the header that an "
                f"OrderedProducer adds, the last at offset {each.last_foreign}",
                "a stock producer writes here: stop it before the next change"
                if right
                else "a stock producer writes here: make it an OrderedProducer, or its next record may be misplaced",
            )  # fmt: skip
    for each in bad:
        yield Finding(
            "misplaced records", f"{topic}[{each.partition}]", Status.WARN,
            f"{each.strays} of its newest {each.records} records are not where their keys live, the last at offset {each.last}",
            "a stock producer, or one whose lease ran out, writes here: make it an OrderedProducer, or see keyorder.strays",
        )  # fmt: skip
    if bad and len(timeline.epochs) == 1 and timeline.folded is None:
        # Before the first change a stock producer of the topic's hash is right, so these are of another one.
        sample = sample_keys(config, topic, physical, timeout=timeout)
        yield Finding(
            "stock producers", topic, Status.WARN,
            f"its hash is {timeline.hash}, and producers of another one write it. What stock producers of each hash would have "
            f"put where it lies, of {sample}",
        )  # fmt: skip


def _groups(config: Mapping[str, Any], admin: AdminClient, timeline: Timeline, timeout: float) -> Iterator[Finding]:
    topic = timeline.topic
    groups = GroupOffsets(config, admin, timeout).of_topic(topic)
    seen = GroupAdmin(config)
    for group, commits in sorted(groups.items()):
        about = f"group {group} on {topic}"
        foreign = sorted(p for p, commit in commits.items() if commit.epoch is None)
        if foreign:
            yield Finding(
                "stock consumers", about, Status.WARN,
                f"partitions {', '.join(map(str, foreign))} were committed by stock consumers: they wait at no gate, so moved "
                "keys may reach this group out of order",
                "make all members OrderedConsumers; they take the offsets over",
            )  # fmt: skip
            continue
        closed = seen.closed_gates(topic, group)
        stuck = [gate for gate in closed if gate.reason is not Reason.READING]
        for gate in stuck:
            yield Finding(
                "gates", about, Status.WARN, f"partition {gate.partition} is closed ({gate.reason.value}): {gate.detail}",
                f"keyorder gates list --group {group}",
            )  # fmt: skip
        # From outside a member that hangs looks like one that reads: until its session ends only its commits tell.
        for gate in [each for each in closed if each not in stuck]:
            yield Finding(
                "gates", about, Status.WARN, f"partition {gate.partition} is closed: {gate.detail}",
                f"if that offset does not move, look at its owner ({gate.owner}); keyorder gates list --group {group}",
            )  # fmt: skip
        if not closed:
            yield Finding("groups", about, Status.OK, "its commits are keyorder's, and no gate of it is closed")
