"""Consume, transform, produce in transactions: each record of the topic once in the output, in its key's order, whatever happens.

What a transaction holds counts when its commit returned, and not when an abort did. After anything else the producer is made
anew, which decides what was left open, and the reader goes back to what the group has committed.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from .interrupts import Interrupts
from .side import Side


class Transformer:
    """Moves the topic's records to the output. The only member of its group."""

    def __init__(self, side: Side) -> None:
        self.side, self.plan = side, side.plan
        self.rng = side.random("transformer")
        self.habits = {habit["name"]: habit["how"] for habit in self.plan["habits"]}
        self.interrupts = Interrupts(
            self.habits.get("interrupt"), side.random("interrupts"), side.ours, self._close_now, side.did
        )
        self.closed = True
        self._turn = 0
        self.reader = side.consumer_class(
            side.consumer_config(**{"enable.auto.commit": False, "isolation.level": "read_committed"})
        )
        self.reader.subscribe([side.topic])

    def _close_now(self) -> None:
        self.closed = True
        self.producer.close()

    def _fresh(self) -> None:
        config = self.side.producer_config(
            **{"transactional.id": f"{self.side.group}-hard", "transaction.timeout.ms": 15_000, "linger.ms": 1}
        )
        if self.side.ours:
            config["delivery.timeout.ms"] = 8_000
        self.producer = self.side.producer_class(config)
        self.producer.init_transactions(30)
        self.closed = False
        self.side.did("open")

    def run(self) -> None:
        """Until the scenario stops."""
        while not self.side.stopping.is_set():
            self._turn += 1
            self.side.moved()
            if self.side.settling.is_set():
                self.interrupts.armed = False
            if self.closed:
                try:
                    self._fresh()
                    self._go_back()
                except KafkaException as error:
                    self.side.failed("open", error)
                    continue
            try:
                messages = [m for m in self.reader.consume(self.rng.choice((5, 50, 200)), 0.05) if m.error() is None]
            except Exception as error:
                self.side.failed("consume", error)
                continue
            if messages:
                self._move(messages)
        if not self.closed:
            self.producer.close()
        self.reader.close()

    def _public(self, name: str, function: Any, *arguments: Any) -> BaseException | None:
        _, error = self.interrupts.call(name, function, *arguments)
        if error is not None:
            self.side.failed(name, error)
        return error

    def _move(self, messages: list[Any]) -> None:
        producer = self.producer
        error = self._public("begin", producer.begin_transaction)
        for message in messages:
            if error is not None:
                break
            error = self._public("produce", producer.produce, self.side.out, message.value(), message.key())
        upto: dict[int, int] = {m.partition(): m.offset() + 1 for m in messages}
        places = [TopicPartition(self.side.topic, p, offset) for p, offset in upto.items()]
        if error is None:
            metadata = self.reader.consumer_group_metadata()
            error = self._public("send_offsets", producer.send_offsets_to_transaction, places, metadata, 20)
        settling = self.side.settling.is_set()
        held = self.side.phase.startswith("held")
        if held:
            self.side.did("transaction while keys are held")
        aborts = "abort" in self.habits or held  # what an abort takes back is this transaction's, and no earlier one's
        if error is None and aborts and not settling and not self.rng.randrange(2 if held else 4):
            self.side.did("abort")
            error = self._public("abort", producer.abort_transaction, 20)
            if error is None:
                self._go_back()
                return
        if error is None:
            error = self._commit(settling)
        if error is None:
            self.side.moved("delivered", len(messages))
        else:
            self._recover()

    def _commit(self, settling: bool) -> BaseException | None:
        short = ("short-commit" in self.habits or "held-long" in self.habits) and not settling
        for _ in range(60):
            timeout = self.rng.choice((0.05, 0.3, 1.0)) if short else 10
            error = self._public("commit", self.producer.commit_transaction, timeout)
            known = error.args[0] if isinstance(error, KafkaException) and error.args else None
            if not (isinstance(known, KafkaError) and known.retriable()):
                return error
            self.side.did("commit again after a retriable error")
            self.side.moved()
        return error

    def _recover(self) -> None:
        self.side.did("begin anew")
        if not self.closed:
            self.interrupts.call("", self.producer.close, *((1,) if self.side.ours else ()))
            self.closed = True

    def _go_back(self) -> None:
        """To what the group has committed."""
        try:
            mine = self.reader.assignment()
            for place in self.reader.committed(mine, 20) if mine else []:
                self.reader.seek(TopicPartition(place.topic, place.partition, max(0, place.offset)))
        except KafkaException as error:
            self.side.failed("go back", error)
            self.reader.unsubscribe()
            self.reader.subscribe([self.side.topic])
