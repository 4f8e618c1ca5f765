"""A controller process: the real state machine, its actions carried out as `ControllerRun` carries them out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from keyorder.partitioner.changes import events
from keyorder.partitioner.changes.change import ChangeMachine
from keyorder.partitioner.changes.terms import ChangeTerms
from keyorder.partitioner.errors import ControllerFencedError, KeyorderError
from keyorder.partitioner.stamps import Stamp
from keyorder.partitioner.timeline import Timeline
from keyorder.partitioner.writers.members import WriterSet
from simulation.cluster import Cluster, Connection, Cursor
from simulation.world import Process, World

TERMS = ChangeTerms(timeout=150.0)


class Controller(Process):
    """One life of a controller, for one change.

    killed: the chance of that at each action. over: called once, with None or with what ended it.
    """

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        target: int,
        killed: float,
        over: Callable[[BaseException | None], None],
        lying: bool = False,
    ) -> None:
        super().__init__(world, "controller")
        self._killed = killed
        self._cluster, self._over, self._lying = cluster, over, lying
        self.writers = WriterSet()
        self.machine = ChangeMachine(target, self.writers, TERMS, self.clock())
        self._actions: deque[events.Action] = deque()
        self._timeline: Timeline | None = None
        self._stamp: Stamp | None = None
        self._awaited: Timeline | None = None
        self._wrote_at = 0.0
        self._busy = True
        self._started = 0
        self._plain = Connection(self, cluster.writers)
        self._cursors: list[Cursor] = []
        self.later(world.delay(), self._fence)

    def die(self) -> None:
        """SIGKILL, at whatever step."""
        self.alive = False
        self._plain.died()
        for cursor in self._cursors:
            cursor.close()

    def _end(self, error: BaseException | None) -> None:
        if self.alive:
            self.die()
            self._over(error)

    def _fence(self) -> None:
        """init_transactions(): from now on nobody else writes; what others wrote is read after that."""
        self._cluster.timelines.holder = self
        self.later(self.world.delay(), self._read)

    def _read(self) -> None:
        self._cursors = [
            Cursor(self, self._cluster.timelines, self._take_timeline),
            Cursor(self, self._cluster.writers, self._take_writer),
        ]
        self._cursors[1].lag = self.world.rng.choice((0.0, 0.0, 0.0, 0.4))
        for cursor in self._cursors:
            cursor.look(self._was_read)

    def _was_read(self, _: float) -> None:
        self._started += 1
        if self._started == len(self._cursors):
            assert self._timeline is not None
            self._busy = False
            self._step(events.Started(self._timeline, self._stamp))
            self._tick()

    def _tick(self) -> None:
        self.wake()
        self.later(0.3, self._tick)

    def _take_timeline(self, timeline: Timeline, offset: int) -> None:
        if self._awaited is None and self.machine.timeline is not None and timeline != self._timeline:
            self._end(ControllerFencedError("t"))
        self._timeline, self._stamp = timeline, self._cluster.timelines.stamps[offset]

    def _take_writer(self, record: Any, offset: int) -> None:
        self.writers.apply(record, offset, self.clock(), self._cluster.writers.stamps[offset])

    def _step(self, event: events.Event) -> None:
        if not self.alive:
            return
        self._actions.extend(self.machine.step(event, self.clock()))
        self._carry_on()

    def wake(self) -> None:
        """What was read may be what is awaited."""
        if not self.alive or self.machine.phase is events.Phase.BEGIN:
            return
        if self._awaited is not None and self._timeline == self._awaited:
            visible, self._awaited = self._awaited, None
            self._step(events.TimelineVisible(visible, self._stamp))
        elif self._awaited is not None and self.world.now - self._wrote_at > 15:
            self._end(KeyorderError("an unknown result: start over"))
            return
        if self.alive and self.machine.phase not in (events.Phase.DONE, events.Phase.FAILED):
            self._step(events.WritersRead())

    def _carry_on(self) -> None:
        while self.alive and self._actions and not self._busy:
            self._carry_out(self._actions.popleft())

    def _carry_out(self, action: events.Action) -> None:
        if self.world.chance("controller killed", self._killed):
            self._end(None)
        elif isinstance(action, events.WriteTimeline):
            self._awaited, self._wrote_at = action.timeline, self.world.now
            if self.world.chance("transaction without a result", 0.02):
                if self.world.random() < 0.5:
                    self.world.after(self.world.delay(), self._cluster.timelines.write, self, action.timeline)
                self._end(KeyorderError("an unknown result: start over"))
            else:
                # On the wire: it arrives, or is refused, whatever becomes of this process.
                self.world.after(self.world.delay(), self._append, action.timeline)
        elif isinstance(action, events.EnsurePartitions):
            self._ensure(action.count)
        elif isinstance(action, events.LookAtWriters):
            self._cursors[1].look(lambda began: self._step(events.WritersLooked(began)))
        elif isinstance(action, events.StampWriters):
            self.world.after(self.world.delay(), self._stamp_writers)
        elif isinstance(action, events.Expel):
            self._expel(action.nonce)
        elif isinstance(action, events.ReadCuts):
            self._busy = True
            self._read_cuts(list(action.partitions), {})
        elif isinstance(action, events.Finish):
            self._end(None)
        elif isinstance(action, events.Fail):
            self._end(action.error)

    def _append(self, timeline: Timeline) -> None:
        if not self._cluster.timelines.write(self, timeline):
            self.run(self._end, ControllerFencedError("t"))

    def _ensure(self, count: int) -> None:
        self._busy = True
        self.world.after(self.world.delay(), self._cluster.ensure_partitions, count)
        self.later(self.world.delay() + self.world.delay(), self._ensured, count)

    def _ensured(self, count: int) -> None:
        if len(self._cluster.partitions) < count:
            self.later(0.1, self._ensured, count)
            return
        self._busy = False
        self._step(events.PartitionsReady())

    def _stamp_writers(self) -> None:
        """A record of its own is appended, which nobody else minds; and read back, with all before it."""
        stamp = self._cluster.clock.stamp()
        self.run(self._cursors[1].look, lambda _: self._stamped(stamp))

    def _stamped(self, stamp: Stamp) -> None:
        clock = self._cluster.clock
        wall_ms = clock.wall_ms() if self._lying else round((1e6 + self.world.now) * 1000)
        self.world.faults["writers stamped"] = self.world.faults.get("writers stamped", 0) + 1
        if self.machine.phase not in (events.Phase.DONE, events.Phase.FAILED, events.Phase.BEGIN):
            self._step(events.WritersStamped({stamp.partition: stamp}, wall_ms))

    def _expel(self, nonce: str) -> None:
        member = self.writers.get(nonce)
        if member is None:
            return
        self._busy = True
        self.world.faults["writer expelled"] = self.world.faults.get("writer expelled", 0) + 1
        self._plain.send(member.expelled(), self._expelled)

    def _expelled(self, offset: int | None) -> None:
        self._busy = False
        if offset is None:
            self._end(KeyorderError("an unknown result: start over"))
        self._carry_on()

    def _read_cuts(self, partitions: list[int], marks: dict[int, int]) -> None:
        """One leader after the other, at different times. One that is away is asked again; the deadline ends it."""
        if self.machine.phase is not events.Phase.CUTTING:
            self._busy = False
            self._carry_on()
            return
        if not partitions:
            self._busy = False
            self._step(events.CutsRead(marks, round(self.world.random() * 1e12)))
            return
        log = self._cluster.partitions[partitions[0]]
        if log.leader_back > self.world.now:
            self.later(0.5, self._read_cuts, partitions, marks)
            return
        found = {**marks, partitions[0]: len(log.rows)}
        self.later(self.world.delay(), self._read_cuts, partitions[1:], found)
