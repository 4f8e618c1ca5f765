"""The brokers: logs, transactions, metadata, and the way that requests take to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Uuid
from simulation.shipped.scheduler import Process, Scheduler, here, task_here
from simulation.shipped.substitutes import EPOCH_S

if TYPE_CHECKING:
    from simulation.shipped.coordinator import Group

Place = tuple[str, int]
Headers = list[tuple[str, bytes | None]] | None
# Seconds that a message takes at most, where its topic is not slow.
SLOWEST = 1.5


@dataclass(eq=False)
class Transaction:
    """One transaction. ended: None while it is open, then whether it was committed."""

    number: int
    began: float
    ended: bool | None = None
    logs: dict[Log, int] = field(default_factory=dict)
    offsets: dict[Group, dict[Place, tuple[int, str]]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Record:
    """What stands at one offset; a transaction's marker has no value that anybody sees."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: tuple[int, int]
    leader_epoch: int
    transaction: Transaction | None = None
    marker: bool = False


class Log:
    """One partition."""

    def __init__(self, cluster: Cluster, topic: Topic, partition: int) -> None:
        self.cluster, self.topic, self.partition = cluster, topic, partition
        self.records: list[Record] = []
        self.start = 0
        self.leader, self.leader_epoch = partition % 3, 0
        self.leader_back = 0.0
        self.open: dict[Transaction, int] = {}
        self.waiting: list[Callable[[], None]] = []

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.records)

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min(self.open.values()) if self.open else len(self.records)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        transaction: Transaction | None = None,
        marker: bool = False,
    ) -> int:
        """Returns the record's offset."""
        offset = self.end
        by_log = self.topic.config.get("message.timestamp.type") == "LogAppendTime"
        stamp = (2, self.cluster.wall_ms()) if by_log else (1, timestamp_ms or self.cluster.wall_ms())
        if transaction is not None and transaction not in self.open and not marker:
            self.open[transaction] = transaction.logs[self] = offset
        self.records.append(Record(key, value, headers, stamp, self.leader_epoch, transaction, marker))
        self.cluster.scheduler.note("append", self.topic.name, self.partition, offset, key, value and len(value))
        self.changed()
        return offset

    def changed(self) -> None:
        """Whoever waits for something here looks again."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


class Topic:
    """A topic and its settings."""

    def __init__(self, cluster: Cluster, name: str, partitions: int, config: dict[str, str]) -> None:
        self.cluster, self.name, self.config = cluster, name, config
        self.id = Uuid(cluster.scheduler.rng.getrandbits(63), cluster.scheduler.rng.getrandbits(63))
        self.logs: list[Log] = []
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        """Partitions are only ever added."""
        while len(self.logs) < partitions:
            self.logs.append(Log(self.cluster, self, len(self.logs)))


@dataclass(eq=False)
class TransactionalId:
    """What the coordinator knows of one `transactional.id`. busy_until: markers of its last transaction are being written."""

    epoch: int = -1
    number: int = 0
    transaction: Transaction | None = None
    ending: Transaction | None = None


class Cluster:
    """Everything that stands at the brokers. trouble: how unreliable the network is, from 0 to 1.

    slow: seconds that each message from or to a topic takes longer. control_hook: called when a timeline has become visible."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.ids: dict[str, TransactionalId] = {}
        self.trouble = 0.0
        self.ahead_ms = 0
        self.faults: dict[str, int] = {}
        self.slow: dict[str, float] = {}
        self.control_hook: Callable[[], None] = lambda: None

    # Time and chance.

    def wall_ms(self) -> int:
        """What the brokers' clocks show."""
        return round((EPOCH_S + self.scheduler.now) * 1000) + self.ahead_ms

    def delay(self) -> float:
        """What a message takes: a millisecond or some as a rule, seconds at times."""
        x = self.scheduler.rng.random()
        if x < 1 - 0.03 * self.trouble:
            return 0.0005 + 0.004 * x
        return self.scheduler.rng.uniform(0.05, SLOWEST)

    def chance(self, fault: str, probability: float) -> bool:
        """Whether a fault strikes now; counted when it does."""
        if self.scheduler.rng.random() >= probability:
            return False
        self.faults[fault] = self.faults.get(fault, 0) + 1
        self.scheduler.note("fault", fault)
        return True

    def log(self, topic: str, partition: int) -> Log | None:
        """None for one that is not there."""
        found = self.topics.get(topic)
        return found.logs[partition] if found is not None and 0 <= partition < len(found.logs) else None

    def create(self, name: str, partitions: int, config: dict[str, str]) -> Topic:
        """A new topic."""
        made = self.topics[name] = Topic(self, name, partitions, config)
        return made

    def group(self, name: str) -> Group:
        """That group, new or old."""
        from simulation.shipped.coordinator import Group

        if name not in self.groups:
            self.groups[name] = Group(self, name)
        return self.groups[name]

    # Transactions.

    def begin(self, name: str, reply: Callable[[int], None]) -> None:
        """Of init_transactions: fence whoever had the id; answer with the new epoch when its last transaction is over."""
        known = self.ids.setdefault(name, TransactionalId())
        if known.transaction is not None:
            known.epoch += 1
            self.end(known, known.transaction, False)
        if known.ending is not None:
            self.scheduler.after(0.01, self.begin, name, reply)
            return
        known.epoch += 1
        self.scheduler.note("fence", name, known.epoch)
        reply(known.epoch)

    def part_of(self, name: str, timeout: float) -> Transaction:
        """The open transaction of an id, a new one if need be."""
        known = self.ids[name]
        if known.transaction is None:
            known.number += 1
            known.transaction = Transaction(known.number, self.scheduler.now)
            self.scheduler.after(timeout, self._expire, known, known.transaction)
        return known.transaction

    def _expire(self, known: TransactionalId, transaction: Transaction) -> None:
        if known.transaction is transaction:
            known.epoch += 1
            self.end(known, transaction, False)

    def end(self, known: TransactionalId, transaction: Transaction, committed: bool) -> None:
        """Decided; its markers are written a little later, one partition after the other."""
        known.transaction, known.ending = None, transaction
        left = len(transaction.logs) + len(transaction.offsets)
        if not left:
            transaction.ended, known.ending = committed, None
            return
        remaining = [left]

        def written() -> None:
            remaining[0] -= 1
            if not remaining[0]:
                known.ending = None

        transaction.ended = committed
        for log in transaction.logs:
            self.scheduler.after(self.delay(), self._mark, log, transaction, written)
        for group in transaction.offsets:
            self.scheduler.after(self.delay(), group.transaction_ended, transaction, written)

    def _mark(self, log: Log, transaction: Transaction, written: Callable[[], None]) -> None:
        log.append(None, None, None, 0, transaction, marker=True)
        log.open.pop(transaction, None)
        written()
        log.changed()
        if log.topic.name == "_keyorder" and transaction.ended:
            self.control_hook()


class Link:
    """A client's requests to one broker: in order, and so are the answers. alive: says whether its process is."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.cluster, self.process = cluster, process
        self._there = self._back = 0.0

    def ask(self, serve: Callable[[Callable[..., None]], None], answered: Callable[..., None]) -> None:
        """`serve(reply)` runs at the broker, `answered(...)` here when the reply has come."""
        scheduler = self.cluster.scheduler
        self._there = max(self._there, scheduler.now + self.cluster.delay())

        def reply(*values: Any) -> None:
            self._back = max(self._back, scheduler.now + self.cluster.delay())
            scheduler.after(self._back - scheduler.now, self._arrived, answered, values)

        scheduler.after(self._there - scheduler.now, serve, reply)

    def _arrived(self, answered: Callable[..., None], values: tuple[Any, ...]) -> None:
        on_process(self.process, answered, *values)


def on_process(process: Process, call: Callable[..., None], *args: Any) -> None:
    """Something that the client's own threads do: when the process is not frozen, and never after its death."""
    scheduler = process.scheduler
    if not process.alive:
        return
    if process.frozen_until > scheduler.now:
        scheduler.after(process.frozen_until - scheduler.now, on_process, process, call, *args)
        return
    call(*args)


def await_answer(begin: Callable[[Callable[..., None]], None], timeout: float | None, what: str) -> tuple[Any, ...]:
    """Begin something and wait on the calling thread until it has answered. Raises KafkaException (_TIMED_OUT)."""
    scheduler, me = here(), task_here()
    scheduler.pass_turn()
    answers: list[tuple[Any, ...]] = []
    waits = [True]

    def answered(*values: Any) -> None:
        answers.append(values)
        if waits[0]:
            scheduler.wake(me)

    until = inf if timeout is None or timeout < 0 else scheduler.now + timeout
    begin(answered)
    while not answers:
        left = until - scheduler.now
        if left <= 0:
            waits[0] = False
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{what}: timed out"))
        scheduler.park(None if left == inf else left, what)
    return answers[0]
