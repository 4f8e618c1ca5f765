"""Reading all partitions of a topic, from given positions on, without a group: nothing is committed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..connector import clock
from ..connector.config import REFILL, chosen, connection_of, flat
from ..connector.kafka_errors import ends_partition, translate, translated
from ..connector.log_offsets import LogOffsets
from ..connector.messages import offset_of
from ..connector.metadata import described, identify, patiently, prefetch_metadata, topic_config
from ..connector.refusals import ClusterAdmin
from ..partitioner.errors import NotAuthorizedError
from .errors import TopicReplacedError
from .silence import Silence

if TYPE_CHECKING:
    from ..connector.arrow.reader import ArrowReader

_BATCH = 10_000
_BATCH_ROWS = 100_000
_DISCOVERY_S, _PATIENCE = 10.0, 30.0
_OVERTAKEN = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}


class TopicLog:
    """One consumer over all physical partitions, retired ones included. Not thread-safe.

    config: as for confluent_kafka.Consumer; `isolation.level` is read_committed unless it says otherwise. committed: which.
    positions: {partition: next offset to read}; partitions that are missing are read from their beginning.
    """

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        config = flat(config)
        self._topic = topic
        self._bootstrap = str(config.get("bootstrap.servers"))
        self.committed = chosen(config, "isolation.level", "read_committed") == "read_committed"
        self._admin = ClusterAdmin(config)
        self.identity = identify(self._admin, topic, self._bootstrap)
        self._offsets = LogOffsets(config)
        owned = {
            "group.id": "keyorder-compaction",  # never joined, never committed to
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        theirs = {name: value for name, value in config.items() if name not in owned}
        self._config = {
            **connection_of(config),
            **theirs,
            "isolation.level": config.get("isolation.level", "read_committed"),
        }
        self._consumer = Consumer({**connection_of(config), **REFILL, "fetch.wait.max.ms": 100, **theirs, **owned})
        self._discovered = clock.now()
        self.positions: dict[int, int] = {}
        self._wanted = 0  # so many partitions there are, by the last look at the ends

    @property
    def partitions(self) -> int:
        """How many partitions are read."""
        return len(self.positions)

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read on from these positions; raises as the client library does for a topic that is not there."""
        self.positions = {p: positions.get(p, 0) for p in sorted({*range(self.identity.partitions), *positions})}
        prefetch_metadata(self._consumer, self._topic)
        with translated("read", f"topic {self._topic}", self._bootstrap):
            self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in self.positions.items()])

    def poll(self, timeout: float) -> list[Message]:
        """What has arrived, in order per partition; waits up to `timeout` seconds for the first record.

        Raises NotAuthorizedError. What passes by itself, such as a leader that moves, is left to the client library.
        """
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        read: list[Message] = []
        for message in (first, *self._consumer.consume(_BATCH, 0)):
            error = message.error()
            if error is None:
                self.positions[message.partition()] = offset_of(message) + 1  # type: ignore[index]
                read.append(message)
            elif ends_partition(error, f"topic {self._topic}", self._bootstrap):
                p = message.partition()
                self.positions[p] = max(self.positions[p], offset_of(message))  # type: ignore[index]
        return read

    def columns(self, ends: Mapping[int, int]) -> Iterator[Any]:
        """What lies below `ends`, as Arrow batches; `positions` move as they are taken.

        Nothing without pyarrow and numba. Afterwards `poll` goes on behind them, also where the log start has overtaken
        the reader. Raises as ArrowReader, and LogShorterError, TopicReplacedError.
        """
        try:
            from ..connector.arrow.reader import ArrowReader
        except ImportError:
            return
        starts = self._offsets.earliest([(self._topic, p) for p in ends])
        ranges = [(p, max(self.positions.get(p, 0), starts[self._topic, p]), end) for p, end in ends.items()]
        self._consumer.unassign()
        silence = self.silence(ends)
        try:
            with ArrowReader({**self._config, "fetch.wait.max.ms": 100}) as reader:
                reader.assign({self._topic: ranges})
                for batch, passed in self._read_ahead(reader, [p for p, start, end in ranges if end > start]):
                    if len(batch):
                        yield batch
                    self.positions.update({p: max(self.positions.get(p, 0), offset) for p, offset in passed.items()})
                    silence.seen(self.positions)
        except KafkaException as raised:
            if raised.args[0].code() not in _OVERTAKEN:
                raise translate(raised.args[0], "read", f"topic {self._topic}", self._bootstrap) from raised
        finally:
            self.assign(self.positions)

    def _read_ahead(self, reader: ArrowReader, partitions: list[int]) -> Iterator[tuple[Any, dict[int, int]]]:
        """Each batch, with the positions behind it. While the caller works on one, a thread reads the next."""

        def read() -> tuple[Any, dict[int, int], bool]:
            batch = reader.read(_BATCH_ROWS, 0.5)
            return batch, {p: reader.position(self._topic, p) for p in partitions}, reader.done

        with ThreadPoolExecutor(1, "keyorder-compaction-reader") as thread:
            following = thread.submit(read)
            done = False
            while not done:
                batch, passed, done = following.result()
                if not done:
                    following = thread.submit(read)
                yield batch, passed

    def ends(self, at_least: int = 0, patience: float = _PATIENCE) -> dict[int, int]:
        """Where each partition ends now for this reader, also one that is not read yet.

        at_least: how many partitions there must be. patience: seconds. Raises TopicReplacedError, TopicNotFoundError,
        BrokerUnreachableError and its kin.
        """
        self._wanted = max(at_least, len(self._found(patience)), self._wanted)
        places = [(self._topic, p) for p in sorted({*self.positions, *range(self._wanted)})]
        ask = self._offsets.stable_ends if self.committed else self._offsets.high_watermarks
        return {p: end for (_, p), end in ask(places, patience).items()}

    def discover(self, at_least: int = 0) -> bool:
        """Take partitions in that have been made since, from their beginning; asks the cluster every ten seconds.

        at_least: how many there must be by now; while fewer are read, or than `ends` has found, the cluster is asked at
        once. Returns whether the count changed. Raises as `ends`.
        """
        now = clock.now()
        if self.partitions >= max(at_least, self._wanted) and now - self._discovered < _DISCOVERY_S:
            return False
        self._discovered = now
        new = [p for p in sorted(self._found()) if p not in self.positions]
        if new:
            self.positions.update(dict.fromkeys(new, 0))
            with translated("read", f"topic {self._topic}", self._bootstrap):
                self._consumer.incremental_assign([TopicPartition(self._topic, p, 0) for p in new])
        return bool(new)

    def silence(self, ends: Mapping[int, int]) -> Silence:
        """Whether what lies below `ends` can still come, for whoever reads up to them. Looks as `check_identity`."""

        def look() -> Mapping[int, int]:
            self.check_identity()
            found = self._offsets.high_watermarks([(self._topic, p) for p in ends])
            return {p: end for (_, p), end in found.items()}

        return Silence(self._topic, ends, look)

    def check_identity(self) -> None:
        """Stop unless the topic is still the one that is read. Raises TopicReplacedError, TopicNotFoundError and its kin."""
        self._found()

    def _found(self, patience: float = _PATIENCE) -> Collection[int]:
        """The partitions that the cluster has now."""
        found = patiently(lambda: described(self._admin, self._topic, self._bootstrap, min(patience, 20.0)), patience)
        # The client library goes on with another topic of this name, from its beginning, as if records had been lost.
        if str(found.topic_id) != self.identity.topic_id:
            raise TopicReplacedError(self._topic)
        return [partition.id for partition in found.partitions]

    def tombstones_last_ms(self) -> int:
        """`delete.retention.ms` of the topic; Kafka's default where this user may not ask."""
        try:
            return int(topic_config(self._admin, self._topic, self._bootstrap)["delete.retention.ms"])
        except NotAuthorizedError:
            return 86_400_000

    def close(self) -> None:
        """Release the clients."""
        self._consumer.close()
        self._offsets.close()
