"""The client library's Producer: idempotent, with transactions, on the simulated cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition, murmur2
from simulation.shipped.broker import Headers, Log, Place, Transaction, await_answer, on_process
from simulation.shipped.client import Client
from simulation.shipped.scheduler import Task, here, task_here

Report = Callable[[KafkaError | None, Message], None]
#: A request whose records have timed out may be carried out this much later.
LATE = 1.5


class Sending:
    """A record on its way. state: queued, sent or over."""

    __slots__ = (
        "arrives",
        "deadline",
        "dropped",
        "headers",
        "key",
        "offset",
        "place",
        "report",
        "state",
        "timestamp",
        "value",
    )

    def __init__(
        self,
        place: Place,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        report: Report | None,
        deadline: float,
    ) -> None:
        self.place, self.key, self.value, self.headers = place, key, value, headers
        self.timestamp, self.report, self.deadline = timestamp, report, deadline
        self.state, self.dropped, self.offset, self.arrives = "queued", False, -1, 0.0


class Producer(Client):
    """As confluent_kafka.Producer, as far as the product uses it."""

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        super().__init__({**(config or {}), **kwargs})
        get = self.config.get
        self._timeout = int(get("message.timeout.ms", get("delivery.timeout.ms", 300_000))) / 1000
        self._most = int(get("queue.buffering.max.messages", 100_000)) or 10**9
        self._id: str | None = get("transactional.id")
        self._transaction_timeout = int(get("transaction.timeout.ms", 60_000)) / 1000
        self._epoch, self._fatal = -1, False
        self._open = False
        self._transaction: Transaction | None = None
        self._pipes: dict[Place, deque[Sending]] = {}
        self._there: dict[Place, float] = {}
        self._wire: dict[Place, deque[tuple[Sending, int]]] = {}
        self._on_the_way = 0
        self._reports: deque[tuple[Report, KafkaError | None, Message]] = deque()
        self._waiting: list[Task] = []
        self._lives_until = inf
        self.process.at_death.append(self._died)

    def _died(self) -> None:
        self._lives_until = self.cluster.scheduler.now + self.cluster.scheduler.rng.random() * LATE

    def __len__(self) -> int:
        return self._on_the_way + len(self._reports)

    def __bool__(self) -> bool:
        return True

    # Records.

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """As the real one."""
        self.check_open()
        here().pass_turn()
        if self._fatal:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
        if self._id is not None and not self._open:
            raise KafkaException(KafkaError(KafkaError._STATE, "no transaction is open"))
        if self._on_the_way + len(self._reports) >= self._most:
            raise BufferError("Local: Queue full")
        key, value = _bytes(key), _bytes(value)
        found = self.cluster.topics.get(topic)
        if partition < 0:
            count = 1 if found is None else len(found.logs)
            partition = murmur2(key, count) if key is not None else self.cluster.scheduler.rng.randrange(count)
        pairs = list(headers.items()) if isinstance(headers, dict) else headers
        listed = [(name, _bytes(data)) for name, data in pairs] if pairs else None
        scheduler = self.cluster.scheduler
        place = topic, partition
        sending = Sending(place, key, value, listed, timestamp, on_delivery or callback, scheduler.now + self._timeout)
        self._on_the_way += 1
        pipe = self._pipes.setdefault(place, deque())
        pipe.append(sending)
        log = self.cluster.log(topic, partition)
        if log is None:
            scheduler.after(1.0, on_process, self.process, self._fail, [sending], KafkaError._UNKNOWN_PARTITION)
            return
        late = max(scheduler.now, log.leader_back) + self.cluster.delay() + self.cluster.slow.get(topic, 0.0)
        self._there[place] = sending.arrives = max(self._there.get(place, 0.0), late)
        wire = self._wire.setdefault(place, deque())
        wire.append((sending, self._transaction_of()))
        if len(wire) == 1:
            scheduler.after(sending.arrives - scheduler.now, self._at_broker, log, wire)
        scheduler.after(self._timeout, on_process, self.process, self._time_out, place)

    def _transaction_of(self) -> int:
        return -1 if self._id is None else self._number

    def _at_broker(self, log: Log, wire: deque[tuple[Sending, int]]) -> None:
        """The first on the wire arrives, and those that arrive with it: one behind the other, whatever happens."""
        scheduler, cluster = self.cluster.scheduler, self.cluster
        while wire:
            due = max(wire[0][0].arrives, log.leader_back + cluster.delay() if log.leader_back > scheduler.now else 0.0)
            if due > scheduler.now:
                scheduler.after(due - scheduler.now, self._at_broker, log, wire)
                return
            sending, number = wire.popleft()
            if scheduler.now <= self._lives_until and not sending.dropped:
                self._append(log, sending, number)

    def _append(self, log: Log, sending: Sending, number: int) -> None:
        scheduler, cluster = self.cluster.scheduler, self.cluster
        transaction = None
        if self._id is not None:
            if cluster.ids[self._id].epoch != self._epoch:
                scheduler.after(cluster.delay(), on_process, self.process, self._fence)
                return
            if number != self._number or not self._open:
                return
            transaction = cluster.part_of(self._id, self._transaction_timeout)
        sending.offset = log.append(sending.key, sending.value, sending.headers, sending.timestamp, transaction)
        back = cluster.delay()
        if cluster.trouble and cluster.chance("acknowledgement lost", 0.01 * cluster.trouble):
            back += scheduler.rng.uniform(1.0, self._timeout + 2)
        scheduler.after(back, on_process, self.process, self._acknowledged, sending)

    def _acknowledged(self, sending: Sending) -> None:
        """Answers keep the order of their partition."""
        if sending.state == "over":
            return
        sending.state = "answered"
        pipe = self._pipes[sending.place]
        while pipe and pipe[0].state == "answered":
            self._over(pipe.popleft(), None)

    def _time_out(self, place: Place) -> None:
        scheduler = self.cluster.scheduler
        pipe = self._pipes.get(place)
        if not pipe or all(s.deadline > scheduler.now + 1e-9 for s in pipe):
            return
        # As a client without gaps: what was sent behind it fails with it.
        late = list(pipe)
        dropped = False
        for sending in late:
            # What is on the wire may be carried out; behind one that is not nothing is.
            dropped = dropped or sending.arrives > scheduler.now + LATE or scheduler.rng.random() < 0.3
            sending.dropped = dropped and sending.offset < 0
        self._fail(late, KafkaError._MSG_TIMED_OUT)

    def _fail(self, failed: list[Sending], code: int) -> None:
        for sending in failed:
            if sending.state != "over":
                self._pipes[sending.place].remove(sending)
                self._over(sending, KafkaError(code))

    def _over(self, sending: Sending, error: KafkaError | None) -> None:
        sending.state = "over"
        self._on_the_way -= 1
        if sending.report is not None:
            message = Message(
                topic=sending.place[0],
                partition=sending.place[1],
                offset=sending.offset if error is None else -1001,
                key=sending.key,
                value=sending.value,
                headers=sending.headers,
                error=error,
            )
            self._reports.append((sending.report, error, message))
        for task in self._waiting:
            self.cluster.scheduler.wake(task)

    def _fence(self) -> None:
        self._fatal = True
        for pipe in list(self._pipes.values()):
            for sending in pipe:
                sending.dropped = True
            self._fail(list(pipe), KafkaError._FENCED)

    # Reports.

    def _serve(self) -> int:
        count = 0
        while self._reports:
            report, error, message = self._reports.popleft()
            count += 1
            report(error, message)
        return count

    def poll(self, timeout: float | None = -1) -> int:
        """As the real one."""
        return self._wait(timeout, lambda served: served > 0)

    def flush(self, timeout: float | None = -1) -> int:
        """As the real one: with nothing on its way it returns at once."""
        if not len(self):
            # Costs a moment here, so that whoever calls it in a loop cannot stop time.
            self.cluster.scheduler.park(0.001)
        self._wait(timeout, lambda served: not len(self))
        return len(self)

    def _wait(self, timeout: float | None, enough: Callable[[int], bool]) -> int:
        self.check_open()
        scheduler, me = here(), task_here()
        scheduler.pass_turn()
        until = inf if timeout is None or timeout < 0 else scheduler.now + timeout
        served = self._serve()
        while not enough(served):
            left = until - scheduler.now
            if left <= 0:
                break
            self._waiting.append(me)
            scheduler.park(None if left == inf else left, "producer")
            self._waiting.remove(me)
            served += self._serve()
        return served

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """As the real one: what is on the wire may arrive."""
        self.check_open()
        here().pass_turn()
        for pipe in list(self._pipes.values()):
            # The wire takes what has half of its way behind it.
            now = self.cluster.scheduler.now
            wired = [s for s in pipe if s.arrives < now + 0.002]
            queued = [s for s in pipe if s not in wired]
            if in_queue:
                for sending in queued:
                    sending.dropped = True
                self._fail(queued, KafkaError._PURGE_QUEUE)
            if in_flight:
                self._fail(wired, KafkaError._PURGE_INFLIGHT)

    # Transactions.

    _number = 0

    def init_transactions(self, timeout: float | None = -1) -> None:
        """As the real one."""
        name = self._needs_id()
        try:
            (self._epoch,) = await_answer(
                lambda answered: self.link(0).ask(lambda reply: self.cluster.begin(name, reply), answered),
                timeout,
                "init_transactions",
            )
        except KafkaException as late:
            raise KafkaException(KafkaError(late.args[0].code(), late.args[0].str(), retriable=True)) from late

    def begin_transaction(self) -> None:
        """As the real one."""
        self._needs_id()
        here().pass_turn()
        self._check_fenced()
        if self._epoch < 0 or self._open:
            raise KafkaException(KafkaError(KafkaError._STATE, "begin_transaction in a wrong state"))
        self._number += 1
        self._open = True

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: bytes, timeout: float | None = -1
    ) -> None:
        """As the real one."""
        name = self._needs_id()
        self._check_fenced()
        group, generation, member = bytes(group_metadata).decode().split("\n")
        places = {(p.topic, p.partition): (p.offset, p.metadata or "") for p in positions if p.offset >= 0}
        if not places:
            return

        def serve(reply: Callable[..., None]) -> None:
            if self.cluster.ids[name].epoch != self._epoch:
                reply(int(KafkaError._FENCED))
            else:
                transaction = self.cluster.part_of(name, self._transaction_timeout)
                self.cluster.group(group).commit_in(transaction, member, int(generation), places, reply)

        (code,) = await_answer(lambda answered: self.link(0).ask(serve, answered), timeout, "send_offsets")
        if code == KafkaError._FENCED:
            self._fence()
            self._check_fenced()
        if code is not None:
            raise KafkaException(KafkaError(code, "offsets refused", txn_requires_abort=True))

    def commit_transaction(self, timeout: float | None = -1) -> None:
        """As the real one."""
        self._check_fenced()
        if self.flush(timeout):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "commit_transaction: not flushed", retriable=True))
        self._check_fenced()
        self._end(True, timeout)

    def abort_transaction(self, timeout: float | None = -1) -> None:
        """As the real one: what is queued is dropped."""
        self._check_fenced()
        for pipe in list(self._pipes.values()):
            for sending in pipe:
                sending.dropped = True
            self._fail(list(pipe), KafkaError._PURGE_QUEUE)
        self._serve()
        self._end(False, timeout)

    def _end(self, committed: bool, timeout: float | None) -> None:
        name = self._needs_id()

        def serve(reply: Callable[..., None]) -> None:
            known = self.cluster.ids[name]
            if known.epoch != self._epoch:
                reply(False)
                return
            if known.transaction is not None:
                self.cluster.end(known, known.transaction, committed)
            # The next one begins when the markers of this one are written.
            self._answer_when_ended(name, reply)

        try:
            (mine,) = await_answer(lambda answered: self.link(0).ask(serve, answered), timeout, "end of transaction")
        except KafkaException as late:
            # As the real one: the call is to be made again, and learns then what became of the first.
            raise KafkaException(KafkaError(late.args[0].code(), late.args[0].str(), retriable=True)) from late
        if not mine:
            self._fence()
            self._check_fenced()
        self._open = False

    def _answer_when_ended(self, name: str, reply: Callable[..., None]) -> None:
        # Decided is not visible: the answer comes at once, and whatever the id does next waits for the markers.
        reply(True)

    def _needs_id(self) -> str:
        self.check_open()
        if self._id is None:
            raise KafkaException(KafkaError(KafkaError._NOT_CONFIGURED, "no transactional.id"))
        return self._id

    def _check_fenced(self) -> None:
        if self._fatal:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer producer", fatal=True))

    def close(self, timeout: float | None = None) -> bool:
        """As the real one."""
        if not self.closed:
            here().pass_turn()
            self.closed = True
            self._lives_until = min(self._lives_until, self.cluster.scheduler.now + 0.002)
        return True


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
