"""Applications of one history: members of groups and writers, on the shipped clients, as users write them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.connector.consuming.listener import KeyRebalanceListener
from keyorder.connector.verify.events import Kind, Value, decode_value, encode_value
from keyorder.errors import KeyBlockedError, KeyorderError
from simulation.shipped.consumer import Interrupted
from simulation.shipped.scheduler import Process, here, sleep

if TYPE_CHECKING:
    from simulation.shipped.scenario import Scenario

TOPIC = "t"
SERVERS = {"bootstrap.servers": "simulated:9092"}
# Seconds of a member with its group, from one of its heartbeats to the next, and between two of its polls.
SESSION, HEARTBEATS, POLLS = 6.0, 2.0, 20.0
# Seconds of work on one batch. What is in hand beyond `POLLS` is another member's by then, whatever we do.
_BATCH_WORK = POLLS / 2


class OnPurpose(Exception):
    """Raised by a callback of the application."""


@dataclass(frozen=True)
class Habits:
    """How the applications of one group work. commits: auto, record, batch, stored or late (every few batches)."""

    commits: str
    batch: int
    work: float
    strategy: str
    gate: str
    latest: bool
    raises: bool
    pauses: bool
    stalls: bool
    listens: bool
    early: bool

    @classmethod
    def of(cls, rng: Random) -> Habits:
        """Some of them."""
        gate = rng.choice(("partition", "partition", "key"))
        commits = rng.choice(("auto", "auto", "record", "batch", "stored", "late"))
        batch = rng.choice((1, 1, 10, 100))
        return cls(
            commits=commits,
            batch=batch,
            work=min(rng.choice((0.0, 0.002, 0.02, 0.1, 0.3)), _BATCH_WORK / batch),
            strategy=rng.choice(("range", "cooperative-sticky")),
            gate=gate,
            latest=rng.random() < 0.15,
            raises=rng.random() < 0.15,
            pauses=rng.random() < 0.2,
            stalls=rng.random() < 0.15,
            listens=rng.random() < 0.3,
            early=gate == "key" and rng.random() < 0.4,
        )

    def config(self, group: str, name: str) -> dict[str, Any]:
        """Settings of an OrderedConsumer."""
        made: dict[str, Any] = {
            **SERVERS,
            "client.id": name,
            "group.id": group,
            "auto.offset.reset": "latest" if self.latest else "earliest",
            "session.timeout.ms": int(SESSION * 1000),
            "heartbeat.interval.ms": int(HEARTBEATS * 1000),
            "max.poll.interval.ms": int(POLLS * 1000),
            "partition.assignment.strategy": self.strategy,
            "keyorder.gate": self.gate,
            "auto.commit.interval.ms": 1_000,
        }
        if self.early:
            made["keyorder.gate.early.release"] = True
        if self.commits == "stored":
            made["enable.auto.offset.store"] = False
        elif self.commits != "auto":
            made["enable.auto.commit"] = False
        return made


class Listener(KeyRebalanceListener):
    """Flushes when keys may leave, and loads when they come; either may fail."""

    def __init__(self, member: Member, raises: bool) -> None:
        self._member, self._raises = member, raises

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Its state is written somewhere."""
        self._happens()

    def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Its state is read."""
        self._happens()

    def _happens(self) -> None:
        sleep(0.02 * here().rng.random())
        if self._raises and not self._member.scenario.calm and here().rng.random() < 0.3:
            raise OnPurpose


class Member:
    """One life of a member: a process with a thread that polls."""

    def __init__(self, scenario: Scenario, group: str, name: str, habits: Habits) -> None:
        self.scenario, self.group, self.name, self._habits = scenario, group, name, habits
        self.process = Process(scenario.scheduler, name, ahead=scenario.plan.uniform(0, 1e6))
        self.over = self.leaving = False
        self._raised = 0
        self._owing = False  # something was worked off and is in no commit yet: a callback may raise in between
        self.consumer: OrderedConsumer | None = None
        scenario.scheduler.begin(self.process, name, self._run)

    def _note(self, kind: Kind, partition: int, offset: int = -1, value: Value | None = None) -> None:
        self.scenario.record(kind, self.name, self.group, partition, offset, value)

    def _owns(self, kind: Kind) -> Callable[[Any, list[TopicPartition]], None]:
        def told(_: Any, partitions: list[TopicPartition]) -> None:
            # A library that was frozen for longer than the session may say "revoked", as long as it has not asked again.
            true = kind if kind is not Kind.REVOKE or self._seated() else Kind.LOST
            if kind is Kind.REVOKE and self._habits.commits in ("batch", "late") and self.consumer is not None:
                try:
                    self.consumer.commit(asynchronous=False)
                except KafkaException as error:
                    self._forgive(error)
            for place in partitions:
                self._note(true, place.partition)
            if self._habits.raises and here().rng.random() < 0.2 and not self.scenario.calm:
                self._raised += 1
                raise OnPurpose

        return told

    def _commits_again(self) -> bool:
        return self.scenario.calm and self.scenario.take_refusal(self.group, self.name)

    def _seated(self) -> bool:
        """Whether the group counts it among its members."""
        seats = self.scenario.cluster.group(self.group).seats
        return any(member.startswith(f"{self.name}-") for member in seats)

    def _run(self) -> None:
        habits = self._habits
        self.consumer = consumer = OrderedConsumer(habits.config(self.group, self.name))
        consumer.subscribe(
            [TOPIC],
            on_assign=self._owns(Kind.ASSIGN),
            on_revoke=self._owns(Kind.REVOKE),
            on_lost=self._owns(Kind.LOST),
            listener=Listener(self, habits.raises) if habits.listens and not habits.early else None,
        )
        taken: list[Message] = []
        while not self.leaving:
            try:
                batch = self._take(consumer)
                for message in batch:
                    self._work(consumer, message)
                if habits.pauses and here().rng.random() < 0.05:
                    batch += self._pause(consumer)
                taken += batch
                if habits.commits == "batch" and (self._owing or self._commits_again()):
                    self._owing = False
                    consumer.commit(asynchronous=here().rng.random() < 0.5)
                elif habits.commits == "record" and self._commits_again():
                    consumer.commit()
                elif habits.commits == "late" and (len(taken) > 20 or here().rng.random() < 0.1):
                    taken.clear()
                    consumer.commit()
                if habits.stalls and not batch and here().rng.random() < 0.02 and not self.scenario.calm:
                    # Longer than max.poll.interval.ms, with nothing in hand.
                    self.scenario.count("stall")
                    sleep(POLLS + 5)
            except OnPurpose:
                self._raised -= 1
            except Interrupted:
                if here().rng.random() < 0.3 and not self.scenario.calm:
                    sleep(POLLS + 5)  # and meanwhile it is a member no more
            except (KafkaException, KeyorderError) as error:
                self._forgive(error)
        if habits.commits not in ("auto", "stored"):
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                self._forgive(error)
        try:
            consumer.close()
        except (OnPurpose, Interrupted):
            pass
        self.over = True

    def _take(self, consumer: OrderedConsumer) -> list[Message]:
        if self._habits.batch == 1:
            message = consumer.poll(0.5)
            return [] if message is None else [message]
        return consumer.consume(self._habits.batch, 0.2)

    def _work(self, consumer: OrderedConsumer, message: Message) -> None:
        if message.error() is not None:
            raise KafkaException(message.error())
        value = decode_value(message.value() or b"")
        partition, offset = message.partition() or 0, message.offset() or 0
        self._note(Kind.DELIVER_START, partition, offset, value)
        if self._habits.work:
            sleep(self._habits.work * here().rng.random())
        self._note(Kind.DELIVER_END, partition, offset, value)
        self._owing = True
        try:
            if self._habits.commits == "stored":
                consumer.store_offsets(message)
            elif self._habits.commits == "record":
                consumer.commit(message, asynchronous=here().rng.random() < 0.7)
        except KafkaException as error:
            self._forgive(error)

    def _pause(self, consumer: OrderedConsumer) -> list[Message]:
        """What came meanwhile is committed with the rest."""
        places = consumer.assignment()
        if not places:
            return []
        some = [place for place in places if here().rng.random() < 0.5]
        consumer.pause(some)
        try:
            message = consumer.poll(0)
        finally:
            consumer.resume(some)
        if message is not None:
            self._work(consumer, message)
        return [] if message is None else [message]

    def _forgive(self, error: Exception) -> None:
        """What an application has to live with. Everything else ends the history."""
        if isinstance(error, KeyorderError):
            passing = error.retriable
        else:
            found = error.args[0]
            passing = found.retriable() or found.code() in _PASSING
        if not passing:
            raise error
        self.scenario.count(f"forgiven {type(error).__name__}")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.over = True
        raw: Any = None if self.consumer is None else self.consumer._raw
        if raw is not None:
            self.scenario.not_revoked(self.group, self.name, raw.members.going)
        self.scenario.record(Kind.CRASH, self.name, self.group)


_PASSING = {
    KafkaError._NO_OFFSET,
    KafkaError._STATE,  # a commit of what was revoked in the meantime
    KafkaError._TIMED_OUT,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
}


class Writer:
    """One life of a writer."""

    def __init__(self, scenario: Scenario, name: str, sequences: dict[str, int], transactional: bool) -> None:
        self._scenario, self.name, self._sequences, self._transactional = scenario, name, sequences, transactional
        self.process = Process(scenario.scheduler, name, ahead=scenario.plan.uniform(0, 1e6))
        self.over = False
        self._unsure: list[Value] = []
        scenario.scheduler.begin(self.process, name, self._run)

    def _run(self) -> None:
        scenario, rng = self._scenario, here().rng
        config: dict[str, Any] = {**SERVERS, "keyorder.writer.id": self.name, "client.id": self.name}
        if self._transactional:
            config["transactional.id"] = f"id-{self.name}"
        producer = self._begin(config)
        while scenario.to_write > 0:
            if self._transactional:
                if not self._transaction(producer):
                    producer.close()
                    producer = self._begin(config)
            else:
                self._produce(producer)
            producer.poll(0)
            # Not everything goes into one outage.
            while len(producer) > 20:
                producer.poll(0.1)
            sleep(scenario.pause * 2 * rng.random())
        left = producer.flush(120)
        if left:
            raise AssertionError(f"{self.name}: flush() leaves {left}")
        producer.close()
        self.over = True

    def _begin(self, config: dict[str, Any]) -> OrderedProducer:
        producer = OrderedProducer(config)
        while self._transactional:
            try:
                producer.init_transactions(30)
                break
            except KafkaException as error:
                # Frozen for longer than that.
                if not error.args[0].retriable():
                    raise
        return producer

    def _produce(self, producer: OrderedProducer, told: bool = True) -> Value | None:
        scenario, rng = self._scenario, here().rng
        scenario.to_write -= 1
        key = rng.choice(scenario.keys)
        seq = self._sequences[key] = self._sequences.get(key, 0) + 1
        value = Value("", self.name, key, seq)
        scenario.record(Kind.SEND_INVOKE, self.name, value=value)

        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                scenario.record(Kind.SEND_UNKNOWN, self.name, value=value)
            elif told:
                at, offset = message.partition(), message.offset()
                scenario.record(
                    Kind.SEND_OK, self.name, "", -1 if at is None else at, -1 if offset is None else offset, value
                )

        try:
            producer.produce(TOPIC, encode_value("", self.name, key, seq), key.encode(), on_delivery=done)
        except (BufferError, KeyBlockedError):
            scenario.record(Kind.SEND_FAIL, self.name, value=value)
            return None
        except KeyorderError as error:
            if not error.retriable:
                raise
            scenario.record(Kind.SEND_FAIL, self.name, value=value)
            return None
        return value

    def _transaction(self, producer: OrderedProducer) -> bool:
        """False when the producer is of no use any more: it was frozen until it was taken for dead."""
        scenario, rng = self._scenario, here().rng
        values: list[Value | None] = []
        try:
            producer.begin_transaction()
            values += [self._produce(producer, told=False) for _ in range(rng.randrange(1, 6))]
            sleep(0.1 * rng.random())
            kind = self._end(producer)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            kind = Kind.SEND_UNKNOWN
        for value in values:
            if value is not None:
                scenario.record(kind, self.name, value=value)
        return kind is not Kind.SEND_UNKNOWN

    def _end(self, producer: OrderedProducer) -> Kind:
        """What became of the transaction's records."""
        if here().rng.random() < 0.2:
            producer.abort_transaction(60)
            return Kind.SEND_FAIL
        while True:
            try:
                producer.commit_transaction(60)
                return Kind.SEND_OK
            except KafkaException as error:
                if error.args[0].retriable():
                    continue
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(60)
                return Kind.SEND_FAIL

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.over = True
        self._scenario.record(Kind.CRASH, self.name)
