"""Consumers of a scenario: a calm member, and one with habits.

What a call returned was given out: it is noted after the call, and nothing interrupts the note. What a call did not return
because something raised in it was not given out, and has to come again.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from keyorder import KeyRebalanceListener
from keyorder.connector.verify.events import Value, decode_value
from support.groups import committed_by

from .interrupts import FAULTS, Interrupted, Interrupts
from .side import Side


class Row(NamedTuple):
    """A record that was given out."""

    partition: int
    offset: int
    value: Value | None


def rows_of(messages: Iterable[Any], topic: str, side: Side) -> list[Row]:
    """The records of the judged topic; events and records of the other one are set aside."""
    rows = []
    for message in messages:
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                side.failed("event", KafkaException(error))
            continue
        if message.topic() == topic:
            data = message.value()
            rows.append(Row(message.partition(), message.offset(), None if data is None else decode_value(data)))
    return rows


def rows_of_columns(batch: Any, topic: str) -> list[Row]:
    """The same from columns."""
    topics, partitions, offsets, values = (
        batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "value")
    )
    return [
        Row(p, offset, None if value is None else decode_value(value))
        for t, p, offset, value in zip(topics, partitions, offsets, values, strict=True)
        if t == topic
    ]


class Ears(KeyRebalanceListener):
    """The application's callbacks: each is noted first, and raises after that where the plan says so."""

    def __init__(self, side: Side, recorder: Any, raising: dict[str, Any] | None) -> None:
        self._side, self.recorder, self._raising = side, recorder, raising
        self._calls: dict[str, int] = {}
        self.then: dict[str, Callable[[Any, Any], None]] = {}
        self.owned: set[int] = set()

    def heard(self, name: str) -> None:
        """Raise if it is this callback's turn."""
        how = self._raising
        if how is None or self._side.settling.is_set() or name not in how["callbacks"]:
            return
        self._calls[name] = self._calls.get(name, 0) + 1
        if self._calls[name] % how["every"] == 0:
            self._side.did(f"raise {how['what']} in {name}")
            raise FAULTS[how["what"]](name)

    def _mine(self, partitions: list[TopicPartition]) -> list[int]:
        return [p.partition for p in partitions if p.topic == self._side.topic]

    def assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.recorder.assign(self._mine(partitions))
        self.owned.update(self._mine(partitions))
        if "on_assign" in self.then:
            self.then["on_assign"](consumer, partitions)
        self.heard("on_assign")

    def revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if "on_revoke" in self.then:
            self.then["on_revoke"](consumer, partitions)
        self.recorder.revoke(self._mine(partitions))
        self.owned.difference_update(self._mine(partitions))
        self.heard("on_revoke")

    def lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.recorder.lost(self._mine(partitions))
        self.owned.difference_update(self._mine(partitions))
        self.heard("on_lost")

    def committed(self, error: Any, partitions: list[TopicPartition]) -> None:
        for p in partitions:
            if p.topic == self._side.topic and p.offset >= 0:
                self.recorder.commit(p.partition, p.offset, "unknown" if error or p.error else "ok")
        self.heard("on_commit")

    def on_partition_key_maybe_revoked(self, partitions: list[TopicPartition]) -> None:
        self.heard("key_maybe_revoked")

    def on_partition_key_assigned(self, partitions: list[TopicPartition]) -> None:
        self.heard("key_assigned")


class RaisingLog(logging.Handler):
    """Where the client's log lines go."""

    def __init__(self, ears: Ears) -> None:
        super().__init__()
        self._ears = ears

    def emit(self, record: logging.LogRecord) -> None:
        self._ears.heard("log")


def listening(side: Side, config: dict[str, Any], ears: Ears, raising: dict[str, Any] | None) -> dict[str, Any]:
    """The settings with the callbacks that the plan lets raise; what makes them run is set as well."""
    config["on_commit"] = ears.committed
    callbacks = raising["callbacks"] if raising else []
    if "stats_cb" in callbacks:
        config |= {"statistics.interval.ms": 20, "stats_cb": lambda text: ears.heard("stats_cb")}
    if "error_cb" in callbacks:
        # Nobody listens there: each attempt is an error of the transport.
        config["bootstrap.servers"] += ",127.0.0.1:1"
        config |= {"error_cb": lambda error: ears.heard("error_cb"), "reconnect.backoff.max.ms": 300}
    if "log" in callbacks:
        logger = logging.Logger("client of the application")
        logger.addHandler(RaisingLog(ears))
        config |= {"logger": logger, "debug": "cgrp", "log_level": 7}
    return config


class CalmMember(threading.Thread):
    """An ordinary member of the group, which commits by itself."""

    def __init__(self, side: Side) -> None:
        super().__init__(name="calm-member", daemon=True)
        self._side = side

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self._side.found(f"the calm member ended: {error!r}")
            traceback.print_exc()

    def _read(self) -> None:
        side = self._side
        ears = Ears(side, side.recorder("calm-member", side.group), None)
        config = side.consumer_config(on_commit=ears.committed)
        if side.plan["static"]:
            config["group.instance.id"] = "calm"
        consumer = side.consumer_class(config)
        consumer.subscribe([side.topic], on_assign=ears.assigned, on_revoke=ears.revoked, on_lost=ears.lost)
        if side.ours:
            side.clients.append(consumer)
        while not side.stopping.is_set():
            if side.resetting.is_set():
                consumer.unsubscribe()
                while not side.back.wait(0.2):
                    self._note(ears, rows_of(consumer.consume(10, 0), side.topic, side))
                ears.recorder.close()
                ears.recorder = side.recorder("calm-member", side.group)
                consumer.subscribe([side.topic], on_assign=ears.assigned, on_revoke=ears.revoked, on_lost=ears.lost)
            try:
                rows = rows_of(consumer.consume(50, 0.05), side.topic, side)
            except Exception as error:
                side.failed("calm member", error)
                continue
            self._note(ears, rows)
        consumer.close()

    def _note(self, ears: Ears, rows: list[Row]) -> None:
        ears.recorder.deliver_starts(rows)
        ears.recorder.deliver_ends(rows)
        self._side.moved("delivered", len(rows))


class HardConsumer:
    """The application with habits. One thread, the main one."""

    def __init__(self, side: Side) -> None:
        self.side, self.plan = side, side.plan
        self.rng = side.random("hard consumer")
        self.habits = {habit["name"]: habit["how"] for habit in self.plan["habits"]}
        self.closed = True
        self._made = 0
        self._paused: dict[int, int] = {}  # partition -> turn at which it goes on
        self._unsure: set[int] = set()  # an exception came out of pause() or resume(): it may be paused or not
        self._turn = 0
        self._remade = 0
        self.interrupts = Interrupts(
            self.habits.get("interrupt"), side.random("interrupts"), side.ours, self._close_now, side.did
        )
        self._last_offsets: dict[int, int] = {}
        self._left: dict[int, int] = {}  # partition -> what is to be committed still
        self._forgotten: list[Any] = []
        self._in_hand: list[Row] = []  # returned, and not noted yet
        self.open()

    # The client.

    def settings(self) -> dict[str, Any]:
        """This plan's settings of the client."""
        commit = self.plan["commit"]
        more: dict[str, Any] = {}
        if commit in ("record", "batch", "async", "never"):
            more["enable.auto.commit"] = False
        if commit == "store":
            more["enable.auto.offset.store"] = False
        if self.plan["static"]:
            more["group.instance.id"] = "hard"
        if {"slow", "forget", "close-from-thread", "blind"} & {*self.habits}:
            more["max.poll.interval.ms"] = 6_000
        if "partition-eof" in self.habits:
            more["enable.partition.eof"] = True
        if self.side.ours and self.plan["gate"] == "key":
            more["keyorder.gate"] = "key"
        return self.side.consumer_config(**more)

    def open(self) -> None:
        """A new client under a new name."""
        self._made += 1
        self.side.did("open")
        raising = self.habits.get("raising")
        self.ears = Ears(self.side, self.side.recorder(f"hard{self._made}", self.side.group), raising)
        if "commit-in-revoke" in self.habits:
            self.ears.then["on_revoke"] = self._commit_in_revoke
        config = listening(self.side, self.settings(), self.ears, raising)
        self.consumer = self.side.consumer_class(config)
        if self.side.ours:
            self.side.clients[:] = [self.consumer, *self.side.clients[1:]]
        self.closed = False
        self._paused.clear()
        self._unsure.clear()
        self.take_partitions()

    def take_partitions(self) -> None:
        """Join the group."""
        ears = self.ears
        topics = [self.side.topic]
        if self.side.spec["uses_other"]:
            topics.append(self.side.other)
        named: dict[str, Any] = {"on_assign": ears.assigned, "on_revoke": ears.revoked, "on_lost": ears.lost}
        if self.side.ours and self._hears_of_keys():
            named["listener"] = _Keys(ears)
        self.public("subscribe", self.consumer.subscribe, topics, **named)

    def _hears_of_keys(self) -> bool:
        raising = self.habits.get("raising")
        return raising is not None and bool({"key_assigned", "key_maybe_revoked"} & {*raising["callbacks"]})

    def _commit_in_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.side.did("commit in on_revoke")
        try:
            done = consumer.commit(asynchronous=False)
            self._note(done)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                self.side.failed("commit in on_revoke", error)

    def _note(self, places: list[TopicPartition] | None) -> None:
        for p in places or []:
            if p.topic == self.side.topic and p.offset >= 0:
                self.ears.recorder.commit(p.partition, p.offset, "unknown" if p.error else "ok")

    def public(self, name: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """A public call: its result, or None when it raised."""
        result, error = self.interrupts.call(name, function, *arguments, **named)
        if error is not None:
            self.side.failed(name, error)
            if name == "poll":
                self._interrupted(error)
        return result

    def _interrupted(self, error: BaseException) -> None:
        """A program that is interrupted while it waits for records closes its client, or goes on."""
        how = self.habits.get("interrupt")
        if how and how["then"] == "close" and isinstance(error, (Interrupted, KeyboardInterrupt)) and not self.closed:
            self.side.did("close after an interrupt")
            self.close()

    def _close_now(self) -> None:
        """In a signal handler. As with the stock client, what was returned counts as done with when it is closed."""
        self._book(self._in_hand)
        self.closed = True
        self.consumer.close()

    def close(self) -> None:
        """Close, and compare what is committed then with what was returned before."""
        # Of several threads the last offset noted need not be the last one returned.
        sure = self.plan["commit"] == "auto" and self.plan["kind"] != "polling-threads"
        done = dict(self._last_offsets) if sure else {}
        mine = set(self.ears.owned)
        _, error = self.interrupts.call("close", self.consumer.close)
        self.closed = True
        if error is not None:
            self.side.failed("close", error)
            self.interrupts.call("", self.consumer.close)
        elif "interrupt" not in self.habits and "raising" not in self.habits:
            self._check_closed({p: offset for p, offset in done.items() if p in mine})
        self._given_up()

    def _given_up(self) -> None:
        """The client is closed. Where it told of no revocation, its partitions are noted as given up all the same."""
        if self.ears.owned:
            self.ears.recorder.revoke(sorted(self.ears.owned))
            self.ears.owned.clear()
        self._last_offsets.clear()

    def _check_closed(self, done: dict[int, int]) -> None:
        if not done:
            return
        found = committed_by(self.side.spec["connection"], self.side.group, [(self.side.topic, p) for p in done])
        behind = {p: (found.get(p), last + 1) for p, last in done.items() if found.get(p, -1) <= last}
        if behind:
            self.side.found(f"close() left behind what was returned: partition -> (committed, next) {behind}")

    # Records.

    def take(self) -> list[Row] | None:
        """One call for records. None: it raised."""
        rng, consumer = self.rng, self.consumer
        timeout = rng.choice((0.0, 0.02, 0.05, 0.1))
        how = self.plan["calls"]
        if how == "mixed":
            how = rng.choice(("poll", "consume", "arrow") if self.side.ours else ("poll", "consume"))
        if how == "arrow" and self.side.ours:
            batch = self.public("poll", consumer.consume_arrow, rng.choice((1, 20, 500)), timeout)
            return None if batch is None else rows_of_columns(batch, self.side.topic)
        if how == "poll":
            got, error = self.interrupts.call("poll", consumer.poll, timeout)
            if error is not None:
                self.side.failed("poll", error)
                self._interrupted(error)
                return None
            return rows_of([] if got is None else [got], self.side.topic, self.side)
        most = 500 if "partly-filled" in self.habits else rng.choice((1, 5, 50))
        messages = self.public("poll", consumer.consume, most, timeout)
        return None if messages is None else rows_of(messages, self.side.topic, self.side)

    def process(self, rows: list[Row]) -> None:
        """Work on what came; the habits may put some of it off."""
        for row in rows:
            if row.partition in self._paused and row.partition in self.ears.owned:
                self.side.found(f"partition {row.partition} is paused, and {row.offset} was returned")
        self._in_hand = rows
        kept = self._put_off(rows)
        rows = kept if self._in_hand else []  # else they are noted
        self._book(rows)
        for row in rows:
            self._last_offsets[row.partition] = row.offset
        self.side.moved("delivered", len(rows))
        self._commit(rows)

    def _book(self, rows: list[Row]) -> None:
        self._in_hand = []
        self.ears.recorder.deliver_starts(rows)
        self.ears.recorder.deliver_ends(rows)

    def _put_off(self, rows: list[Row]) -> list[Row]:
        if self.side.settling.is_set():
            return rows
        if "pause" in self.habits and rows and not self.rng.randrange(self.habits["pause"]["every"]):
            self.side.did("pause")
            self._pause(self.rng.choice(rows).partition)
        for name, pause in (("retry-by-seek", False), ("retry-by-pause", True)):
            if name not in self.habits or not rows or self.rng.randrange(self.habits[name]["every"]):
                continue
            bad = self.rng.choice(rows)
            if self._seek(bad.partition, bad.offset):
                self.side.did(name)
                rows = [row for row in rows if row.partition != bad.partition or row.offset < bad.offset]
                if pause:
                    self._pause(bad.partition)
        if "seek-and-back" in self.habits and rows and not self.rng.randrange(self.habits["seek-and-back"]["every"]):
            here = self.rng.choice(rows).partition
            following = max(row.offset for row in rows if row.partition == here) + 1
            if self._seek(here, max(0, following - 5)) and self._seek(here, following):
                self.side.did("seek-and-back")
        return rows

    def _seek(self, partition: int, offset: int) -> bool:
        """Whether the position was moved; an interrupted seek is given again until it is known."""
        for _ in range(20):
            self.ears.recorder.seek(partition, offset)
            place = TopicPartition(self.side.topic, partition, offset)
            _, error = self.interrupts.call("seek", self.consumer.seek, place)
            if error is None:
                return True
            self.side.failed("seek", error)
            if self.closed or isinstance(error, (KafkaException, RuntimeError)):
                break
        # The position is not known. What was returned stands as if it was processed only if it is.
        return False

    def _pause(self, partition: int) -> None:
        _, error = self.interrupts.call("pause", self.consumer.pause, [TopicPartition(self.side.topic, partition)])
        if error is None and partition in self.ears.owned:
            self._paused[partition] = self._turn + self.rng.choice((1, 3, 10))
        elif error is not None:
            self._unsure.add(partition)
            self.side.failed("pause", error)

    def _resume(self, everything: bool) -> None:
        """What is due. A pause outlasts the assignment: what went away paused comes back paused."""
        due = {p for p, until in self._paused.items() if everything or until <= self._turn} | self._unsure
        for partition in sorted(due & self.ears.owned):
            _, error = self.interrupts.call(
                "resume", self.consumer.resume, [TopicPartition(self.side.topic, partition)]
            )
            self._paused.pop(partition, None)
            if error is None or isinstance(error, KafkaException):
                self._unsure.discard(partition)
            else:
                self._unsure.add(partition)

    def _commit(self, rows: list[Row]) -> None:
        """In the plan's way. What a failed commit has left is tried again, as long as the partition is owned."""
        commit = self.plan["commit"]
        if commit == "never" and self.side.settling.is_set():
            commit = "batch"
        if commit == "auto":
            return
        self._left = {p: offset for p, offset in self._left.items() if p in self.ears.owned}
        if commit == "never":
            self._left |= {row.partition: row.offset + 1 for row in rows}
            return
        if self.plan["gate"] == "key":
            # Records come behind later offsets there: what was returned is what keyorder knows best.
            if rows or self._left:
                self._left = {row.partition: row.offset for row in rows} or self._left
                if self._done_with("commit", self.consumer.commit, asynchronous=commit == "async"):
                    self._left.clear()
            return
        groups = [rows] if commit != "record" or len(rows) < 2 else [rows[:-5], *([row] for row in rows[-5:])]
        for group in groups:
            self._left |= {row.partition: row.offset + 1 for row in group}
            places = [TopicPartition(self.side.topic, p, offset) for p, offset in self._left.items()]
            if not places:
                continue
            if commit == "store":
                done = self._done_with("store_offsets", self.consumer.store_offsets, offsets=places)
            else:
                done = self._done_with("commit", self.consumer.commit, offsets=places, asynchronous=commit == "async")
            if done:
                self._left.clear()

    def _done_with(self, name: str, function: Callable[..., Any], **named: Any) -> bool:
        done, error = self.interrupts.call(name, function, **named)
        if error is not None:
            self.side.failed(name, error)
            return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._NO_OFFSET
        self._note(done)
        return all(p.error is None for p in done or [])

    # A turn.

    def run(self) -> None:
        """Until the scenario stops."""
        calm = CalmMember(self.side)
        calm.start()
        while not self.side.stopping.is_set():
            self.turn()
        self.interrupts.armed = False
        if not self.closed:
            self.close()
        calm.join(60)

    def turn(self) -> None:
        """Something hard, then records."""
        self._turn += 1
        self.side.moved()
        if self.side.settling.is_set():
            self._calm_down()
        else:
            self._misbehave()
        if self.closed:
            self._given_up()
            self.open()
        if self.side.resetting.is_set():
            self._away_for_a_reset()
        self._resume(everything=False)
        rows = self.take()
        if rows or self._left:
            self.process(rows or [])

    def _calm_down(self) -> None:
        """The faults are over; the client stays as it is, and has to get on."""
        self.interrupts.armed = False
        self._resume(everything=True)

    def _away_for_a_reset(self) -> None:
        self.public("unsubscribe", self.consumer.unsubscribe)
        while not self.side.back.wait(0.2):
            rows = self.take()
            if rows:
                self.process(rows)
        self.ears.recorder.close()
        self.ears.recorder = self.side.recorder(f"hard{self._made}", self.side.group)
        self.ears.owned.clear()
        self._last_offsets.clear()
        self.take_partitions()

    def _due(self, name: str) -> bool:
        how = self.habits.get(name)
        return how is not None and self._turn % how.get("every", 25) == 0

    def _misbehave(self) -> None:
        side = self.side
        if self._due("resubscribe"):
            side.did("resubscribe")
            self.public("unsubscribe", self.consumer.unsubscribe)
            for _ in range(self.rng.choice((0, 1, 3))):
                rows = self.take()
                if rows:
                    self.process(rows)
            self.take_partitions()
        if self._due("reopen"):
            side.did("reopen")
            self.close()
            if self.rng.random() < 0.3:
                self.interrupts.call("", self.consumer.close)
        if self._due("forget") and len(self._forgotten) < 1:
            self._forget()
        if self._due("close-from-thread"):
            self._close_from_thread()
        if self._due("fork"):
            self._fork()
        if self._due("queries"):
            self._ask()
        if "blind" in self.habits and self._turn == 60 and side.ours:
            self._blind()
        if self.side.deleting.is_set():
            self.side.deleting.clear()
            self._delete_in_on_assign()
        if "slow" in self.habits and self._turn == 40:
            side.did("slow")
            time.sleep(7.5)  # the work of a slow handler, longer than max.poll.interval.ms

    def _blind(self) -> None:
        """The thread that follows timelines hears nothing for longer than max.poll.interval.ms, while this one polls on.

        No broker can be told to answer one client only, so the thread is held up.
        """
        view, seeing = self.consumer._view, threading.Event()
        turn = view._turn

        def blind() -> None:
            seeing.wait()
            turn()

        view._turn = blind
        self.side.did("blind")
        until = time.monotonic() + 12
        while time.monotonic() < until and not self.closed:
            self.side.moved()
            rows = self.take()
            if rows:
                self.process(rows)
        seeing.set()
        view._turn = turn
        self.side.moved("blind is over")

    def _delete_in_on_assign(self) -> None:
        """The other topic goes between its assignment and its first record."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({**self.side.spec["connection"], "log_level": 0})

        def delete(consumer: Any, partitions: list[TopicPartition]) -> None:
            if any(p.topic == self.side.other for p in partitions):
                self.ears.then.pop("on_assign", None)
                self.side.did("delete a topic in on_assign")
                admin.delete_topics([self.side.other], operation_timeout=20)[self.side.other].result(30)

        self.ears.then["on_assign"] = delete
        self.public("unsubscribe", self.consumer.unsubscribe)
        self.take_partitions()

    def _forget(self) -> None:
        self.side.did("forget")
        self.ears.recorder.crash()
        self.ears.owned.clear()
        self._forgotten.append(None)
        self.side.clients[:] = []
        self.consumer = None
        self.closed = True
        self._last_offsets.clear()

    def _close_from_thread(self) -> None:
        self.side.did("close from a thread")
        mine = self.consumer

        def close() -> None:
            try:
                mine.close()
            except BaseException as raised:
                self.side.failed("close in a thread", raised)

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        while closing.is_alive():
            rows = self.take()
            if rows:
                self.process(rows)
            self.side.moved()
            closing.join(0.01)
        self.closed = True
        self._given_up()

    def _fork(self) -> None:
        self.side.did("fork")
        child = os.fork()
        if child == 0:
            import atexit

            signal.alarm(15)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            atexit._run_exitfuncs()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            self.side.found(f"a forked child ended with {status}")

    def _ask(self) -> None:
        places = [TopicPartition(self.side.topic, p) for p in self.ears.owned]
        self.side.did("queries")
        self.public("assignment", self.consumer.assignment)
        if places:
            self.public("committed", self.consumer.committed, places, 10)
            self.public("position", self.consumer.position, places)
            self.public("get_watermark_offsets", self.consumer.get_watermark_offsets, places[0], 10)


class _Keys(KeyRebalanceListener):
    """The two methods that only keyorder has."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears

    def on_partition_key_maybe_revoked(self, partitions: list[TopicPartition]) -> None:
        self._ears.on_partition_key_maybe_revoked(partitions)

    def on_partition_key_assigned(self, partitions: list[TopicPartition]) -> None:
        self._ears.on_partition_key_assigned(partitions)


class AssigningConsumer(HardConsumer):
    """Takes all partitions by hand, and new ones when it sees them."""

    _known = 0

    def take_partitions(self) -> None:
        self._known = 0
        self._take_new()

    def _count(self) -> int:
        found = self.public("list_topics", self.consumer.list_topics, self.side.topic, 10)
        return len(found.topics[self.side.topic].partitions) if found is not None else 0

    def _take_new(self) -> None:
        count = self._count()
        if count <= self._known:
            return
        places = [TopicPartition(self.side.topic, p) for p in range(self._known, count)]
        name, function = (
            ("assign", self.consumer.assign) if not self._known else ("incremental", self.consumer.incremental_assign)
        )
        _, error = self.interrupts.call(name, function, places)
        if error is None:
            self.ears.recorder.assign([p.partition for p in places])
            self.ears.owned.update(p.partition for p in places)
            self._known = count
        else:
            self.side.failed(name, error)

    def run(self) -> None:
        while not self.side.stopping.is_set():
            self.turn()
        self.interrupts.armed = False
        if not self.closed:
            self.close()

    def turn(self) -> None:
        if self._turn % 20 == 19 and not self.closed:
            self._take_new()
        super().turn()

    def _misbehave(self) -> None:
        super()._misbehave()
        if self.closed or not self.ears.owned:
            return
        if self._due("unassign-one"):
            self.side.did("unassign one")
            one = TopicPartition(self.side.topic, self.rng.choice(sorted(self.ears.owned)))
            _, error = self.interrupts.call("incremental_unassign", self.consumer.incremental_unassign, [one])
            if error is not None:
                self.side.failed("incremental_unassign", error)
                return
            self.ears.recorder.revoke([one.partition])
            self._read_others(one.partition)
            self.public("incremental_assign", self.consumer.incremental_assign, [one])
            self.ears.recorder.assign([one.partition])
        if self._due("assign-anew"):
            self.side.did("assign anew")
            self.ears.recorder.revoke(sorted(self.ears.owned))
            self.public("unassign", self.consumer.unassign)
            self.ears.owned.clear()
            self.take_partitions()

    def _read_others(self, one: int) -> None:
        """The other partitions go on without the one that was given back."""
        deadline = time.monotonic() + 20
        while len(self.ears.owned) > 1 and not self.side.settling.is_set():
            self.side.moved()
            rows = self.take() or []
            self.process(rows)
            if self.closed or any(row.partition != one for row in rows):
                return
            if time.monotonic() > deadline:
                self.side.found(f"the other partitions stood still after incremental_unassign([{one}])")
                return


class PollingThreads(HardConsumer):
    """Several threads poll one client. The order between them is theirs to keep, so only what comes is judged."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self._closing = threading.Lock()

    def run(self) -> None:
        calm = CalmMember(self.side)
        calm.start()
        while not self.side.stopping.is_set():
            if self.closed:
                self.open()
            until = self._turn + 60
            threads = [threading.Thread(target=self._poll, args=(until,), daemon=True) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
            if "reopen" in self.habits and not self.side.settling.is_set():
                self.side.did("reopen")
                self.close()
        if not self.closed:
            self.close()
        calm.join(60)

    def _poll(self, until: int) -> None:
        try:
            while self._turn < until and not self.side.stopping.is_set():
                self._turn += 1
                self.side.moved()
                self.side.did("poll beside other threads")
                rows = self.take()
                if rows:
                    with self._closing:
                        self.process(rows)
        except BaseException as error:
            self.side.found(f"a polling thread ended: {error!r}")
            traceback.print_exc()
