"""What goes wrong: each fault is a context manager that does harm when it is entered and undoes it when it is left."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import psutil
from faults.change import ChangeProcess
from faults.cluster import FaultyCluster, client_of_broker
from faults.proxy import APIS, Effect, Rule, Way
from faults.reassign import reassign, replicas, rotate
from keyorder.connector.control.control_topics import timeline_slot
from support.workload import Worker, Workload

# Every client of a campaign bears one of these names; the brokers' own are others.
CLIENTS = "w.*|c.*|e.*"
CONTROLLER = "c-controller"
REQUESTS = (
    "Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "FindCoordinator", "Heartbeat", "InitProducerId",
    "EndTxn",
)  # fmt: skip
# Asked so often that only some of the answers are lost, and asked by a client that starts: one of each kind is killed.
OFTEN, AT_START = {"Produce", "Fetch"}, {"FindCoordinator", "InitProducerId", "OffsetFetch"}
READERS_ASK = {"OffsetFetch"}  # and no writer


@dataclass
class Field:
    """What a fault may strike. start: another worker in a dead one's place, under a new name."""

    kafka: FaultyCluster
    run: Workload
    change: ChangeProcess
    writers: list[Worker]
    readers: list[Worker]
    start: Callable[[Worker], Worker]


@dataclass
class Strike:
    """What a fault has done. rules: those of the network; without any it is in force from its begin to its end."""

    target: str
    rules: list[Rule] = field(default_factory=list)


Harm = Callable[[Field, random.Random], AbstractContextManager[Strike]]


@dataclass(frozen=True)
class Fault:
    """A fault by its name. seconds: how long it stays; 0 for one that is over at once."""

    name: str
    harm: Harm
    seconds: float


FAULTS: dict[str, Fault] = {}


def _fault(name: str, seconds: float) -> Callable[[Callable[[Field, random.Random], Iterator[Strike]]], Harm]:
    def register(harm: Callable[[Field, random.Random], Iterator[Strike]]) -> Harm:
        FAULTS[name] = Fault(name, contextmanager(harm), seconds)
        return FAULTS[name].harm

    return register


# Brokers.


def _kill_broker(field: Field, broker: int, wipe: bool = False) -> Iterator[Strike]:
    field.kafka.kill_broker(broker)
    if wipe:
        field.kafka.wipe_logs(broker)
    try:
        yield Strike(f"broker {broker}")
    finally:
        field.kafka.start_broker(broker)
        field.kafka.await_full_isr()


@_fault("broker-kill", 4)
def broker_kill(field: Field, chance: random.Random) -> Iterator[Strike]:
    yield from _kill_broker(field, chance.randint(1, 3))


@_fault("timeline-leader-kill", 4)
def timeline_leader_kill(field: Field, chance: random.Random) -> Iterator[Strike]:
    """The leader of the partition in which the topic's timeline stands."""
    yield from _kill_broker(field, field.kafka.leader(*timeline_slot(field.run.topic)))


@_fault("origin-leader-kill", 4)
def origin_leader_kill(field: Field, chance: random.Random) -> Iterator[Strike]:
    """The leader of a partition of the topic."""
    yield from _kill_broker(field, field.kafka.leader(field.run.topic, chance.randrange(2)))


@_fault("broker-stop", 9)
def broker_stop(field: Field, chance: random.Random) -> Iterator[Strike]:
    """SIGSTOP for longer than the session that it has with its quorum."""
    broker = chance.randint(1, 3)
    field.kafka.kill_broker(broker, signal.SIGSTOP)
    try:
        yield Strike(f"broker {broker}")
    finally:
        field.kafka.kill_broker(broker, signal.SIGCONT)
        field.kafka.await_full_isr()


@_fault("broker-wipe", 2)
def broker_wipe(field: Field, chance: random.Random) -> Iterator[Strike]:
    """Killed, and its partitions' logs are gone when it comes back. What the quorum has agreed on is kept."""
    yield from _kill_broker(field, chance.randint(1, 3), wipe=True)


@_fault("broker-disk-full", 4)
def broker_disk_full(field: Field, chance: random.Random) -> Iterator[Strike]:
    """It cannot write any more, which it finds at its next record. There is room again when it is started again."""
    broker = chance.randint(1, 3)
    field.kafka.fill_disk(broker)
    try:
        yield Strike(f"broker {broker}")
    finally:
        field.kafka.kill_broker(broker)
        field.kafka.start_broker(broker)
        field.kafka.await_full_isr()


# Leaders and replicas.


@_fault("leader-move", 4)
def leader_move(field: Field, chance: random.Random) -> Iterator[Strike]:
    """The leaders of the topic, and that of its timeline, move as fast as they can."""
    stop, failed = threading.Event(), list[BaseException]()
    control, slot = timeline_slot(field.run.topic)

    def move() -> None:
        try:
            while not stop.is_set():
                rotate(field.kafka, control, slot)
                rotate(field.kafka, field.run.topic)
        except BaseException as error:
            failed.append(error)

    rotate(field.kafka, control, slot)
    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield Strike("topic and timeline")
    finally:
        stop.set()
        thread.join()
        field.kafka.await_full_isr()
    if failed:
        raise failed[0]


@_fault("replica-move", 4)
def replica_move(field: Field, chance: random.Random) -> Iterator[Strike]:
    """The topic loses the replicas of one broker, and then gets them again, with new leaders."""
    before = replicas(field.kafka, field.run.topic)
    broker = chance.randint(1, 3)
    reassign(field.kafka, {place: [b for b in each if b != broker] for place, each in before.items()})
    try:
        yield Strike(f"broker {broker}")
    finally:
        now = replicas(field.kafka, field.run.topic)
        reassign(field.kafka, {place: [broker, *(b for b in each if b != broker)] for place, each in now.items()})
        field.kafka.await_full_isr()


def _network(field: Field, target: str, rules: list[Rule]) -> Iterator[Strike]:
    field.kafka.network.apply(rules)
    try:
        yield Strike(target, rules)
    finally:
        field.kafka.network.lift(rules)
        field.kafka.await_full_isr()


def _towards(broker: int) -> list[Rule]:
    """Nothing reaches the broker: no request of others, no answer to its own."""
    return [
        Rule(Effect.HOLD, Way.REQUEST, brokers=frozenset({broker})),
        Rule(Effect.HOLD, Way.ANSWER, clients=client_of_broker(broker)),
    ]


def _from(broker: int) -> list[Rule]:
    """Nothing leaves the broker."""
    return [
        Rule(Effect.HOLD, Way.ANSWER, brokers=frozenset({broker})),
        Rule(Effect.HOLD, Way.REQUEST, clients=client_of_broker(broker)),
    ]


@_fault("broker-cut-off", 9)
def broker_cut_off(field: Field, chance: random.Random) -> Iterator[Strike]:
    """Both ways, from clients and from the other brokers."""
    broker = chance.randint(1, 3)
    yield from _network(field, f"broker {broker}", _towards(broker) + _from(broker))


@_fault("broker-deaf", 9)
def broker_deaf(field: Field, chance: random.Random) -> Iterator[Strike]:
    """It is heard and hears nothing."""
    broker = chance.randint(1, 3)
    yield from _network(field, f"broker {broker}", _towards(broker))


@_fault("broker-mute", 9)
def broker_mute(field: Field, chance: random.Random) -> Iterator[Strike]:
    """It hears everything and is not heard: what it was asked it may do all the same."""
    broker = chance.randint(1, 3)
    yield from _network(field, f"broker {broker}", _from(broker))


# Clients.


def _worker_kill(field: Field, workers: list[Worker], chance: random.Random) -> Iterator[Strike]:
    victim = workers.pop(chance.randrange(len(workers)))
    field.run.kill(victim)
    try:
        yield Strike(victim.actor)
    finally:
        workers.append(field.start(victim))


@_fault("writer-kill", 2)
def writer_kill(field: Field, chance: random.Random) -> Iterator[Strike]:
    yield from _worker_kill(field, field.writers, chance)


@_fault("reader-kill", 2)
def reader_kill(field: Field, chance: random.Random) -> Iterator[Strike]:
    yield from _worker_kill(field, field.readers, chance)


def _process_stop(process: psutil.Process | None, name: str) -> Iterator[Strike]:
    try:
        if process is not None:
            process.suspend()
        yield Strike(name)
    finally:
        if process is not None and process.is_running():
            process.resume()


@_fault("writer-stop", 9)
def writer_stop(field: Field, chance: random.Random) -> Iterator[Strike]:
    victim = chance.choice(field.writers)
    yield from _process_stop(psutil.Process(victim.process.pid), victim.actor)


@_fault("reader-stop", 9)
def reader_stop(field: Field, chance: random.Random) -> Iterator[Strike]:
    """Longer than its session."""
    victim = chance.choice(field.readers)
    yield from _process_stop(psutil.Process(victim.process.pid), victim.actor)


@_fault("controller-kill", 0)
def controller_kill(field: Field, chance: random.Random) -> Iterator[Strike]:
    field.change.kill()
    yield Strike("controller")


@_fault("controller-stop", 9)
def controller_stop(field: Field, chance: random.Random) -> Iterator[Strike]:
    """Longer than its transaction's timeout."""
    alive = field.change.process.poll() is None
    yield from _process_stop(psutil.Process(field.change.process.pid) if alive else None, "controller")


def _apart(clients: str, brokers: frozenset[int] | None = None) -> list[Rule]:
    return [Rule(Effect.HOLD, way, clients=clients, brokers=brokers) for way in Way]


@_fault("writer-cut-off", 8)
def writer_cut_off(field: Field, chance: random.Random) -> Iterator[Strike]:
    """From all brokers, both ways."""
    victim = chance.choice(field.writers).actor
    yield from _network(field, victim, _apart(victim))


@_fault("reader-cut-off", 9)
def reader_cut_off(field: Field, chance: random.Random) -> Iterator[Strike]:
    """From all brokers, both ways, longer than its session."""
    victim = chance.choice(field.readers).actor
    yield from _network(field, victim, _apart(victim))


@_fault("controller-cut-off", 8)
def controller_cut_off(field: Field, chance: random.Random) -> Iterator[Strike]:
    """From all brokers, both ways, longer than its transaction's timeout."""
    yield from _network(field, "controller", _apart(CONTROLLER))


@_fault("clients-apart", 8)
def clients_apart(field: Field, chance: random.Random) -> Iterator[Strike]:
    """All clients from one broker, which the other brokers still see."""
    broker = chance.randint(1, 3)
    yield from _network(field, f"clients from broker {broker}", _apart(CLIENTS, frozenset({broker})))


# Single requests, of all clients.


def _request_faults(name: str) -> None:
    apis = frozenset({name} | ({"ConsumerGroupHeartbeat"} if name == "Heartbeat" else set()))

    def among_clients(field: Field, chance: random.Random, rule: Rule) -> Iterator[Strike]:
        strike = _network(field, name, [rule])
        done = next(strike)
        try:
            if name in AT_START:
                # A transactional one says that it has begun only when it was answered.
                transactional = field.readers[0].actor.startswith("e")
                both = [field.writers] if transactional else [field.writers, field.readers]
                for workers in [field.readers] if name in READERS_ASK else both:
                    victim = workers.pop(chance.randrange(len(workers)))
                    field.run.kill(victim)
                    workers.append(field.start(victim))
            yield done
        finally:
            next(strike, None)

    @_fault(f"hold-{name}", 6)
    def hold(field: Field, chance: random.Random) -> Iterator[Strike]:
        yield from among_clients(field, chance, Rule(Effect.HOLD, Way.REQUEST, apis, CLIENTS))

    @_fault(f"lose-{name}", 3)
    def lose(field: Field, chance: random.Random) -> Iterator[Strike]:
        """Answers are lost with their connections: what was asked was done, and nobody knows."""
        rule = Rule(Effect.CUT, Way.ANSWER, apis, CLIENTS, seed=chance.randrange(1 << 30))
        if name in OFTEN:
            rule.share = 0.3
        else:
            rule.limit = 3
        yield from among_clients(field, chance, rule)


for _name in REQUESTS:
    assert _name in APIS
    _request_faults(_name)


# The whole network.


@_fault("delay", 6)
def delay(field: Field, chance: random.Random) -> Iterator[Strike]:
    """Up to 0.4 s per message, different for each connection: what different clients send changes its order."""
    seed = chance.randrange(1 << 30)
    rules = [Rule(Effect.DELAY, way, clients=CLIENTS, amount=0.1, seed=seed) for way in Way]
    yield from _network(field, "all clients", rules)


@_fault("throttle", 6)
def throttle(field: Field, chance: random.Random) -> Iterator[Strike]:
    """20 kB/s per connection and way."""
    rules = [Rule(Effect.THROTTLE, way, clients=CLIENTS, amount=20_000) for way in Way]
    yield from _network(field, "all clients", rules)


@_fault("loss", 5)
def loss(field: Field, chance: random.Random) -> Iterator[Strike]:
    """Connections are reset at random, at requests and at answers."""
    seed = chance.randrange(1 << 30)
    rules = [Rule(Effect.CUT, way, clients=CLIENTS, share=0.02, seed=seed) for way in Way]
    yield from _network(field, "all clients", rules)
