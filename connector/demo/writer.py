"""A writer process: sends the same sequence of records to both topics, through keyorder's producer and a stock one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from .. import clock
from ..producing.producer import OrderedProducer
from ..verify.events import encode_value
from ..verify.recorder import Recorder
from .keys import key_stream
from .worker import Line

_TICK = 0.01
_TELL = 0.5
_PADDING = 40


class Lane:
    """One of the two topics: its producer, its recorder and what became of its records."""

    def __init__(self, producer: Any, topic: str, recorder: Recorder) -> None:
        self.producer, self.topic, self.recorder = producer, topic, recorder
        self.sent = self.acknowledged = self.failed = 0

    def send(self, key: str, sequence: int, value: bytes) -> None:
        """Hand one record over; waits while the client's queue is full."""
        self.recorder.send_invoke(key, sequence)
        heard = self._listener(key, sequence)
        while True:
            try:
                self.producer.produce(self.topic, value, key, on_delivery=heard)
                break
            except BufferError:
                self.producer.poll(_TICK)
        self.sent += 1

    def _listener(self, key: str, sequence: int) -> Callable[[KafkaError | None, Message], None]:
        def heard(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged += 1
                partition, offset = message.partition(), message.offset()
                self.recorder.send_ok(key, sequence, -1 if partition is None else partition, offset)
            else:
                # Which errors leave the record's fate open is a long story: "unknown" is always true.
                self.failed += 1
                self.recorder.send_unknown(key, sequence)

        return heard


def main() -> None:
    """Run until told to stop, then until everything is acknowledged."""
    line = Line()
    spec = line.spec
    name, number = spec["name"], spec["number"]
    connection = {"bootstrap.servers": spec["bootstrap_servers"], "client.id": name}
    with ExitStack() as stack:
        recorders = {
            side: stack.enter_context(Recorder(spec["files"][side], name, run=spec["run"])) for side in spec["files"]
        }
        ordered = OrderedProducer(connection)
        stack.callback(ordered.close)
        # As kind as a stock producer can be set up: Java's partitioner, no loss, new partitions seen within a second.
        stock = Producer(
            {
                **connection,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        lanes = [
            Lane(ordered, spec["topics"]["keyorder"], recorders["keyorder"]),
            Lane(stock, spec["topics"]["stock"], recorders["stock"]),
        ]
        stream = key_stream(
            spec["seed"], number, spec["writers"], spec["keys"], spec["records_per_key"], spec["together"]
        )
        line.tell(ready=True)
        line.go.wait()
        _write(line, spec, lanes, stream, ordered)
        for lane in lanes:
            lane.producer.flush(60)
        _report(line, lanes, ordered)


def _write(
    line: Line, spec: dict[str, Any], lanes: list[Lane], stream: Iterator[str], ordered: OrderedProducer
) -> None:
    """Keep to the rate by the clock: what a slow moment left undone is made up for."""
    sequences: dict[str, int] = {}
    began = told = clock.now()
    written = 0
    while not line.stop.is_set():
        now = clock.now()
        due = int((now - began) * spec["rate"])
        while written < due:
            key = next(stream)
            sequence = sequences[key] = sequences.get(key, 0) + 1
            value = encode_value(spec["run"], spec["name"], key, sequence, _PADDING)
            for lane in lanes:
                lane.send(key, sequence, value)
            written += 1
        for lane in lanes:
            lane.producer.poll(0)
        if now - told >= _TELL:
            told = now
            _report(line, lanes, ordered)
        line.stop.wait(_TICK)


def _report(line: Line, lanes: list[Lane], ordered: OrderedProducer) -> None:
    mine, stock = lanes
    line.tell(
        sent={"keyorder": mine.sent, "stock": stock.sent},
        acknowledged={"keyorder": mine.acknowledged, "stock": stock.acknowledged},
        failed={"keyorder": mine.failed, "stock": stock.failed},
        holds=[seconds * 1000 for seconds in ordered.hold_times()],
    )


if __name__ == "__main__":
    main()
