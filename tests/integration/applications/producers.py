"""Producers of a scenario, with habits. A ledger says of each record what its application was told.

A record whose produce() returned has exactly one delivery report in the end, or is still in len(). One whose produce() raised was
not taken; if a signal was what it raised, that is not known, and the record may be there once or not at all.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import traceback
from collections import Counter
from typing import Any

from confluent_kafka import KafkaException
from keyorder.partitioner.errors import KeyBlockedError

from .consumers import CalmMember, Ears, listening
from .interrupts import FAULTS, Interrupts
from .side import Side, Values

MIB = 1_048_576


class Entry:
    """One record in the ledger."""

    __slots__ = ("key", "recorder", "reports", "seq", "taken")

    def __init__(self, key: str, seq: int, recorder: Any) -> None:
        self.key, self.seq, self.recorder = key, seq, recorder
        self.taken: bool | None = None
        self.reports = 0


class HardProducer:
    """The application with habits. Its main thread produces; the habit `threads` adds two more."""

    config: dict[str, Any] = {}

    def __init__(self, side: Side) -> None:
        self.side, self.plan = side, side.plan
        self.rng = side.random("hard producer")
        self.habits = {habit["name"]: habit["how"] for habit in self.plan["habits"]}
        self.raising = self.habits.get("raising")
        self.interrupts = Interrupts(
            self.habits.get("interrupt"), side.random("interrupts"), side.ours, self._close_now, side.did
        )
        self.values = Values(side, "hard", 12)
        self.recorder = side.recorder("hard")
        self.ledger: list[Entry] = []
        self.closed = True
        self._reports = 0
        self._turn = 0
        self._made = 0
        self._purged = 0  # so many entries of the ledger were there at the last purge
        self._forgotten: list[Any] = []
        self._released = threading.Event()
        self.open()

    def open(self) -> None:
        """A new client; its keys' numbers go on."""
        self._made += 1
        self.side.did("open")
        ears = Ears(self.side, self.recorder, self.raising)
        config = listening(self.side, self.side.producer_config(), ears, self.raising)
        del config["on_commit"]
        if "small-queue" in self.habits:
            config["queue.buffering.max.messages"] = 40
        if "held-long" in self.habits:
            config |= {"queue.buffering.max.kbytes": 1_024, "delivery.timeout.ms": 5_000}
        self.producer = self.side.producer_class(config)
        self.closed = False

    def _close_now(self) -> None:
        """In a signal handler."""
        self.closed = True
        self.producer.close()

    def public(self, name: str, function: Any, *arguments: Any, **named: Any) -> tuple[Any, BaseException | None]:
        """A public call; errors are noted, but for a full queue."""
        result, error = self.interrupts.call(name, function, *arguments, **named)
        if error is not None and not isinstance(error, BufferError):
            self.side.failed(name, error)
        return result, error

    def report(self, entry: Entry) -> Any:
        """The delivery callback of one record: noted first, then it raises where the plan says so."""

        def delivered(error: Any, message: Any) -> None:
            entry.reports += 1
            if error is None:
                self.recorder.send_ok(entry.key, entry.seq, message.partition(), message.offset())
                self.side.moved("hard records")
            else:
                self.recorder.send_unknown(entry.key, entry.seq)
                self.side.failed("report", KafkaException(error))
            self._raise_at_times()

        return delivered

    def _raise_at_times(self) -> None:
        how = self.raising
        if how is None or "on_delivery" not in how["callbacks"] or self.side.settling.is_set():
            return
        self._reports += 1
        if self._reports % how["every"] == 0:
            self.side.did(f"raise {how['what']} in on_delivery")
            raise FAULTS[how["what"]]("on_delivery")

    def send(self, values: Values, recorder: Any, pad: int = 0) -> bool:
        """Produce one record; where there is no room for it, poll and come with the next. False: refused, or something raised.

        A refused one does not come again: between two tries the application may be told what failed before it.
        """
        while True:
            key, seq, value = values.next(pad=pad)
            entry = Entry(key, seq, recorder)
            recorder.send_invoke(key, seq)
            self.ledger.append(entry)
            _, error = self.public(
                "produce",
                self.producer.produce,
                self.side.topic,
                value,
                key,
                on_delivery=self.report_of(entry, recorder),
            )
            self._settle(entry, error, recorder)
            if not isinstance(error, BufferError):
                return error is None
            self.side.did("full queue")
            if self.side.stopping.is_set() or self.closed:
                return False
            self.side.moved()
            self.public("poll", self.producer.poll, 0.05)

    def report_of(self, entry: Entry, recorder: Any) -> Any:
        return self.report(entry)

    def _settle(self, entry: Entry, error: BaseException | None, recorder: Any) -> None:
        refused = (BufferError, KafkaException, RuntimeError, ValueError, TypeError)
        if isinstance(error, KeyBlockedError):
            # It says that an earlier record of the key was not delivered: from now on this may be any that nothing is known of.
            for earlier in self.ledger:
                if earlier.key == entry.key and earlier is not entry and earlier.taken and not earlier.reports:
                    recorder.send_unknown(earlier.key, earlier.seq)
        if error is None:
            entry.taken = True
        elif isinstance(error, refused) or type(error).__module__.startswith("keyorder"):
            entry.taken = False
            recorder.send_fail(entry.key, entry.seq)
        else:
            entry.taken = None
            recorder.send_unknown(entry.key, entry.seq)

    # The run.

    def run(self) -> None:
        """Until the scenario settles, then flush the client that there is, then read on beside until it stops."""
        calm = CalmMember(self.side)
        calm.start()
        others = (
            [threading.Thread(target=self._beside, args=(n,), daemon=True) for n in (1, 2)]
            if "threads" in self.habits
            else []
        )
        for thread in others:
            thread.start()
        while not self.side.settling.is_set():
            self.turn()
        self.interrupts.armed = False
        for thread in others:
            thread.join(60)
        if self.closed:
            self.open()
        for _ in range(20):
            self.send(self.values, self.recorder)
        self._finish()
        self.side.moved("settled")
        self.side.stopping.wait()
        calm.join(60)

    def _beside(self, number: int) -> None:
        try:
            writer = f"beside{number}"
            values, recorder = Values(self.side, writer, 6), self.side.recorder(writer)
            while not self.side.settling.wait(0.004):
                key, seq, value = values.next()
                entry = Entry(key, seq, recorder)
                recorder.send_invoke(key, seq)
                self.ledger.append(entry)

                def delivered(error: Any, message: Any, entry: Entry = entry) -> None:
                    entry.reports += 1
                    if error is None:
                        recorder.send_ok(entry.key, entry.seq, message.partition(), message.offset())
                    else:
                        recorder.send_unknown(entry.key, entry.seq)
                    self._raise_at_times()

                producer, refusal = self.producer, None
                try:
                    producer.produce(self.side.topic, value, key, on_delivery=delivered)
                except BaseException as error:
                    refusal = error
                    self.side.failed("produce beside", error)
                self._settle(entry, refusal, recorder)
                self.side.did("produce beside other threads")
        except BaseException as error:
            self.side.found(f"a producing thread ended: {error!r}")
            traceback.print_exc()

    def _finish(self) -> None:
        left = None
        while left != 0 and not self.side.stopping.is_set():
            left, _ = self.public("flush", self.producer.flush, 2)
            self.side.moved()
        self._audit("after flush()")
        self.public("close", self.producer.close)
        self.recorder.close()

    def _audit(self, when: str) -> None:
        """What each produce() that returned was told."""
        silent = [e for e in self.ledger if e.taken and e.reports == 0]
        twice = [e for e in self.ledger if e.reports > 1]
        refused = [e for e in self.ledger if e.taken is False and e.reports]
        for what, entries in (("no report", silent), ("several reports", twice), ("refused and reported", refused)):
            if entries:
                named = ", ".join(f"{e.key}:{e.seq}" for e in entries[:5])
                self.side.found(f"{when}, len {len(self.producer)}: {len(entries)} records with {what}: {named}")
        counts = Counter(e.taken for e in self.ledger)
        self.side.progress["taken"], self.side.progress["unclear"] = counts[True], counts[None]

    def turn(self) -> None:
        """Something hard, then some records."""
        self._turn += 1
        self.side.moved()
        self._misbehave()
        if self.closed:
            self.open()
        for _ in range(self.rng.choice((1, 5, 20))):
            if self.closed:
                return
            self.send(self.values, self.recorder, pad=self.rng.choice((0, 0, 200)))
        if self.side.spec["uses_other"]:
            self.public("produce", self.producer.produce, self.side.other, b"beside", "beside")
        self.public("poll", self.producer.poll, self.rng.choice((0, 0, 0.01, 0.05)))
        self.public("len", self.producer.__len__)

    def _due(self, name: str, every: int = 25) -> bool:
        how = self.habits.get(name)
        return how is not None and self._turn % how.get("every", every) == 0

    def _misbehave(self) -> None:
        if self._due("short-flush", 5) or (self._turn % 10 == 0 and "interrupt" in self.habits):
            self.side.did("short flush")
            self.public("flush", self.producer.flush, self.rng.choice((0, 0.001, 0.02)))
        if self._due("oversized", 6):
            self._oversized()
        if self._due("held-long", 1):
            self._hold()
        if self._due("batches", 3):
            self._batch()
        if self._due("null-keys", 2):
            self._without_key()
        if self._due("purge"):
            self._purge()
        if self._due("fork"):
            self._fork()
        if self._due("forget") and not self._forgotten:
            self._forget()
        if self._due("reopen"):
            self.side.did("reopen")
            self._reopen()

    def _purge(self) -> None:
        """It says of every record without a report that it may be missing: from now on later ones of its key may be there."""
        self.side.did("purge")
        self.public("purge", self.producer.purge)
        for entry in self.ledger[self._purged :]:
            if entry.taken is not False and not entry.reports:
                entry.recorder.send_unknown(entry.key, entry.seq)
        self._purged = len(self.ledger)

    def _reopen(self) -> None:
        _, error = self.public("close", self.producer.close)
        if error is None or self._is_closed():
            self.closed = True
            if (
                error is None or self.side.ours
            ):  # the library's own lets go of what it has not delivered when a callback raises
                self._audit("after close()")

    def _is_closed(self) -> bool:
        """What close() raises may come out of a callback meanwhile."""
        _, error = self.public("poll", self.producer.poll, 0)
        return isinstance(error, RuntimeError) and "closed" in str(error)

    def _forget(self) -> None:
        """What was still on its way is of unknown fate: its client is gone."""
        self.side.did("forget")
        for entry in self.ledger:
            if entry.taken and not entry.reports:
                entry.taken = None
        self._forgotten.append(None)
        # A client that is forgotten tells nothing more: what it has sent by now is settled, so that the order is its own.
        while self.public("flush", self.producer.flush, 20)[1] is not None:
            pass  # a callback has raised: each time one report less is left
        for entry in self.ledger:
            if entry.taken is None and entry.reports:
                entry.taken = True
        self.producer = None
        self.closed = True

    def _oversized(self) -> None:
        """A record that is too large between two of its key."""
        key = self.rng.choice(self.values.keys)
        self.side.did("oversized")
        for pad in (0, 2 * MIB, 0):
            key, seq, value = self.values.next(key, pad)
            entry = Entry(key, seq, self.recorder)
            self.recorder.send_invoke(key, seq)
            self.ledger.append(entry)
            _, error = self.public(
                "produce", self.producer.produce, self.side.topic, value, key, on_delivery=self.report(entry)
            )
            self._settle(entry, error, self.recorder)

    def _hold(self) -> None:
        """While a change holds keys: more bytes than the queue may have."""
        if not self.side.phase.startswith("held") or self._released.is_set():
            return
        self._released.set()
        self.side.did("produce while keys are held")
        self._oversized_without_callbacks()
        sent, large = 0, list[Entry]()
        for _ in range(3_000):
            if self.closed:
                return
            key, seq, value = self.values.next(pad=8_000)
            entry = Entry(key, seq, self.recorder)
            self.recorder.send_invoke(key, seq)
            self.ledger.append(entry)
            large.append(entry)
            _, error = self.public(
                "produce", self.producer.produce, self.side.topic, value, key, on_delivery=self.report(entry)
            )
            self._settle(entry, error, self.recorder)
            if isinstance(error, BufferError):
                break
            self.public("poll", self.producer.poll, 0)
            sent += len(value)
            waiting = sum(not each.reports for each in large)  # other threads' records are small
            if waiting * 8_000 > 6 * MIB:
                self.side.found(f"{waiting} records of 8 kB wait in a producer of queue.buffering.max.kbytes=1024")
                break

    def _oversized_without_callbacks(self) -> None:
        """For each of some keys: a record, one that is too large, a record, whose fate nobody asks to be told."""
        for number in range(8):
            for pad in (0, 2 * MIB, 0):
                key, seq, value = self.values.next(f"untold-{number}", pad)
                self.recorder.send_invoke(key, seq)
                _, error = self.public("produce", self.producer.produce, self.side.topic, value, key)
                if isinstance(error, Exception):
                    self.recorder.send_fail(key, seq)
                elif error is not None:
                    self.recorder.send_unknown(key, seq)  # a signal's: it may have been taken, or not

    def _batch(self) -> None:
        self.side.did("produce_batch")
        entries, records = [], []
        for _ in range(self.rng.choice((1, 10))):
            key, seq, value = self.values.next()
            entry = Entry(key, seq, self.recorder)
            self.recorder.send_invoke(key, seq)
            self.ledger.append(entry)
            entries.append(entry)
            records.append({"key": key, "value": value, "callback": self.report(entry)})
        was_closed = self.closed  # by a signal handler, in an earlier call: then all of them are refused
        _, error = self.public("produce_batch", self.producer.produce_batch, self.side.topic, records)
        for entry, record in zip(entries, records, strict=True):
            if error is None and "_error" in record:
                entry.taken = False
                self.recorder.send_fail(entry.key, entry.seq)
            elif was_closed:
                self._settle(entry, error, self.recorder)
            else:
                if (
                    self.closed and error is not None
                ):  # in mid call: it tells nothing more, whatever the call has raised
                    entry.taken = None
                    self.recorder.send_unknown(entry.key, entry.seq)
                    continue
                broken_off = isinstance(error, InterruptedError) or not isinstance(error, Exception)
                self._settle(entry, error if broken_off else None, self.recorder)
                entry.taken = None if error is not None else entry.taken

    def _without_key(self) -> None:
        self.side.did("null key")
        key, seq, value = self.values.next("")
        entry = Entry(key, seq, self.recorder)
        self.recorder.send_invoke(key, seq)
        self.ledger.append(entry)
        _, error = self.public("produce", self.producer.produce, self.side.topic, value, on_delivery=self.report(entry))
        self._settle(entry, error, self.recorder)

    def _fork(self) -> None:
        self.side.did("fork")
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(15)
            atexit._run_exitfuncs()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            self.side.found(f"a forked child ended with {status}")
