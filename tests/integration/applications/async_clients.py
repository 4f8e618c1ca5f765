"""Applications on asyncio: tasks that are cancelled at every await, time limits around calls, calls from callbacks' tasks.

A task that was cancelled while it awaited records was given none: they have to come with another call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import confluent_kafka.aio
from confluent_kafka import TopicPartition
from keyorder.aio import AIOConsumer, AIOProducer

from .consumers import CalmMember, Ears, Row, listening, rows_of
from .interrupts import FAULTS
from .producers import Entry
from .side import Side, Values


class Canceller:
    """Runs calls as tasks, and cancels some of them after a number of the loop's steps, or by a time limit."""

    def __init__(self, side: Side, how: dict[str, Any] | None) -> None:
        self._side, self._how, self._rng = side, how, side.random("cancel")
        self._calls = 0

    async def run(self, what: str, call: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
        """(whether it completed, its result). What it raised is noted."""
        how = self._how
        self._calls += 1
        try:
            if how is None or self._side.settling.is_set() or self._calls % how["every"]:
                return True, await call
            if how["by"] == "wait_for":
                return True, await asyncio.wait_for(call, self._rng.choice((0.0, 0.001, 0.01, 0.04, 0.11)))
            task = asyncio.ensure_future(call)
            for _ in range(self._rng.choice((0, 1, 2, 3, 5, 8, 20, 100))):
                if task.done():
                    break
                await asyncio.sleep(self._rng.choice((0, 0, 0, 0.001)))
            if not task.done():
                task.cancel()
            return True, await task
        except asyncio.TimeoutError:
            self._side.did(f"time limit of {what}")
        except asyncio.CancelledError:
            self._side.did(f"cancel {what}")
        except Exception as error:
            self._side.failed(what, error)
        return False, None


class AsyncConsumer:
    """A member of the group on an event loop."""

    def __init__(self, side: Side) -> None:
        self.side, self.plan, self.rng = side, side.plan, side.random("async consumer")
        self.habits = {habit["name"]: habit["how"] for habit in self.plan["habits"]}
        self._made = 0
        self._paused: dict[int, int] = {}
        self._left: dict[int, int] = {}  # partition -> what is to be committed still
        self._done: dict[int, int] = {}  # partition -> behind what was processed

    def run(self) -> None:
        """Until the scenario stops."""
        calm = CalmMember(self.side)
        calm.start()
        asyncio.run(self._main())
        calm.join(60)

    async def _open(self) -> None:
        self._made += 1
        self._done.clear()
        side = self.side
        self.ears = Ears(side, side.recorder(f"hard{self._made}", side.group), self.habits.get("raising"))
        config = listening(side, side.consumer_config(), self.ears, self.habits.get("raising"))
        commit = self.plan["commit"]
        if commit not in ("auto", "store"):
            config["enable.auto.commit"] = False
        made = AIOConsumer if side.ours else confluent_kafka.aio.AIOConsumer
        self.consumer = made(config)
        self._tasks: set[asyncio.Task[Any]] = set()
        named = {"on_assign": self._assigned, "on_revoke": self._revoked, "on_lost": self.ears.lost}
        await self._quietly("subscribe", self.consumer.subscribe([side.topic], **named))

    async def _quietly(self, what: str, call: Coroutine[Any, Any, Any]) -> None:
        """A call in which callbacks may raise."""
        try:
            await call
        except Exception as error:
            self.side.failed(what, error)

    async def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if "tasks-in-callbacks" in self.habits:
            self.side.did("task made in on_assign")
            task = asyncio.ensure_future(self._ask(list(partitions)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.ears.assigned(consumer, partitions)

    async def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.ears.revoked(consumer, partitions)

    async def _ask(self, partitions: list[TopicPartition]) -> None:
        """What a task asks for as long as the scenario misbehaves, beside the loop that polls."""
        while not self.side.settling.is_set():
            try:
                mine = [TopicPartition(self.side.topic, p, o) for p, o in self._done.items() if p in self.ears.owned]
                if mine:
                    await self.consumer.commit(offsets=mine, asynchronous=False)
                await self.consumer.committed(partitions, 10)
                self.side.did("calls of a task made in on_assign")
            except Exception as error:
                self.side.failed("task", error)
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)

    async def _main(self) -> None:
        side, cancel = self.side, Canceller(self.side, self.habits.get("cancel"))
        await self._open()
        turn = 0
        while not side.stopping.is_set():
            turn += 1
            side.moved()
            if "reopen" in self.habits and turn % self.habits["reopen"]["every"] == 0 and not side.settling.is_set():
                side.did("reopen")
                await self._close()
                await self._open()
            await self._resume(turn)
            most, timeout = self.rng.choice((1, 10, 100)), self.rng.choice((0.0, 0.05, 0.1))
            poll = self.rng.random() < 0.3
            call = self.consumer.poll(timeout) if poll else self.consumer.consume(most, timeout)
            done, got = await cancel.run("poll" if poll else "consume", call)
            if not done:
                continue
            rows = rows_of([] if got is None else [got] if poll else got, side.topic, side)
            await self._process(rows, turn, cancel)
        await self._close()

    async def _close(self) -> None:
        await self._quietly("close", self.consumer.close())
        if self.ears.owned:
            self.ears.recorder.revoke(sorted(self.ears.owned))
            self.ears.owned.clear()
        self._paused.clear()

    async def _resume(self, turn: int) -> None:
        due = [p for p, t in self._paused.items() if t <= turn or self.side.settling.is_set()]
        for partition in [p for p in due if p in self.ears.owned]:  # a pause outlasts the assignment
            await self._quietly("resume", self.consumer.resume([TopicPartition(self.side.topic, partition)]))
            del self._paused[partition]

    async def _process(self, rows: list[Row], turn: int, cancel: Canceller) -> None:
        side = self.side
        for row in rows:
            if row.partition in self._paused and row.partition in self.ears.owned:
                side.found(f"partition {row.partition} is paused, and {row.offset} was returned")
        how = self.habits.get("retry-by-pause")
        if how and rows and not side.settling.is_set() and not self.rng.randrange(how["every"]):
            bad = self.rng.choice(rows)
            self.ears.recorder.seek(bad.partition, bad.offset)
            try:
                await self.consumer.seek(TopicPartition(side.topic, bad.partition, bad.offset))
                rows = [row for row in rows if row.partition != bad.partition or row.offset < bad.offset]
                await self.consumer.pause([TopicPartition(side.topic, bad.partition)])
                self._paused[bad.partition] = turn + self.rng.choice((1, 5))
                side.did("retry-by-pause")
            except Exception as error:
                side.failed("seek", error)
        self.ears.recorder.deliver_starts(rows)
        self.ears.recorder.deliver_ends(rows)
        self._done |= {row.partition: row.offset + 1 for row in rows}
        side.moved("delivered", len(rows))
        commit = self.plan["commit"]
        self._left = {p: offset for p, offset in self._left.items() if p in self.ears.owned}
        self._left |= {row.partition: row.offset + 1 for row in rows}
        if not self._left or commit in ("auto", "store") or (commit == "never" and not side.settling.is_set()):
            return
        places = [TopicPartition(side.topic, p, offset) for p, offset in self._left.items()]
        completed, done = await cancel.run("commit", self.consumer.commit(offsets=places, asynchronous=False))
        for p in done or []:
            self.ears.recorder.commit(p.partition, p.offset, "unknown" if p.error else "ok")
        if completed and all(p.error is None for p in done or []):
            self._left.clear()


class AsyncProducer:
    """A writer on an event loop: each record that was taken has a future, which is settled once."""

    def __init__(self, side: Side) -> None:
        self.side, self.plan, self.rng = side, side.plan, side.random("async producer")
        self.habits = {habit["name"]: habit["how"] for habit in self.plan["habits"]}
        self.recorder = side.recorder("hard")
        self.values = Values(side, "hard", 12)
        self.ledger: list[Entry] = []
        self._reports = 0

    def run(self) -> None:
        """Until the scenario settles, then read on beside until it stops."""
        calm = CalmMember(self.side)
        calm.start()
        asyncio.run(self._main())
        self.side.moved("settled")
        self.side.stopping.wait()
        calm.join(60)

    def _report(self, entry: Entry, future: Any) -> None:
        entry.reports += 1
        if future.cancelled():
            self.recorder.send_unknown(entry.key, entry.seq)
        elif future.exception() is not None:
            self.recorder.send_unknown(entry.key, entry.seq)
            self.side.failed("future", future.exception())
        else:
            message = future.result()
            self.recorder.send_ok(entry.key, entry.seq, message.partition(), message.offset())
            self.side.moved("hard records")
        how = self.habits.get("raising")
        if how is not None and not self.side.settling.is_set():
            self._reports += 1
            if self._reports % how["every"] == 0:
                self.side.did("raise in a future's callback")
                raise FAULTS["Fault"]("callback of a future")

    async def _main(self) -> None:
        side, cancel = self.side, Canceller(self.side, self.habits.get("cancel"))
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        made = AIOProducer if side.ours else confluent_kafka.aio.AIOProducer
        config = side.producer_config()
        producer = made(config) if side.ours else made(config, batch_size=20, buffer_timeout=0.05)
        while not side.settling.is_set():
            side.moved()
            for _ in range(self.rng.choice((1, 5, 20))):
                key, seq, value = self.values.next()
                entry = Entry(key, seq, self.recorder)
                self.recorder.send_invoke(key, seq)
                self.ledger.append(entry)
                done, future = await cancel.run("produce", producer.produce(side.topic, value=value, key=key))
                if not done:
                    # It may have been taken. Which is not known: the record is there once or not at all.
                    self.recorder.send_unknown(key, seq)
                    continue
                entry.taken = True
                future.add_done_callback(lambda done, entry=entry: self._report(entry, done))
            await cancel.run("flush", producer.flush(self.rng.choice((0.0, 0.05))))
            await asyncio.sleep(self.rng.choice((0, 0.01)))
        left: Any = None
        while left != 0 and not side.stopping.is_set():
            side.moved()
            _, left = await cancel.run("flush", producer.flush(2))
            left = left or 0
        await asyncio.sleep(0.05)  # for the loop to run what the last reports have scheduled
        silent = [e for e in self.ledger if e.taken and e.reports != 1]
        if silent:
            side.found(f"after flush(): {len(silent)} futures not settled once: {[(e.key, e.seq) for e in silent[:5]]}")
        await producer.close()
        self.recorder.close()
