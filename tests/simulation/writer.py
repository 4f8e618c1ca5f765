"""A writer process: the product's `Writer` machine, driven in the simulated cluster as `WriterSession` drives it."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from keyorder.connector.verify.events import Kind, Value
from keyorder.partitioner.records.control_records import Lease, Ready
from keyorder.partitioner.routing import Route
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers import events
from keyorder.partitioner.writers.fast_path import InFlight
from keyorder.partitioner.writers.lease import LeaseTerms, Standing
from keyorder.partitioner.writers.sending import Held, TopicSending
from keyorder.partitioner.writers.writer import Writer
from simulation.cluster import DELIVERY_TIMEOUT, TOPIC, Cluster, Connection, Cursor, Row
from simulation.world import Process, World

REQUEST_TIMEOUT = 30.0
TERMS = LeaseTerms(delivery_timeout=DELIVERY_TIMEOUT)


class Read(NamedTuple):
    """A timeline as it was read."""

    record: Timeline


class Appended(NamedTuple):
    """A record that the broker has acknowledged."""

    at: int

    def offset(self) -> int:
        """Where it lies."""
        return self.at


class WriterProcess(Process):
    """One life of a writer. name: whom the history knows. writer_id: under which it joins. sequences: what it has sent."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        name: str,
        sequences: dict[str, int],
        joins: list[str],
        writer_id: str,
    ) -> None:
        super().__init__(world, name)
        self.writer: Writer[Value] = Writer(writer_id, TERMS, self._new_nonce)
        self.on_the_way = 0
        self.leaving = False
        self.ended_at = 0.0
        self._cluster, self._sequences, self._joins = cluster, sequences, joins
        self._pumping = False
        self._connections: dict[int, Connection] = {}
        self._control = Connection(self, cluster.writers)
        self._lease_log = Cursor(self, cluster.writers, self._take_lease, len(cluster.writers.rows))
        self._timeline_log = Cursor(self, cluster.timelines, self._take_timeline)
        self._step(events.Wanted(TOPIC))
        self._tick()

    # The application.

    def produce(self, key: str) -> None:
        """What OrderedProducer.produce does, or nothing while the topic is not admitted yet."""
        sending = self.sending
        if sending is None or self.leaving or self.closed:
            return
        self._sequences[key] = self._sequences.get(key, 0) + 1
        value = Value("", self.name, key, self._sequences[key])
        self.world.record(Kind.SEND_INVOKE, self.name, value=value)
        data = key.encode()
        route = sending.routing.of(data)
        if self.writer.sends(sending, data, route, self.clock()):
            self._hand_over(value, data, route)
        else:
            sending.hold(data, value, self.clock())

    @property
    def writer_id(self) -> str:
        """Under which it joins."""
        return self.writer.writer_id

    @property
    def sending(self) -> TopicSending[Value] | None:
        """What it sends and holds, once the topic is admitted."""
        return self.writer.topics.get(TOPIC)

    @property
    def closed(self) -> bool:
        """It has said goodbye, or tried to."""
        return self.writer.lease.standing is Standing.CLOSED

    @property
    def over(self) -> bool:
        """Dead, or closed with all delivered."""
        return not self.alive or self.closed

    @property
    def idle(self) -> bool:
        """Nothing is held or on its way."""
        return self.on_the_way == 0 and not (self.sending and self.sending.held)

    def hear_late(self, seconds: float) -> None:
        """What is written to the timeline reaches this writer so much later."""
        self._timeline_log.lag = seconds

    def cut_off(self, seconds: float) -> None:
        """The way to one partition's leader is interrupted, for this writer alone."""
        if self._connections:
            self._connections[self.world.rng.choice(sorted(self._connections))].cut_off(seconds)

    def cut_off_lease(self, seconds: float) -> None:
        """Its own control records wait on the way; what is not there when their delivery times out is lost."""
        self._control.cut_off(seconds)

    def leave(self) -> None:
        """Take nothing more; say goodbye when all is delivered."""
        self.leaving = True

    def die(self) -> None:
        """SIGKILL."""
        self._end()
        self.world.record(Kind.CRASH, self.name)

    def _end(self) -> None:
        self.alive, self.ended_at = False, self.world.now
        for connection in [self._control, *self._connections.values()]:
            connection.died()
        self._lease_log.close()
        self._timeline_log.close()

    def _hand_over(self, value: Value, key: bytes, route: Route) -> None:
        assert self.sending is not None
        in_flight = self.sending.in_flight(route.home)
        in_flight.unresolved += 1
        self.on_the_way += 1
        partition = self._cluster.partitions[route.home]
        connection = self._connections.setdefault(route.home, Connection(self, partition))
        connection.send(Row(key, value, route.hint), partial(self._delivered, value, key, in_flight))

    def _delivered(self, value: Value, key: bytes, in_flight: InFlight, offset: int | None) -> None:
        assert self.sending is not None
        in_flight.unresolved -= 1
        self.on_the_way -= 1
        if offset is None:
            in_flight.settles_at = self.clock() + REQUEST_TIMEOUT
            self.world.record(Kind.SEND_UNKNOWN, self.name, value=value)
            for held in self.sending.drop_key(key):
                self.world.record(Kind.SEND_FAIL, self.name, value=held.record)
        else:
            self.world.record(Kind.SEND_OK, self.name, partition=in_flight.partition, offset=offset, value=value)
            in_flight.last = Appended(offset)
        self.wake()

    # The session.

    def wake(self) -> None:
        """One turn of the session."""
        if not self.alive:
            return
        self._step(events.Tick())
        if self.sending is not None and self.sending.held and not self._pumping:
            # On the session's thread: the application may come first.
            self._pumping = True
            self.later(0.3 * self.world.random() ** 3, self._pump)
        if self.leaving and self.idle:
            self._step(events.Leaving())
            self.leaving = False
            self.later(10.0, self._end)

    def _step(self, event: events.Event) -> None:
        for action in self.writer.step(event, self.clock()):
            self._perform(action)

    def _perform(self, action: events.Action) -> None:
        match action:
            case events.WriteLease(lease):
                self._write(action, lease)
            case events.WriteReady(ready):
                self._write(action, ready)
            case events.Look(number):
                self._timeline_log.look(lambda _: self._looked(number))
            case events.FindPartitions(topic):
                self.later(self.world.delay(), self._found, topic, len(self._cluster.partitions))
            case events.Refused(topic):
                self.later(1.0, self._step, events.Wanted(topic))
            case events.FailTopic(_, error):
                raise error
            case events.Fail():
                self.die()

    def _looked(self, number: int) -> None:
        self._step(events.Looked(number))
        self.wake()

    def _found(self, topic: str, count: int) -> None:
        self._step(events.PartitionsFound(topic, count))
        self.wake()

    def _pump(self) -> None:
        self._pumping = False
        if self.sending is not None:
            self.sending.release(self._release)

    def _tick(self) -> None:
        self.wake()
        self.later(0.5 if self.writer.lease.standing is not Standing.LIVE else 1.5, self._tick)

    def _take_lease(self, record: Any, offset: int) -> None:
        if isinstance(record, Lease) and record.writer == self.writer_id:
            self._step(events.LeaseRead(record, offset))

    def _take_timeline(self, timeline: Timeline, _: int) -> None:
        self._step(events.TimelineRead(TOPIC, Read(timeline)))

    def _release(self, held: Held[Value], route: Route | None) -> bool:
        if self.clock() >= self.writer.send_until or route is None or held.key is None:
            return False
        self._hand_over(held.record, held.key, route)
        return True

    def _new_nonce(self) -> str:
        self._joins.append(self.name)
        return f"n{len(self._joins)}"

    def _write(self, action: events.WriteLease | events.WriteReady, record: Lease | Ready) -> None:
        if self.world.chance("control record lost", 0.004):
            self.later(10.0, self._step, events.NotWritten(action))
            return
        self._control.send(record, partial(self._written, action))
        if self.world.chance("control record twice", 0.004):
            self._control.send(record, lambda _: None)

    def _written(self, action: events.WriteLease | events.WriteReady, offset: int | None) -> None:
        if offset is None:
            self._step(events.NotWritten(action))
