"""A sink task's own thread: what it does after a standstill, and after the task has asked to go on from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, TopicPartition
from keyorder.connector.connect import RetriableError, SinkRecord, SinkTask
from keyorder.connector.connect.runtime.plugins import Plugins
from keyorder.connector.connect.runtime.settings import connector_definition
from keyorder.connector.connect.runtime.tasks import sink_task, standstill
from keyorder.connector.connect.runtime.tasks.parking import ReleaseMode
from keyorder.connector.connect.runtime.tasks.sink_errors import ErrorRouting
from keyorder.connector.connect.runtime.tasks.sink_records import SinkReader
from keyorder.connector.connect.runtime.tasks.sink_task import WorkerSinkTask
from keyorder.connector.connect.runtime.tasks.task_base import TaskId, TaskSpec
from keyorder.connector.connect.runtime.tasks.tolerance import StoppedError

SESSION = 45.0
Place = tuple[str, int]


class Message:
    """A record of the key k in a partition of t."""

    def __init__(self, offset: int, partition: int = 0) -> None:
        self._offset, self._partition = offset, partition

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 0


class Sink(SinkTask):
    """Says what it is given. asks: by offset, what it does the first time that it is given that record."""

    def __init__(self, seen: list[Any], asks: dict[int, Callable[[Sink], None]]) -> None:
        self._seen, self._asks = seen, asks

    def start(self, config: Mapping[str, str]) -> None:
        pass

    def open(self, places: Sequence[Place]) -> None:
        self._asked(-1)

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._seen.append(("put", [record.offset for record in records]))
        for record in records:
            self._asked(record.offset)

    def flush(self, offsets: Mapping[Place, int]) -> None:
        self._seen.append("flush")

    def _asked(self, offset: int) -> None:
        self._asks.pop(offset, lambda _: None)(self)


class Rig:
    """A task on this thread and clock, its consumer, and its group.

    turns: what each call of `consume` does and returns; after the last one the task is to stop. member: whether the group
    has the task among its own. seen: all that was done, in order.
    """

    strays = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.seen: list[Any] = []
        self.turns: list[Callable[[], list[Message]]] = []
        self.asks: dict[int, Callable[[Sink], None]] = {}
        self.member, self.now, self.interval_ms = True, 1000.0, 60_000
        self.routing: Any = None
        self._places = [TopicPartition("t", number) for number in range(partitions)]
        self._committed = dict.fromkeys(range(partitions), 0)
        clock = SimpleNamespace(now=lambda: self.now)
        for module in (sink_task, standstill):
            monkeypatch.setattr(module, "clock", clock)
        monkeypatch.setattr(sink_task, "time", SimpleNamespace(sleep=self.pass_time))
        monkeypatch.setattr(sink_task, "OrderedConsumer", lambda config: self)
        routing = sink_task.error_routing
        monkeypatch.setattr(sink_task, "error_routing", lambda *args: self.routing or routing(*args))

    def run(self) -> WorkerSinkTask:
        """All turns, and the end."""
        config = {
            "name": "c",
            "connector.class": "Sink",
            "topics": "t",
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
        }
        parsed = {**connector_definition("sink").parse(config), "offset.flush.interval.ms": self.interval_ms}
        worker = {"bootstrap.servers": "nowhere:1"}
        made: Any = partial(Sink, self.seen, self.asks)
        spec = TaskSpec(TaskId("c", 0, 1), "sink", made, {}, config, parsed, worker, False)
        self.task = WorkerSinkTask(spec, Plugins((), ()), "parked", lambda *_: None, str)
        self.task.run()
        assert not self.task.failed
        return self.task

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    # -- the consumer ----------------------------------------------------------------------------------------------

    def subscribe(self, topics: list[str], listener: Any) -> None:
        self._listener = listener
        listener.on_assign(self._places)

    def assignment(self) -> list[TopicPartition]:
        return self._places

    def pause(self, places: list[TopicPartition]) -> None:
        pass

    resume = pause

    def key_epoch(self, *_: Any) -> int:
        return 0

    def may_have(self, *_: Any) -> bool:
        return True

    def consume(self, count: int, wait: float) -> list[Message]:
        step = self.turns.pop(0) if self.turns else list
        if not self.turns:
            self.task.stopping.set()
        return step()

    def seek(self, place: TopicPartition) -> None:
        self.seen.append(("seek", place.partition, place.offset))

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.seen.append("ask")
        return [TopicPartition(p.topic, p.partition, self._committed[p.partition]) for p in places]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        said = {place.partition: place.offset for place in offsets}
        if not self.member:
            self.seen.append("refused")
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
        self.seen.append(("commit", said))
        self._committed.update(said)

    def close(self) -> None:
        self._listener.on_revoke(self._places)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def stands_still(rig: Rig, member: bool) -> list[Message]:
    """The process stops for longer than its session; the group has kept this member, or has given it up."""
    rig.now += SESSION + 1
    rig.member = member
    return []


# -- standstills ---------------------------------------------------------------------------------------------------


def test_a_task_that_the_group_gave_up_while_it_stood_still_flushes_nothing(rig: Rig) -> None:
    """Not in the commit that is overdue, not at the end, not when its partitions go: the new owner has flushed more."""
    rig.turns = [lambda: [Message(0), Message(1)], lambda: stands_still(rig, False), list, list]
    rig.interval_ms = 1000
    task = rig.run()
    assert rig.seen[0] == ("put", [0, 1])
    assert set(rig.seen[1:]) == {"ask", "refused"}
    assert task.metrics.snapshot()["offset_commit_failed_total"] > 0


def test_a_task_that_stood_still_and_is_still_a_member_asks_once_and_commits(rig: Rig) -> None:
    """What it asks with is the group's own last commit, which changes nothing."""
    rig.turns = [lambda: [Message(0), Message(1)], lambda: stands_still(rig, True), list, list]
    rig.interval_ms = 1000
    rig.run()
    assert rig.seen == [("put", [0, 1]), "ask", ("commit", {0: 0}), "flush", ("commit", {0: 2})]


def test_a_task_that_did_not_stand_still_asks_nothing(rig: Rig) -> None:
    rig.turns = [lambda: [Message(0)], list]
    rig.run()
    assert rig.seen == [("put", [0]), "flush", ("commit", {0: 1})]


def test_a_commit_before_a_key_moves_asks_the_group_after_a_standstill(rig: Rig) -> None:
    """The consumer asks for a flush inside `consume`."""

    def moves() -> list[Message]:
        stands_still(rig, False)
        rig.task.keys_leave([("t", 0)])
        return []

    rig.turns = [lambda: [Message(0)], moves]
    rig.run()
    assert set(rig.seen[1:]) == {"ask", "refused"}


@pytest.mark.parametrize("records", [[0, 1], []])
def test_a_task_that_stood_still_while_it_read_the_list_of_parked_keys_releases_none(
    rig: Rig, records: list[int]
) -> None:
    """Whether or not there was something to commit before."""
    rig.routing = parking(rig)

    def releases() -> list[tuple[Any, ReleaseMode]]:
        stands_still(rig, False)
        return [(SimpleNamespace(topic="t", key=b"k", partition=0), ReleaseMode.REPLAY)]

    def asked() -> list[Message]:
        rig.routing.parking.releases = releases
        rig.now += 1.0
        return []

    rig.routing.release = lambda *_: rig.seen.append("release") or 0
    rig.turns = [lambda: [Message(offset) for offset in records], asked, list]
    rig.run()
    assert [each for each in rig.seen if each not in ("ask", "refused")] == [("put", [offset]) for offset in records]
    assert rig.seen[-2:] == ["ask", "refused"]


# -- stops ---------------------------------------------------------------------------------------------------------


def test_nothing_passes_a_record_whose_conversion_a_stop_has_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what was read behind it put, of any partition; what was read before it is."""
    rig, entry = Rig(monkeypatch, 2), SinkReader.entry

    def stopped(self: SinkReader, message: Any) -> Any:
        if (message.partition(), message.offset()) == (0, 2):
            raise StoppedError("the task is to stop")
        return entry(self, message)

    monkeypatch.setattr(SinkReader, "entry", stopped)
    rig.turns = [lambda: [Message(1), Message(10, 1), Message(2), Message(11, 1), Message(3)]]
    task = rig.run()
    assert rig.seen == [("put", [1, 10]), "flush", ("commit", {0: 2, 1: 11})]
    assert task.metrics.snapshot()["sink_record_read_total"] == 3


# -- rewinds -------------------------------------------------------------------------------------------------------


def parking(rig: Rig) -> ErrorRouting:
    """The policy park-key, with nothing parked: each record of a key is a batch of its own."""
    nothing: Any = SimpleNamespace(
        holds=lambda *_: False,
        refresh=lambda: None,
        poll=lambda: None,
        releases=list,
        close=lambda: None,
    )
    tolerance: Any = SimpleNamespace(tolerate=True)
    return ErrorRouting(("c", 0), tolerance, None, nothing, None, str)


def goes_on(partition: int, offset: int) -> Callable[[Sink], None]:
    return lambda task: task.context.offset({("t", partition): offset})


def test_nothing_that_follows_is_put_before_a_rewind(rig: Rig) -> None:
    """What was read behind it is dropped, and comes again from where the task goes on."""
    rig.routing = parking(rig)
    rig.asks = {1: goes_on(0, 1)}
    rig.turns = [lambda: [Message(1), Message(2), Message(3)], lambda: [Message(1), Message(2)], list]
    rig.run()
    assert rig.seen == [
        ("put", [1]),
        ("seek", 0, 1),
        ("put", [1]),
        ("put", [2]),
        "flush",
        ("commit", {0: 3}),
    ]


def test_a_rewind_of_one_partition_leaves_the_records_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are put at once, in their order."""
    rig = Rig(monkeypatch, 2)
    rig.routing = parking(rig)
    rig.asks = {1: goes_on(0, 1)}
    rig.turns = [lambda: [Message(1), Message(10, 1), Message(2), Message(11, 1)], list]
    rig.run()
    assert rig.seen == [
        ("put", [1]),
        ("seek", 0, 1),
        ("put", [10]),
        ("put", [11]),
        "flush",
        ("commit", {0: 1, 1: 12}),
    ]


def test_a_rewind_with_the_last_record_before_the_end_is_committed(rig: Rig) -> None:
    """The next run of the task goes on where this one wanted to."""
    rig.asks = {2: goes_on(0, 1)}
    rig.turns = [lambda: [Message(1), Message(2)]]
    rig.run()
    assert rig.seen == [("put", [1, 2]), ("seek", 0, 1), "flush", ("commit", {0: 1})]


def test_a_rewind_in_a_put_that_failed_for_now_is_committed_at_the_end(rig: Rig) -> None:
    """The records that would be put again are dropped with it."""

    def fails(task: Sink) -> None:
        task.context.offset({("t", 0): 1})
        raise RetriableError("not now")

    rig.asks = {2: fails}
    rig.turns = [lambda: [Message(1)], lambda: [Message(2)]]
    rig.run()
    assert rig.seen == [("put", [1]), ("put", [2]), ("seek", 0, 1), "flush", ("commit", {0: 1})]


def test_a_task_that_opens_a_partition_elsewhere_is_given_nothing_from_before(rig: Rig) -> None:
    """The consumer has read from the committed offset on in the call in which the partition came."""

    def come() -> list[Message]:
        rig.asks[-1] = goes_on(0, 5)
        rig.task.assigned([("t", 0)])
        return [Message(2)]

    rig.turns = [come, lambda: [Message(5)], list]
    rig.run()
    assert rig.seen == [("seek", 0, 5), ("put", [5]), "flush", ("commit", {0: 6})]
