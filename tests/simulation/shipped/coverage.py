"""Which events met which states of reader, writer and controller in a history: pairs that were taken, and those never seen.

A state of a reader is that of one partition, as ARCHITECTURE.md has them; an event is what happens to it. `watch` notes
the pairs from outside, so that the shipped code has nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from keyorder.connector.consuming.delivery import Delivery
from keyorder.connector.consuming.gates.gating import Gatekeeper
from keyorder.connector.consuming.membership import Membership
from keyorder.connector.consuming.partition_control import PartitionControl
from keyorder.connector.consuming.partition_state import PartitionState
from keyorder.connector.consuming.progress import Phase
from keyorder.connector.consuming.records.reading import Intake
from keyorder.partitioner.changes.change import ChangeMachine, transitions
from keyorder.partitioner.writers import events
from keyorder.partitioner.writers.lease import Standing
from keyorder.partitioner.writers.writer import Writer

#: Of a partition that a member owns.
STATES = ("starting", "reading", "gated", "sealed", "in doubt", "stopped")
EVENTS = (
    "timeline read",
    "position moved",
    "fetched",
    "processed",
    "assigned again",
    "revoked",
    "lost",
    "paused",
    "resumed",
    "call cut short",
)

#: "machine: state, event", taken in this process.
taken: set[str] = set()
_deliveries: dict[int, Delivery] = {}


def all_pairs() -> set[str]:
    """Every pair there is. Of the controller those that its table knows: any other is an error there."""
    writer = {(s.value, e.__name__) for s in Standing for e in get_args(events.Event)}
    reader = {(s, e) for s in STATES for e in EVENTS}
    known = (("writer", writer), ("reader", reader), ("controller", set(transitions())))
    return {_pair(machine, *pair) for machine, pairs in known for pair in pairs}


def _pair(machine: str, state: str, event: str) -> str:
    return f"{machine}: {state}, {event}"


def watch() -> None:
    """Note the pairs of the histories that this process plays from now on."""
    _watch_machines()
    _watch_readers()


def _watch_machines() -> None:
    write, change = Writer.step, ChangeMachine.step

    def writer_step(self: Writer, event: Any, now: float) -> Any:
        taken.add(_pair("writer", self.lease.standing.value, type(event).__name__))
        return write(self, event, now)

    def change_step(self: ChangeMachine, event: Any, now: float) -> Any:
        taken.add(_pair("controller", self.phase.value, type(event).__name__))
        return change(self, event, now)

    Writer.step, ChangeMachine.step = writer_step, change_step  # type: ignore[method-assign]


def _state(delivery: Delivery, owned: PartitionState) -> str:
    if owned.topic in delivery._members.stopped._errors:
        return "stopped"
    if not owned.started:
        return "starting"
    if delivery._membership_check.in_doubt:
        return "in doubt"
    if owned.gates.sealed_at is not None:
        return "sealed"
    return "reading" if owned.gates.closed is None else "gated"


def _happened(event: str, assignment: Any, places: Iterable[Any]) -> None:
    delivery = _deliveries.get(id(assignment))
    for place in places:
        owned = assignment.owned.get(place)
        if delivery is not None and owned is not None:
            taken.add(_pair("reader", _state(delivery, owned), event))


def _before(owner: type, name: str, call: Callable[..., None]) -> None:
    """Have `call` called with the arguments of a method, before it."""
    method = getattr(owner, name)

    def called(self: Any, *args: Any, **named: Any) -> Any:
        call(self, *args, **named)
        return method(self, *args, **named)

    setattr(owner, name, called)


def _watch_readers() -> None:
    begin = Delivery.__init__

    def made(self: Delivery, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        _deliveries[id(self._assignment)] = self

    Delivery.__init__ = made  # type: ignore[method-assign]

    def told(event: str) -> Callable[..., None]:
        def note(self: Any, _: Any, partitions: list[Any]) -> None:
            _happened(event, self._assignment, [(p.topic, p.partition) for p in partitions])

        return note

    _before(Membership, "assigned", told("assigned again"))
    _before(Membership, "revoked", told("revoked"))
    _before(Membership, "lost", told("lost"))

    def controlled(event: str) -> Callable[..., None]:
        def note(self: Any, partitions: list[Any]) -> None:
            _happened(event, self._assignment, [(p.topic, p.partition) for p in partitions])

        return note

    _before(PartitionControl, "pause", controlled("paused"))
    _before(PartitionControl, "resume", controlled("resumed"))

    def fetched(self: Any, items: Any, _: float) -> None:
        _happened("fetched", self._assignment, {item.place for item in items if hasattr(item, "place")})

    def looks(self: Any, topic: str, *_: Any) -> None:
        places = [place for place in self._assignment.owned if place[0] == topic]
        if self._machine.judged(topic) is not self._assignment.view(topic):
            _happened("timeline read", self._assignment, places)
        if self._machine.has_moved(topic):
            _happened("position moved", self._assignment, places)

    def recovers(self: Any) -> None:
        if self._progress.phase is not Phase.REST:
            _happened("call cut short", self._assignment, self._assignment.owned)

    def processed(self: Any) -> None:
        if self.out.returned:
            _happened("processed", self._assignment, self.out.returned)

    _before(Intake, "take", fetched)
    _before(Gatekeeper, "_look", looks)
    _before(Delivery, "_recover", recovers)
    _before(Delivery, "_finished", processed)
