"""Parked keys: after a failed record every later record of its key follows it to the dead letter queue, until released.

A compacted topic lists them, so that the state outlives tasks and follows keys that move: an entry is acknowledged
before the offset of its record is committed, and a task reads the list to its end before the first record of a
partition, and again when keys have come to one.

    park:{connector}:{topic}:{key}      {"id", "partition", "dlq_partition", "dlq_offset", "since_ms", "reason"} or null
    release:{connector}:{topic}:{key}   {"id", "mode"} or null

A release names the `id` of the entry that it is for: a late or repeated one fits no entry and does nothing.
"""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from .... import clock
from ....config import connection_of
from ....kafka_errors import ends_partition
from ....log_offsets import LogOffsets
from ....messages import offset_of, place_of
from ...api.errors import BadRequestError, NotFoundError, ParkedRecordsGoneError
from ..kafka_log import KafkaLog
from .dead_letters import PREFIX


class ReleaseMode(Enum):
    """What becomes of the parked records.

    REPLAY: all are delivered, in order, before the key's next record. SKIP: all but the first, the one that failed.
    DISCARD: none; the key goes on with its next record.
    """

    REPLAY = "replay"
    SKIP = "skip"
    DISCARD = "discard"


@dataclass(frozen=True)
class Parked:
    """One parked key. partition: where its failed record lay. dlq_*: where the first of its parked records lies."""

    connector: str
    topic: str
    key: bytes
    id: str
    partition: int
    dlq_partition: int
    dlq_offset: int
    since_ms: int
    reason: str

    def json(self) -> dict[str, Any]:
        """For the REST. The key as text where it is UTF-8, else in base64 with "encoding" beside it."""
        shown: dict[str, Any] = {"topic": self.topic}
        try:
            shown["key"] = self.key.decode()
        except UnicodeDecodeError:
            shown |= {"key": base64.b64encode(self.key).decode(), "encoding": "base64"}
        return {**shown, "id": self.id, "partition": self.partition, "since_ms": self.since_ms, "reason": self.reason}


def _name(kind: str, connector: str, topic: str, key: bytes) -> str:
    return f"{kind}:" + json.dumps([connector, topic, base64.b64encode(key).decode()])


class ParkingList:
    """The list of parked keys of one connector (or of all, for a REST)."""

    def __init__(self, config: Mapping[str, Any], topic: str, replication: int, connector: str | None = None) -> None:
        self._connector = connector
        self._entries: dict[tuple[str, str, bytes], Parked] = {}
        self._releases: dict[tuple[str, str, bytes], tuple[str, ReleaseMode]] = {}
        self._lock = threading.Lock()
        self._log = KafkaLog(config, topic, 1, replication, self._apply)
        self._log.open()
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def refresh(self) -> None:
        """Read to the end."""
        with self._lock:
            self._log.read_to_end()

    def poll(self) -> None:
        """Take in what has arrived meanwhile; waits for nothing."""
        with self._lock:
            self._log.poll(0)

    def holds(self, connector: str, topic: str, key: bytes) -> bool:
        """Whether the key is parked."""
        return (connector, topic, key) in self._entries

    def entries(self, connector: str) -> list[Parked]:
        """The parked keys of a connector, longest parked first."""
        return sorted((e for e in self._entries.values() if e.connector == connector), key=lambda e: e.since_ms)

    def releases(self) -> Iterator[tuple[Parked, ReleaseMode]]:
        """The entries that somebody has asked to release."""
        for place, (number, mode) in list(self._releases.items()):
            entry = self._entries.get(place)
            if entry is not None and entry.id == number:
                yield entry, mode

    def park(self, entry: Parked) -> None:
        """Add (or replace) an entry; durable when this returns."""
        document = {
            "id": entry.id,
            "partition": entry.partition,
            "dlq_partition": entry.dlq_partition,
            "dlq_offset": entry.dlq_offset,
            "since_ms": entry.since_ms,
            "reason": entry.reason,
        }
        self._log.write({_name("park", entry.connector, entry.topic, entry.key): json.dumps(document).encode()})
        self._entries[entry.connector, entry.topic, entry.key] = entry

    def free(self, entry: Parked) -> None:
        """The key is not parked any more; durable when this returns."""
        own = (entry.connector, entry.topic, entry.key)
        self._log.write({_name("park", *own): None, _name("release", *own): None})
        self._entries.pop(own, None)
        self._releases.pop(own, None)

    def request_release(self, connector: str, topic: str, key: bytes, mode: str) -> Parked:
        """Ask the task that has the key to release it. Raises NotFoundError, BadRequestError."""
        try:
            word = ReleaseMode(mode)
        except ValueError:
            raise BadRequestError(f"mode {mode!r} is none of {', '.join(m.value for m in ReleaseMode)}") from None
        self.refresh()
        entry = self._entries.get((connector, topic, key))
        if entry is None:
            raise NotFoundError(f"connector {connector!r} has not parked that key of topic {topic!r}")
        document = {"id": entry.id, "mode": word.value}
        self._log.write({_name("release", connector, topic, key): json.dumps(document).encode()})
        return entry

    def refuse_release(self, entry: Parked) -> None:
        """The key stays parked, and nobody asks for its release any more; durable when this returns."""
        own = (entry.connector, entry.topic, entry.key)
        self._log.write({_name("release", *own): None})
        self._releases.pop(own, None)

    def close(self) -> None:
        """Release the clients."""
        self._log.close()

    def _apply(self, name: str, value: bytes | None) -> None:
        kind, _, rest = name.partition(":")
        connector, topic, encoded = json.loads(rest)
        if self._connector is not None and connector != self._connector:
            return
        place = (connector, topic, base64.b64decode(encoded))
        document = None if value is None else json.loads(value)
        if kind == "park":
            if document is None:
                self._entries.pop(place, None)
            else:
                self._entries[place] = Parked(*place, **document)
        elif document is None:
            self._releases.pop(place, None)
        else:
            self._releases[place] = (document["id"], ReleaseMode(document["mode"]))


def parked_at(connector: str, message: Message, place: tuple[int, int], reason: str) -> Parked:
    """The entry of a key whose record has just been written to the dead letter queue at `place`."""
    topic, partition = place_of(message)
    key = message.key()
    data = key.encode() if isinstance(key, str) else key or b""
    return Parked(
        connector, topic, data, uuid.uuid4().hex, partition, place[0], place[1], clock.wall_ms(), reason[:500]
    )


class ParkedRecords:
    """Reads one key's parked records back out of the dead letter queue, in order."""

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        self._config, self._topic = connection_of(config), topic
        self._servers = str(config.get("bootstrap.servers"))

    def of(self, entry: Parked) -> list[Message]:
        """All of them, up to the end of the queue as it is now. Raises ParkedRecordsGoneError if the first is not there."""
        slot = (self._topic, entry.dlq_partition)
        with closing(LogOffsets(self._config)) as offsets:
            found = self._read(entry, offsets.stable_ends([slot])[slot])
            # Asked when all are read: what retention deletes meanwhile ends the reading, or lies before what was read.
            if not found or offset_of(found[0]) != entry.dlq_offset:
                raise ParkedRecordsGoneError(*slot, entry.dlq_offset, offsets.earliest([slot])[slot])
        return found

    def _read(self, entry: Parked, end: int) -> list[Message]:
        """Those from the place of the first on. An empty list if records were deleted before they were read."""
        consumer = Consumer(
            {
                **self._config,
                "group.id": "keyorder-connect-parked",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",  # not "earliest": it would go on at what retention has left
            }
        )
        found: list[Message] = []
        seen: set[tuple[str | None, str | None]] = set()  # a task that was killed may have parked a record twice
        try:
            consumer.assign([TopicPartition(self._topic, entry.dlq_partition, entry.dlq_offset)])
            position = entry.dlq_offset
            while position < end:
                for message in consumer.consume(500, 0.2):
                    error = message.error()
                    if error is not None:
                        if error.code() == KafkaError._AUTO_OFFSET_RESET:
                            return []
                        if ends_partition(error, f"topic {self._topic}", self._servers):
                            position = max(position, offset_of(message))
                        continue
                    position = offset_of(message) + 1
                    facts = facts_of(message)
                    place = (facts.get("partition"), facts.get("offset"))
                    if _is_of(message, facts, entry) and place not in seen:
                        seen.add(place)
                        found.append(message)
        finally:
            consumer.close()
        return found


def _is_of(message: Message, facts: dict[str, str], entry: Parked) -> bool:
    key = message.key()
    data = key.encode() if isinstance(key, str) else key
    return data == entry.key and facts.get("connector.name") == entry.connector and facts.get("topic") == entry.topic


def facts_of(message: Message) -> dict[str, str]:
    """The `__connect.errors.` headers of a record of the dead letter queue."""
    found: dict[str, str] = {}
    for pair in message.headers() or []:
        name, value = pair[0], pair[1]
        if name.startswith(PREFIX) and value is not None:
            found[name.removeprefix(PREFIX)] = (
                value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            )
    return found
