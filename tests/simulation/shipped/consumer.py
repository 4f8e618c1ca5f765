"""The client library's Consumer, on the simulated cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from confluent_kafka import OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition
from simulation.shipped.broker import Link, Place, await_answer
from simulation.shipped.client import Answer, Client, flag
from simulation.shipped.fetcher import Fetcher
from simulation.shipped.membership import Membership
from simulation.shipped.scheduler import Task, here, task_here

Callback = Callable[[Any, list[TopicPartition]], None]


class Interrupted(Exception):
    """Of a signal's handler, inside of a call: what the library was about to hand over is thrown away."""


class Consumer(Client):
    """As confluent_kafka.Consumer, as far as the product uses it."""

    def __init__(self, config: dict[str, Any], /, **kwargs: Any) -> None:
        super().__init__({**config, **kwargs})
        get = self.config.get
        self.committed_only = str(get("isolation.level", "read_committed")) == "read_committed"
        self.tells_ends = flag(get("enable.partition.eof", False))
        self.reset = str(get("auto.offset.reset", "latest"))
        self.fetch_wait = int(get("fetch.wait.max.ms", 500)) / 1000
        self.fetchers: dict[Place, Fetcher] = {}
        self.paused: set[Place] = set()
        self.members = Membership(self)
        self.changed = False
        self._on_commit = get("on_commit")
        self._coordinator = Link(self.cluster, self.process)
        self._events: deque[Callable[[], None]] = deque()
        self._waiting: list[Task] = []
        self._turn = 0
        if get("group.id") is None:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "group.id must be set"))

    # Records.

    def arrived(self) -> None:
        """Something has come: whoever polls goes on."""
        for task in self._waiting:
            self.cluster.scheduler.wake(task)

    def event(self, call: Callable[[], None]) -> None:
        """A callback that the next poll serves."""
        self._events.append(call)
        self.arrived()

    def poll(self, timeout: float | None = -1) -> Message | None:
        """As the real one."""
        found = self._take(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """As the real one: it waits until there are that many."""
        return self._take(num_messages, timeout)

    def _take(self, wanted: int, timeout: float | None) -> list[Message]:
        scheduler, me = here(), task_here()
        self.check_open()
        scheduler.pass_turn()
        self.members.polled_at = scheduler.now
        until = inf if timeout is None or timeout < 0 else scheduler.now + timeout
        taken: list[Message] = []
        while len(taken) < wanted:
            if self._events:
                self._events.popleft()()
                continue
            message = self._next()
            if message is not None:
                taken.append(message)
                continue
            left = until - scheduler.now
            if left <= 0:
                break
            self._waiting.append(me)
            scheduler.park(None if left == inf else left, "poll")
            self._waiting.remove(me)
        self.members.polled_at = scheduler.now
        if self.members.subscribed and self.cluster.trouble and self.cluster.chance("interrupted", 0.005):
            raise Interrupted
        return taken

    def _next(self) -> Message | None:
        ready = [f for f in self.fetchers.values() if f.queued and f.place not in self.paused]
        if not ready:
            return None
        # Some of one partition, then some of the next: as batches come.
        self._turn += self.cluster.scheduler.rng.random() < 0.3
        fetcher = ready[self._turn % len(ready)]
        message = fetcher.queued.popleft()
        offset = message.offset()
        if message.error() is None and offset is not None:
            fetcher.returned = offset + 1
        fetcher.fetch()
        return message

    # What is assigned.

    def assign(self, partitions: list[TopicPartition]) -> None:
        """As the real one."""
        self.check_open()
        here().pass_turn()
        self._changes(gives_back=False)
        self._drop_all()
        self._add(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """As the real one."""
        self.check_open()
        here().pass_turn()
        self._changes(gives_back=False)
        for p in partitions:
            if (p.topic, p.partition) in self.fetchers:
                raise KafkaException(KafkaError(KafkaError._CONFLICT, f"{p.topic}[{p.partition}] is assigned already"))
        self._add(partitions)

    def unassign(self) -> None:
        """As the real one."""
        self.check_open()
        here().pass_turn()
        self._changes(gives_back=True)
        self._drop_all()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """As the real one."""
        self.check_open()
        here().pass_turn()
        self._changes(gives_back=True)
        for p in partitions:
            if (p.topic, p.partition) not in self.fetchers:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"{p.topic}[{p.partition}] is not assigned"))
        for p in partitions:
            self._drop((p.topic, p.partition))

    def _changes(self, gives_back: bool) -> None:
        self.changed = True
        self.members.changed(gives_back)

    def _add(self, partitions: list[TopicPartition]) -> None:
        for p in partitions:
            place = (p.topic, p.partition)
            fetcher = self.fetchers[place] = Fetcher(self, place, p.offset)
            if p.offset in (OFFSET_INVALID, -1000):
                committed = self.cluster.group(str(self.config["group.id"])).offsets.get(place)
                if committed is not None:
                    fetcher.begin = committed[0]
                elif self.reset in ("latest", "largest", "end"):
                    fetcher.begin = OFFSET_END
            fetcher.fetch()

    def _drop_all(self) -> None:
        for place in list(self.fetchers):
            self._drop(place)

    def _drop(self, place: Place) -> None:
        self.fetchers.pop(place).stop()

    def assignment(self) -> list[TopicPartition]:
        """As the real one."""
        self.check_open()
        return [TopicPartition(*place) for place in self.fetchers]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """As the real one: what was fetched and not handed over is fetched again after the resume."""
        here().pass_turn()
        if self._unheard():
            return
        for p in partitions:
            place = (p.topic, p.partition)
            fetcher = self.fetchers.get(place)
            if fetcher is not None and place not in self.paused:
                self.paused.add(place)
                fetcher.stop()

    def _unheard(self) -> bool:
        """Whether a pause or a resume meets one of the library's own, as a rebalance is announced: it is dropped then."""
        return bool(self._events) and self.cluster.chance("pause or resume unheard", 0.3)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """As the real one."""
        here().pass_turn()
        if self._unheard():
            return
        for p in partitions:
            place = (p.topic, p.partition)
            fetcher = self.fetchers.get(place)
            if place in self.paused:
                self.paused.discard(place)
                if fetcher is not None:
                    fetcher.restart()

    def seek(self, partition: TopicPartition) -> None:
        """As the real one."""
        here().pass_turn()
        fetcher = self.fetchers.get((partition.topic, partition.partition))
        if fetcher is None or fetcher.over:
            raise KafkaException(KafkaError(KafkaError._STATE, "Failed to seek: Local: Erroneous state"))
        fetcher.restart(partition.offset)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """As the real one: behind what was handed over last."""
        found = []
        for p in partitions:
            fetcher = self.fetchers.get((p.topic, p.partition))
            found.append(TopicPartition(p.topic, p.partition, OFFSET_INVALID if fetcher is None else fetcher.returned))
        return found

    # The group.

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """As the real one."""
        self.check_open()
        here().pass_turn()
        self.members.subscribe(topics, on_assign, on_revoke, on_lost)

    def unsubscribe(self) -> None:
        """As the real one."""
        self.check_open()
        here().pass_turn()
        self.members.unsubscribe()

    def memberid(self) -> str:
        """As the real one."""
        return self.members.member

    def consumer_group_metadata(self) -> bytes:
        """As the real one: opaque."""
        group = str(self.config["group.id"])
        return f"{group}\n{self.members.generation}\n{self.members.member}".encode()

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """As the real one, where offsets are not stored by the library."""
        self.check_open()
        given = list(offsets or [])
        if message is not None:
            given = [TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)]
        places = {(p.topic, p.partition): (p.offset, p.metadata or "") for p in given if p.offset >= 0}

        def begin(answered: Callable[..., None]) -> None:
            group = self.cluster.group(str(self.config["group.id"]))
            member, generation = self.members.member, self.members.generation
            self._coordinator.ask(lambda reply: group.commit(member, generation, places, reply), answered)

        def results(code: int | None) -> list[TopicPartition]:
            made = [Answer(t, p, offset, metadata) for (t, p), (offset, metadata) in places.items()]
            for place in made:
                place.error = None if code is None else KafkaError(code)
            return list(made)

        if asynchronous:
            here().pass_turn()

            def arrived(code: int | None) -> None:
                if self._on_commit is not None:
                    error = None if code is None else KafkaError(code)
                    self.event(lambda: self._on_commit(error, results(code)))

            if places:
                begin(arrived)
            else:
                arrived(KafkaError._NO_OFFSET)
            return None
        if not places:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))
        (code,) = await_answer(begin, 60.0, "commit")
        if code is not None:
            raise KafkaException(KafkaError(code))
        return results(None)

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Not used by the product: it keeps positions by itself."""
        raise NotImplementedError

    def committed(self, partitions: list[TopicPartition], timeout: float | None = -1) -> list[TopicPartition]:
        """As the real one."""
        self.check_open()
        group = self.cluster.group(str(self.config["group.id"]))
        places = [(p.topic, p.partition) for p in partitions]
        (found,) = await_answer(
            lambda answered: self._coordinator.ask(
                lambda reply: group.fetch_offsets(places, self.committed_only, reply), answered
            ),
            timeout,
            "committed",
        )
        made = []
        for topic, partition in places:
            offset, metadata = found.get((topic, partition), (OFFSET_INVALID, ""))
            made.append(TopicPartition(topic, partition, offset, metadata))
        return made

    # The cluster.

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = -1) -> list[TopicPartition]:
        """As the real one; -1 and -2 ask for the end and the start."""
        self.check_open()

        def begin(answered: Callable[..., None]) -> None:
            found: list[TopicPartition] = []

            def one(place: TopicPartition, reply: Callable[..., None]) -> None:
                log = self.cluster.log(place.topic, place.partition)
                made = Answer(place.topic, place.partition, OFFSET_END)
                if log is None:
                    made.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
                elif log.leader_back > self.cluster.scheduler.now:
                    self.cluster.scheduler.after(log.leader_back - self.cluster.scheduler.now, one, place, reply)
                    return
                elif place.offset == -2:
                    made.offset = log.start
                elif place.offset == -1:
                    made.offset = log.stable_end if self.committed_only else log.end
                else:
                    later = (n for n, r in enumerate(log.records) if r.timestamp[1] >= place.offset)
                    made.offset = next(later, OFFSET_END)
                reply(made)

            def came(made: TopicPartition) -> None:
                found.append(made)
                if len(found) == len(partitions):
                    answered(sorted(found, key=lambda p: (p.topic, p.partition)))

            for place in partitions:
                log = self.cluster.log(place.topic, place.partition)
                self.link(0 if log is None else log.leader).ask(lambda reply, place=place: one(place, reply), came)

        (answer,) = await_answer(begin, timeout, "offsets_for_times")
        return list(answer)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """As the real one. cached: what it has heard last, without a question; at best the end as it is."""
        log = self.cluster.log(partition.topic, partition.partition)
        if log is None:
            return None
        if cached:
            return log.start, log.end
        answer: tuple[int, int]
        (answer,) = await_answer(
            lambda answered: self.link(log.leader).ask(lambda reply: reply((log.start, log.end)), answered),
            timeout,
            "get_watermark_offsets",
        )
        return answer

    def looked(self) -> None:
        """Metadata of all topics has come."""
        self.members.look_for_partitions()

    def close(self) -> None:
        """As the real one: a member hears of its revocation, and leaves."""
        if self.closed:
            return
        here().pass_turn()
        self.members.close()
        self._drop_all()
        self.closed = True
