"""`keyorder verify`: is every record of a topic where the timeline says, and did recorded clients get them in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Message

from ...partitioner.errors import ConfigError, PeerError
from ...partitioner.routing import HINT_HEADER, Routing, parse_hint
from ...partitioner.timeline import Timeline
from .. import clock
from ..admin import TopicAdmin
from ..log_offsets import LogOffsets
from ..topology.log_scan import LogScan
from ..verify.history import History, load
from ..verify.topology import Epoch, Topology
from ..verify.verdict import Verdict, judge
from .connecting import Connection, connection_options
from .main import FAILED
from .output import echo_wrapped, emit_json, emit_table, output_option, shown_bytes

_EXAMPLES = 10


class VerifyLateError(PeerError):
    """A topic could not be read to its end in time: nothing is known of its order."""

    retriable = True

    def __init__(self, topic: str, timeout: float) -> None:
        super().__init__(topic, timeout)
        self.topic, self.timeout = topic, timeout

    def __str__(self) -> str:
        return f"topic {self.topic} was not read to its end within {self.timeout:g} s: give it more time by --timeout"


@dataclass
class PartitionCheck:
    """What one partition's log holds. strays: keyed records whose key lived elsewhere at that offset."""

    partition: int
    records: int = 0
    keyed: int = 0
    moved: int = 0
    move_tombstones: int = 0
    strays: int = 0


class LogCheck:
    """Judges records of one topic one by one, and keeps them for a history where one is to be judged."""

    def __init__(self, timeline: Timeline, partitions: int, keep: bool) -> None:
        self._timeline, self._routing, self._keep = timeline, Routing(timeline), keep
        self.partitions = [PartitionCheck(p) for p in range(partitions)]
        self.examples: list[str] = []
        self.rows: list[tuple[int, int, bytes | None, bytes | None, int | None]] = []

    def take(self, message: Message) -> None:
        """One committed record."""
        partition, offset, key = message.partition() or 0, message.offset() or 0, message.key()
        data = key.encode() if isinstance(key, str) else key
        value = message.value()
        raw = value.encode() if isinstance(value, str) else value
        headers: Any = message.headers() or []
        hint = next((parse_hint(header) for name, header in headers if name == HINT_HEADER), None)
        found = self.partitions[partition]
        found.records += 1
        tombstone = data is not None and raw is None and self._routing.is_move_tombstone(data, partition, hint)
        if data is not None:
            found.keyed += 1
            found.moved += hint is not None
            if tombstone:
                found.move_tombstones += 1
            elif self._routing.is_stray(data, partition, offset):
                found.strays += 1
                if len(self.examples) < _EXAMPLES:
                    home = self._routing.of(data).home
                    self.examples.append(f"{partition}@{offset}: key {shown_bytes(data[:40])} lives in {home}")
        if self._keep and not tombstone:
            self.rows.append((partition, offset, data, raw, hint))


@click.command(short_help="Check that every record is in its key's partition.")
@click.option("--topic", required=True, help="A managed topic.")
@click.argument("history", nargs=-1, type=click.Path(exists=True, path_type=Path))
@output_option
@connection_options(timeout=600)
def verify(connection: Connection, topic: str, history: tuple[Path, ...], output: str) -> None:
    """Read a topic to its end and check that every record with a key is in its key's partition.

    HISTORY: files that `keyorder.connector.verify.recorder.Recorder` wrote in the topic's producers and consumers, or
    folders of such files. With them it also finds records that were lost, reordered or delivered twice. The producers
    must be done, and the consumers must have read everything. Exit code 1 when something is wrong.
    """
    deadline = clock.now() + connection.timeout
    recorded = _recorded(history) if history else None
    connection.reach()
    admin = TopicAdmin(connection.config)
    timeline, physical = admin.timeline(topic), admin.describe(topic).partitions
    check = LogCheck(timeline, physical, keep=recorded is not None)
    starts = _scan(connection, topic, physical, check, deadline)
    verdict = None if recorded is None else _judged(recorded, check, timeline, starts)
    strays = sum(found.strays for found in check.partitions)
    valid = not strays and (verdict is None or verdict.valid)
    document: dict[str, Any] = {
        "topic": topic,
        "valid": valid,
        "strays": strays,
        "examples": check.examples,
        "partitions": [asdict(found) for found in check.partitions],
        "history": None if verdict is None else verdict.as_dict(),
    }
    if output == "json":
        emit_json(document)
    else:
        columns = ("partition", "records", "keyed", "of moved keys", "move tombstones", "misplaced")
        emit_table(columns, [tuple(asdict(found).values()) for found in check.partitions])
        for example in check.examples:
            echo_wrapped(f"misplaced record at {example}")
        echo_wrapped(
            "every record with a key is in its key's partition" if not strays else f"{strays} misplaced records"
        )
        if verdict is not None:
            echo_wrapped(verdict.summary())
    if not valid:
        judged = "" if verdict is None else f", the history is {'valid' if verdict.valid else 'invalid'}"
        echo_wrapped(f"Error: topic {topic} is not in order: {strays} misplaced records{judged}", err=True)
        click.get_current_context().exit(FAILED)


def _scan(connection: Connection, topic: str, partitions: int, check: LogCheck, deadline: float) -> Mapping[int, int]:
    """The offsets where each partition's log begins. Raises VerifyLateError."""
    from rich.console import Console
    from rich.progress import Progress

    offsets = LogOffsets(connection.config)
    places = [(topic, p) for p in range(partitions)]
    starts = {p: offset for (_, p), offset in offsets.earliest(places).items()}
    ends = {p: offset for (_, p), offset in offsets.stable_ends(places).items()}
    offsets.close()
    scan = LogScan(connection.config, topic)
    try:
        scan.start(starts)
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(f"reading {topic}", total=sum(ends.values()) - sum(starts.values()))

            def each(message: Message) -> None:
                check.take(message)
                progress.advance(task)

            if not scan.read(ends, each, deadline):
                raise VerifyLateError(topic, connection.timeout)
    finally:
        scan.close()
    return starts


def _recorded(history: tuple[Path, ...]) -> History:
    """What the files say. Raises ConfigError for one that no recorder wrote, or that is damaged."""
    files = [file for path in history for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    begun: list[Path] = []

    def each() -> Iterator[Path]:
        for file in files:
            begun.append(file)
            yield file

    try:
        return load(each())
    except (ValueError, OverflowError, RecursionError, AssertionError) as error:  # the last of an opening by nobody
        found = str(error) if isinstance(error, ValueError) else f"{begun[-1]}: not an event ({type(error).__name__})"
        raise ConfigError("HISTORY", found, "give files that a Recorder has written, unchanged") from error


def _judged(recorded: History, check: LogCheck, timeline: Timeline, starts: Mapping[int, int]) -> Verdict:
    epochs = [Epoch(e.number, e.count, dict(e.ends), dict(e.begins)) for e in timeline.epochs]
    topology = Topology(timeline.initial, epochs, timeline.hash)
    return judge(recorded, check.rows, topology, log_starts=starts)
