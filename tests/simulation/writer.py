"""A writer process: the real lease keeper and the real holds, driven as `WriterSession` and `OrderedProducer` drive them."""

from __future__ import annotations

from functools import partial
from typing import Any

from keyorder.connector.verify.events import Kind, Value
from keyorder.partitioner.epochs import ChangePhase
from keyorder.partitioner.records.control_records import Lease, Ready
from keyorder.partitioner.routing import Route
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.fast_path import InFlight
from keyorder.partitioner.writers.lease import LeaseKeeper, LeaseTerms, Standing
from keyorder.partitioner.writers.sending import Held, TopicSending
from simulation.cluster import DELIVERY_TIMEOUT, TOPIC, Cluster, Connection, Cursor, Row
from simulation.world import Process, World

REQUEST_TIMEOUT = 30.0
TERMS = LeaseTerms(delivery_timeout=DELIVERY_TIMEOUT)


class Writer(Process):
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
        self.writer_id = writer_id
        self.keeper = LeaseKeeper(writer_id, TERMS)
        self.sending: TopicSending[Value] | None = None
        self.on_the_way = 0
        self.leaving = False
        self.ended_at = 0.0
        self._cluster, self._sequences, self._joins = cluster, sequences, joins
        self._send_until = float("-inf")
        self._timeline: Timeline | None = None
        self._confirmed: tuple[str, frozenset[str]] | None = None
        self._looking = self._pumping = False
        self._roll_called = 0
        self._connections: dict[int, Connection] = {}
        self._control = Connection(self, cluster.writers)
        self._lease_log = Cursor(self, cluster.writers, self._take_lease, len(cluster.writers.rows))
        self._timeline_log = Cursor(self, cluster.timelines, self._take_timeline)
        self._tick()

    # The application.

    def produce(self, key: str) -> None:
        """What OrderedProducer.produce does, or nothing while the topic is not admitted yet."""
        sending = self.sending
        if sending is None or self.leaving or self.keeper.standing is Standing.CLOSED:
            return
        self._sequences[key] = self._sequences.get(key, 0) + 1
        value = Value("", self.name, key, self._sequences[key])
        self.world.record(Kind.SEND_INVOKE, self.name, value=value)
        data = key.encode()
        route = sending.routing.of(data)
        if self.clock() >= self._send_until or sending.must_wait(data, route):
            sending.hold(data, value, self.clock())
        else:
            self._hand_over(value, data, route)

    @property
    def over(self) -> bool:
        """Dead, or closed with all delivered."""
        return not self.alive or self.keeper.standing is Standing.CLOSED

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
            known = self.sending.acknowledged.get(in_flight.partition, 0)
            self.sending.acknowledged[in_flight.partition] = max(known, offset + 1)
        self.wake()

    # The session.

    def wake(self) -> None:
        """One turn of the session."""
        if not self.alive:
            return
        now = self.clock()
        self._keep_lease(now)
        self._answer(now)
        if self.sending is not None and self.sending.held and not self._pumping:
            # On the session's thread: the application may come first.
            self._pumping = True
            self.later(0.3 * self.world.random() ** 3, self._pump)
        if self.leaving and self.idle:
            clear = self.sending is None or self.sending.settled(now)
            leaving = self.keeper.leave(now)
            # What timed out may still arrive: then the lease runs out by itself.
            if leaving is not None and clear:
                self._write(leaving)
            self._end_later()

    def _pump(self) -> None:
        self._pumping = False
        if self.sending is not None:
            self.sending.release(self._release)

    def _end_later(self) -> None:
        self.leaving = False
        self.later(10.0, self._end)

    def _tick(self) -> None:
        self.wake()
        self.later(0.5 if self.keeper.standing is not Standing.LIVE else 1.5, self._tick)

    def _take_lease(self, record: Any, offset: int) -> None:
        if isinstance(record, Lease) and record.writer == self.writer_id:
            self.keeper.read(record, offset, self.clock())
            if self.keeper.standing is Standing.SUPERSEDED:
                self.die()

    def _take_timeline(self, timeline: Timeline, _: int) -> None:
        self._timeline = timeline
        if self.sending is not None:
            self.sending.apply(timeline)

    def _keep_lease(self, now: float) -> None:
        keeper = self.keeper
        keeper.tick(now)
        if keeper.standing in (Standing.LAPSED, Standing.OUT):
            self._send_until = float("-inf")
            self._confirmed = None
            if self.sending is None or self.sending.settled(now):
                self._joins.append(self.name)
                self._write(keeper.join(f"n{len(self._joins)}", [TOPIC], now))
        elif keeper.standing is Standing.LIVE:
            renewal = keeper.renew(now, due=self._roll_call())
            if renewal is not None:
                self._write(renewal)
            self._look_after_join()

    def _roll_call(self) -> bool:
        change = self._timeline.change if self._timeline else None
        if change is None or self._roll_called == change.epoch:
            return False
        self._roll_called = change.epoch
        return True

    def _look_after_join(self) -> None:
        """After its JOIN was read back, a writer reads `_keyorder` to its end before it sends."""
        confirmed = (self.keeper.nonce, self.keeper.confirmed)
        if self._confirmed != confirmed:
            if not self._looking:
                self._looking = True
                self._timeline_log.look(partial(self._looked, confirmed))
        else:
            self._send_until = self.keeper.send_until

    def _looked(self, confirmed: tuple[str, frozenset[str]], _: float) -> None:
        self._looking = False
        if self.keeper.nonce == confirmed[0]:
            self._confirmed = confirmed
            if self.sending is None and self._timeline is not None:
                self.sending = TopicSending(self._timeline)
        self.wake()

    def _answer(self, now: float) -> None:
        sending = self.sending
        if sending is None:
            return
        change = sending.timeline.change
        if change is None or change.phase is not ChangePhase.PREPARE or sending.answered:
            return
        epoch = sending.ready_epoch(now)
        if epoch is not None and self.keeper.standing is Standing.LIVE:
            self._write(Ready(TOPIC, self.writer_id, self.keeper.nonce, epoch, sending.acknowledged_origins()))
            sending.said_ready(epoch)

    def _release(self, held: Held[Value], route: Route | None) -> bool:
        if self.clock() >= self._send_until or route is None or held.key is None:
            return False
        self._hand_over(held.record, held.key, route)
        return True

    def _write(self, record: Lease | Ready) -> None:
        if self.world.chance("control record lost", 0.004):
            self.later(10.0, self.keeper.lost_join)
            return
        self._control.send(record, self._written)
        if self.world.chance("control record twice", 0.004):
            self._control.send(record, lambda _: None)

    def _written(self, offset: int | None) -> None:
        if offset is None:
            self.keeper.lost_join()
