"""Runs: what poll() returns one record at a time is booked exactly, whatever comes in between."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import itertools
import signal
from types import FrameType

import pytest
from confluent_kafka import KafkaError, Message
from keyorder import OrderedConsumer
from keyorder.aio import AIOConsumer
from keyorder.connector.consuming.partition_state import PartitionState
from keyorder.connector.consuming.records.batches import Item, MessageBatch
from keyorder.connector.consuming.records.delivery_buffer import DeliveryBuffer, Run
from keyorder.connector.messages import Place, offset_of, place_of

Owned = dict[Place, PartitionState]


def owning(*partitions: int) -> Owned:
    return {("t", p): PartitionState("t", p) for p in partitions}


def batch(partition: int, *offsets: int) -> MessageBatch:
    messages = [Message(topic="t", partition=partition, offset=offset, value=b"v") for offset in offsets]
    return MessageBatch(("t", partition), messages)


def event(partition: int) -> Message:
    return Message(topic="t", partition=partition, offset=9, error=KafkaError(KafkaError._PARTITION_EOF))


def offered(owned: Owned, *items: Item) -> tuple[DeliveryBuffer, Run]:
    out = DeliveryBuffer(owned)
    out.ready.extend(items)
    out.begin()
    assert out.collect(100) is None
    assert out.offer(100, float("inf"))
    assert out.run is not None
    return out, out.run


def book(out: DeliveryBuffer, owned: Owned) -> None:
    def finished() -> None:
        for place in out.returned:
            owned[place].unfinished = False
            owned[place].done_with_all()
        out.returned.clear()

    out.book(finished)


def test_all_but_the_last_returned_record_count_as_processed() -> None:
    owned = owning(0, 1)
    out, run = offered(owned, batch(0, 5, 6), event(0), batch(1, 3, 4, 7))
    expected = [  # after so many records: returned and processed of partition 0 and 1
        (0, 0, 0, 0),
        (6, 0, 0, 0),
        (7, 6, 0, 0),
        (7, 7, 0, 0),  # the event
        (7, 7, 4, 0),
        (7, 7, 5, 4),
        (7, 7, 8, 5),
    ]
    for count, states in enumerate(expected):
        run.next = count
        for _ in range(2):  # an exception may have cut the first call short
            book(out, owned)
        zero, one = owned["t", 0], owned["t", 1]
        assert (zero.returned, zero.processed, one.returned, one.processed) == states, count
    assert out.returned == {("t", 1)}
    assert [owned["t", p].unfinished for p in (0, 1)] == [False, True]


@pytest.mark.parametrize("count", range(7))
def test_what_a_run_has_left_comes_next_and_in_order(count: int) -> None:
    owned = owning(0, 1)
    out, run = offered(owned, batch(0, 5, 6), event(0), batch(1, 3, 4, 7))
    out.ready.append(batch(0, 8))
    run.next = count
    out.end()
    book(out, owned)
    assert out.run is None
    assert run.end == 0
    out.take_back()
    out.begin()
    assert out.collect(100) is None
    assert [(place_of(m), offset_of(m)) for m in (*run.messages[:count], *out.messages())] == [
        *((("t", 0), offset) for offset in (5, 6, 9)),
        *((("t", 1), offset) for offset in (3, 4, 7)),
        (("t", 0), 8),
    ]


def test_a_run_ends_where_partitions_go() -> None:
    owned = owning(0, 1)
    out, run = offered(owned, batch(0, 5, 6), batch(1, 3, 4))
    run.next = 1
    out.end()
    book(out, owned)
    out.take_back()
    out.drop({("t", 0)})
    out.begin()
    assert out.collect(100) is None
    assert [offset_of(m) for m in out.messages()] == [3, 4]


@pytest.mark.parametrize("method", [OrderedConsumer.poll, OrderedConsumer.given])
def test_nothing_comes_between_the_count_and_the_return(method: object) -> None:
    """CPython looks at signals, and lets threads in, after calls, at a function's start and where it jumps (taken).

    From the look at `next` to the return there is none of it on the way that returns a record.
    """
    code = [each for each in dis.get_instructions(method) if each.opname not in ("CACHE", "NOP", "PRECALL")]  # type: ignore[arg-type]
    begin = next(n for n, each in enumerate(code) if each.opname == "LOAD_ATTR" and "next" in str(each.argval).split())
    end = next(n for n, each in enumerate(code) if n > begin and each.opname.startswith("RETURN"))
    way = [each.opname for each in code[begin:end]]
    assert sum(name == "STORE_ATTR" for name in way) == 1
    jumps = [name for name in way if "JUMP" in name]
    assert len(jumps) == 1, "one condition"
    assert "IF" in jumps[0], "and it falls through"
    assert not [name for name in way if name.startswith(("CALL", "RESUME", "YIELD", "SEND", "FOR_ITER"))]


class Interrupted(Exception):
    """Raised by the signal handler."""


@pytest.mark.slow
def test_signals_that_raise_lose_and_repeat_nothing() -> None:
    consumer = OrderedConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    out = consumer._delivery.out
    seen: list[int] = []
    interrupts = 0
    number = itertools.count(1)

    def handler(signum: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is OrderedConsumer.poll.__code__:
            raise Interrupted

    before = signal.signal(signal.SIGVTALRM, handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0001, 0.00005)
    try:
        while interrupts < 100:
            start = next(number) * 500
            out.ready.append(batch(0, *range(start, start + 500)))
            out.begin()
            consumer._members.owned["t", 0] = PartitionState("t", 0)
            out.collect(500)
            out.offer(500, float("inf"))
            run = out.run
            assert run is not None
            while run.next < run.end:
                try:
                    message = consumer.poll(0)
                except Interrupted:
                    interrupts += 1
                    continue
                assert message is not None
                seen.append(offset_of(message))
            out.end()
            out.take_back()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        consumer._members.owned.clear()
        consumer.close()
    assert seen == list(range(500, 500 + len(seen)))


def test_storing_each_record_leaves_the_run_as_it_is() -> None:
    consumer = OrderedConsumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "enable.auto.offset.store": False}
    )
    out = consumer._delivery.out
    owned = consumer._members.owned["t", 0] = PartitionState("t", 0)
    out.ready.append(batch(0, *range(10)))
    out.begin()
    out.collect(10)
    out.offer(10, float("inf"))
    run = out.run
    try:
        for offset in range(9):
            message = consumer.poll(0)
            assert message is not None
            assert owned.processed == offset
            consumer.store_offsets(message)
            assert (owned.processed, owned.returned, offset_of(message)) == (offset + 1, offset + 1, offset)
        assert out.run is run
        consumer.pause([])
        assert out.run is None
        assert isinstance(out.last, list)
        assert [item.offset(0) for item in out.last if not isinstance(item, Message)] == [9]
    finally:
        consumer._members.owned.clear()
        consumer.close()


def test_awaited_polls_leave_the_loop_to_others_and_a_cancelled_one_loses_nothing() -> None:
    async def run() -> tuple[list[int], int]:
        consumer = AIOConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
        members, out = consumer._consumer._members, consumer._consumer._delivery.out
        members.owned["t", 0] = PartitionState("t", 0)
        out.ready.append(batch(0, *range(20_000)))
        out.begin()
        out.collect(20_000)
        out.offer(20_000, float("inf"))
        seen: list[int] = []
        others = 0

        async def read() -> None:
            while True:
                message = await consumer.poll(1.0)
                assert message is not None
                seen.append(offset_of(message))

        async def tick() -> None:
            nonlocal others
            while len(seen) < 20_000:
                others += 1
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading
                new()
                for _ in range(3):
                    await asyncio.sleep(0)

        def new() -> None:
            nonlocal reading
            reading = asyncio.ensure_future(read())

        reading: asyncio.Future[None]
        new()
        await tick()
        reading.cancel()
        members.owned.clear()
        await consumer.close()
        return seen, others

    seen, others = asyncio.run(run())
    assert seen == list(range(20_000))
    assert others > 1
