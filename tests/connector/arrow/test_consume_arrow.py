"""OrderedConsumer.consume_arrow on real brokers: the guarantees of consume(), by the C calls and without them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.arrow.schema import SCHEMA, empty_batch
from support.cluster import KafkaUnderTest
from support.groups import QUICK, group_config, send
from support.workload import Workload, assert_in_order

from .test_reader import fill, make_topic, stock_rows

WAYS = pytest.mark.parametrize("native", [True, False], ids=["native", "fallback"])


def consume_rows(consumer: OrderedConsumer, count: int, at_once: int = 70) -> list[dict[str, Any]]:
    """So many rows, in the order in which they came."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 120
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        batch = consumer.consume_arrow(at_once, 0.2)
        assert batch.schema == SCHEMA
        assert len(batch) <= at_once
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


@WAYS
def test_gives_what_the_ordinary_consumer_gives(kafka: KafkaUnderTest, topic_name: str, native: bool) -> None:
    """Keys, values, headers, nulls, times: all rows, each partition in its order."""
    make_topic(kafka, topic_name, 3)
    fill(kafka, topic_name, 1500)
    config = group_config(kafka, topic_name, enable_ordered_delivery=False)
    consumer = OrderedConsumer({**config, "keyorder.arrow.native": native})
    consumer.subscribe([topic_name])
    rows = consume_rows(consumer, 1500)
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(row)
    assert stock_rows(kafka, topic_name, {0: 500, 1: 500, 2: 500}) == found
    assert (consumer._delivery.columns is not None) == native
    assert empty_batch() == consumer.consume_arrow(10, 0.1)
    consumer.close()


@WAYS
def test_a_row_is_processed_with_the_next_call(kafka: KafkaUnderTest, topic_name: str, native: bool) -> None:
    """What was returned and not asked past is delivered again to the next member; the rest is not."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{i}", "v") for i in range(20)))
    config = {**group_config(kafka, topic_name), "keyorder.arrow.native": native}
    consumer = OrderedConsumer(config)
    consumer.subscribe([topic_name])
    assert [row["offset"] for row in consume_rows(consumer, 10, at_once=10)] == list(range(10))
    assert [p.offset for p in consumer.position([TopicPartition(topic_name, 0)])] == [10]
    assert [row["offset"] for row in consume_rows(consumer, 5, at_once=5)] == list(range(10, 15))
    try:
        raise RuntimeError("the application fails with the second batch in hand")
    except RuntimeError:
        consumer.close()
    consumer = OrderedConsumer(config)
    consumer.subscribe([topic_name])
    assert [row["offset"] for row in consume_rows(consumer, 10, at_once=5)] == list(range(10, 20))
    consumer.close()


@WAYS
def test_calls_may_be_mixed_and_positions_moved(kafka: KafkaUnderTest, topic_name: str, native: bool) -> None:
    """poll, consume, consume_arrow, seek, pause and resume by turns: each record once, but for what seek asks for."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{i}", f"v{i}") for i in range(300)))
    consumer = OrderedConsumer({**group_config(kafka, topic_name), "keyorder.arrow.native": native})
    consumer.subscribe([topic_name])
    seen: list[int] = []
    values: list[bytes] = []
    place = TopicPartition(topic_name, 0)
    deadline = time.monotonic() + 120
    steps = 0
    while len(seen) < 330:
        assert time.monotonic() < deadline
        steps += 1
        if steps % 3 == 0:
            messages = [m for m in [consumer.poll(0.2)] if m is not None]
        elif steps % 3 == 1:
            messages = consumer.consume(20, 0.2)
        else:
            batch = consumer.consume_arrow(20, 0.2)
            seen += batch.column("offset").to_pylist()
            values += batch.column("value").to_pylist()
            messages = []
        assert all(m.error() is None for m in messages)
        seen += [m.offset() or 0 for m in messages]
        values += [m.value() or b"" for m in messages]
        if len(seen) >= 100 and place is not None:
            consumer.pause([place])
            consumer.resume([place])
            consumer.seek(TopicPartition(topic_name, 0, (seen[-1]) + 1 - 30))
            again = seen[-1] + 1 - 30
            at = len(seen)
            place = None  # type: ignore[assignment]
    assert seen[at:] == list(range(again, 300))
    assert seen[:at] == list(range(at))
    assert values == [f"v{i}".encode() for i in seen]
    consumer.close()


@pytest.mark.kip("K253-01", "K253-13")
@pytest.mark.parametrize(
    ("protocol", "columns", "native"),
    [
        ({"partition.assignment.strategy": "roundrobin"}, "always", True),
        ({"group.protocol": "consumer"}, "mixed", True),
        ({"partition.assignment.strategy": "roundrobin"}, "mixed", False),
    ],
    ids=["roundrobin", "kip-848-mixed", "fallback-mixed"],
)
def test_growth_and_shrink_under_load_keep_every_key_in_order(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, protocol: dict[str, str], columns: str, native: bool
) -> None:
    """A changing group that reads columns sees 3 -> 5 -> 4, one member joining and one killed: the checker finds nothing."""
    config = {**protocol, "keyorder.arrow.native": native}
    with Workload(kafka, tmp_path, topic_name, partitions=3, config=QUICK) as run:
        run.consumer("c1", "g", config=config, columns=columns)
        doomed = run.consumer("c2", "g", config=config, columns=columns)
        run.writer("w1", rate=800, shared_keys=["hot"])
        assert run.expand(5) == 0
        run.consumer("c3", "g", config=config, columns=columns)
        if "group.protocol" not in protocol:  # there the brokers decide how long a dead member is waited for: 45 s
            run.kill(doomed)
        assert run.shrink(4) == 0

        assert_in_order(run.finish())


@WAYS
def test_a_backlog_across_growth_is_held_at_its_gates(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, native: bool
) -> None:
    """A group that starts behind two growths gets whole slices, and still no key out of order."""
    with Workload(kafka, tmp_path, topic_name, config=QUICK) as run:
        run.writer("w1", rate=50_000, count=8_000, keys=300, linger=True).expect("finished")
        assert run.expand(6) == 0
        run.writer("w2", rate=50_000, count=8_000, keys=300, linger=True).expect("finished")
        assert run.expand(9) == 0
        run.writer("w3", rate=50_000, count=4_000, keys=300, linger=True).expect("finished")
        config = {"keyorder.arrow.native": native}
        run.consumer("c1", "g", batch=3000, columns="always", config=config)
        run.consumer("c2", "g", batch=3000, columns="always", config=config)
        run.drain()
        verdict = run.verdict(quiesced=False)

        assert_in_order(verdict)
        assert verdict.records == 20_000


@WAYS
def test_an_error_event_is_raised_behind_the_records_before_it(
    kafka: KafkaUnderTest, topic_name: str, native: bool
) -> None:
    """A batch has no place for an error: it is a KafkaException of its own."""
    make_topic(kafka, topic_name, 1)
    consumer = OrderedConsumer({**group_config(kafka, topic_name), "keyorder.arrow.native": native})
    consumer.subscribe([topic_name, topic_name + "-absent"])
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        consumer.consume_arrow(10, 60)
    consumer.close()
