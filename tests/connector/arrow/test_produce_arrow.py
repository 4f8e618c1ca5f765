"""OrderedProducer.produce_arrow on real brokers: the guarantees of produce(), by the C calls and without them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder import Layout, OrderedProducer, TopicAdmin
from keyorder.connector.arrow.reader import ArrowReader
from keyorder.connector.arrow.schema import HEADERS
from keyorder.connector.arrow.sender import NativeSender
from keyorder.partitioner.errors import KeyBlockedError, UsageError
from keyorder.partitioner.hashing import key_hash
from keyorder.partitioner.routing import HINT_HEADER
from support.cluster import KafkaUnderTest
from support.groups import QUICK
from support.workload import Workload, assert_in_order

from .test_sender import odd_batch

WAYS = pytest.mark.parametrize("native", [True, False], ids=["native", "fallback"])


def log_of(kafka: KafkaUnderTest, topic: str, partitions: int) -> dict[int, list[dict[str, Any]]]:
    """Every record, by partition."""
    from confluent_kafka import Consumer, TopicPartition

    asker = Consumer({**kafka.client_config(), "group.id": "ends"})
    ends = {p: asker.get_watermark_offsets(TopicPartition(topic, p), timeout=120)[1] for p in range(partitions)}
    asker.close()
    found: dict[int, list[dict[str, Any]]] = {p: [] for p in range(partitions)}
    with ArrowReader(kafka.client_config()) as reader:
        reader.assign({topic: [(p, 0, end) for p, end in ends.items()]})
        while not reader.done:
            for row in reader.read(5000, 10).to_pylist():
                found[row["partition"]].append(row)
    return found


@pytest.fixture(params=[True, False], ids=["native", "fallback"])
def producer(request: pytest.FixtureRequest, kafka: KafkaUnderTest) -> Iterator[OrderedProducer]:
    """A producer of either kind, with a queue shorter than what the tests write."""
    config = {**kafka.client_config(), "queue.buffering.max.messages": 600, "linger.ms": 5}
    with OrderedProducer({**config, "keyorder.arrow.native": request.param}) as made:
        yield made
        columns = made._deliveries.columns
        assert columns is None or isinstance(columns._sender, NativeSender) == request.param


@pytest.mark.kip("K253-01")
def test_rows_go_where_records_go(kafka: KafkaUnderTest, topic_name: str, producer: OrderedProducer) -> None:
    """Homes, hints, headers and times are those of produce(), on a topic that has grown and shrunk; nulls spread."""
    admin = TopicAdmin(kafka.client_config())
    topics = [topic_name, topic_name + "-single"]
    for topic in topics:
        admin.create(topic, 2, config=QUICK)
        admin.expand(topic, 5)
        admin.shrink(topic, 4)
    batch = odd_batch(11, 1500)
    assert producer.produce_arrow(topics[0], pa.Table.from_batches([batch.slice(0, 700), batch.slice(700)])) == 1500
    for row in batch.to_pylist():
        headers = None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]]
        time = 0 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
        while True:
            try:
                producer.produce(topics[1], row["value"], row["key"], timestamp=time, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    assert producer.arrow_failures() == []
    rows, singles = (log_of(kafka, topic, 5) for topic in topics)
    given = {row["timestamp"] for row in batch.to_pylist()}

    def keyed(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [
            (r["key"], r["value"], str(r["headers"]), r["timestamp"] if r["timestamp"] in given else None)
            for r in records
            if r["key"] is not None
        ]

    assert {p: keyed(found) for p, found in rows.items()} == {p: keyed(found) for p, found in singles.items()}
    loose = [r["value"] for p in rows for r in rows[p] if r["key"] is None]
    assert sorted(map(str, loose)) == sorted(str(r["value"]) for r in batch.to_pylist() if r["key"] is None)
    assert rows[4] == []


@pytest.mark.kip("K253-01", "K253-13", "K253-28")
@pytest.mark.parametrize(
    ("columns", "native"), [("always", True), ("mixed", True), ("mixed", False)], ids=["always", "mixed", "fallback"]
)
def test_writers_of_columns_through_growth_and_shrink(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, columns: str, native: bool
) -> None:
    """Two writers of batches beside one of single records see 3 -> 5 -> 4 -> 6: the checker finds nothing."""
    config = {"keyorder.arrow.native": native}
    with Workload(kafka, tmp_path, topic_name, partitions=3, config=QUICK) as run:
        run.consumer("c1", "g", columns="always")
        run.writer("w1", rate=2_000, seed=1, columns=columns, config=config)
        run.writer("w2", rate=2_000, seed=2, columns=columns, config=config)
        run.writer("w3", rate=500, seed=3)
        assert run.expand(5) == 0
        assert run.shrink(4) == 0
        assert run.expand(6) == 0
        verdict = run.finish()

        assert_in_order(verdict)
        assert verdict.keys_moved > 50


@WAYS
def test_moved_keys_of_a_compacted_topic_are_cleared(kafka: KafkaUnderTest, topic_name: str, native: bool) -> None:
    """The first row of a moved key is followed by a move tombstone at its earlier home, as by produce()."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config={**QUICK, "cleanup.policy": "compact"})
    with OrderedProducer({**kafka.client_config(), "keyorder.arrow.native": native}) as producer:
        keys = [f"k{i}" for i in range(40)]
        assert producer.produce_arrow(topic_name, pa.RecordBatch.from_pydict({"key": keys, "value": keys})) == 40
        assert producer.flush(120) == 0
        admin.expand(topic_name, 2)
        assert producer.produce_arrow(topic_name, pa.RecordBatch.from_pydict({"key": keys, "value": keys})) == 40
        assert producer.flush(120) == 0
    log = log_of(kafka, topic_name, 2)
    moved = sorted(row["key"] for row in log[1])
    assert moved
    assert moved == sorted(row["key"] for row in log[0] if row["value"] is None)
    assert all(row["headers"][0]["key"] == "keyorder-epoch" for row in log[1])


def test_a_failed_row_blocks_its_key_until_it_is_told(
    kafka: KafkaUnderTest, topic_name: str, producer: OrderedProducer
) -> None:
    """`arrow_failures` names it; whoever does not ask hears KeyBlockedError once, by either call. Other keys flow."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config={**QUICK, "max.message.bytes": "2000"})
    good = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": ["1", "2", "3"]})
    bad = pa.RecordBatch.from_pydict({"key": ["b"], "value": ["x" * 50_000]})
    for again in ("told", "arrow", "single"):
        assert producer.produce_arrow(topic_name, good) == 3
        assert producer.flush(120) == 0
        assert producer.produce_arrow(topic_name, bad) == 1
        assert producer.flush(120) == 0
        if again == "told":
            assert [(f.topic, f.partition, f.code) for f in producer.arrow_failures()] == [(topic_name, 0, 10)]
        elif again == "arrow":
            assert producer.produce_arrow(topic_name, good) == 1
            with pytest.raises(KeyBlockedError):
                producer.produce_arrow(topic_name, good.slice(1))
        else:
            producer.poll(0)
            with producer._lock:
                producer._deliveries.harvest()
            with pytest.raises(KeyBlockedError):
                producer.produce(topic_name, "v", "b")
    assert producer.produce_arrow(topic_name, good) == 3
    assert producer.flush(120) == 0


def test_rows_that_went_as_single_records_are_told_of_too(
    kafka: KafkaUnderTest, topic_name: str, producer: OrderedProducer
) -> None:
    """The first write of a moved key on a compacted topic does: refused by the broker, it must not vanish unheard."""
    admin = TopicAdmin(kafka.client_config())
    settings = {**QUICK, "cleanup.policy": "compact", "max.message.bytes": "2000"}
    admin.create(topic_name, 1, config=settings)
    admin.expand(topic_name, 2)
    key = next(f"k{n}" for n in range(100) if Layout(1, 2).home(f"k{n}".encode()) == 1)
    assert producer.produce_arrow(topic_name, pa.RecordBatch.from_pydict({"key": [key], "value": ["x" * 50_000]})) == 1
    assert producer.flush(120) == 0
    assert [(f.topic, f.partition, f.code) for f in producer.arrow_failures()] == [(topic_name, 1, 10)]
    assert producer.produce_arrow(topic_name, pa.RecordBatch.from_pydict({"key": [key], "value": ["x"]})) == 1
    assert producer.flush(120) == 0
    assert producer.arrow_failures() == []


@WAYS
def test_purged_rows_are_told_of_and_block_no_key(kafka: KafkaUnderTest, topic_name: str, native: bool) -> None:
    """As produce()'s callbacks tell. The library purges by itself, too, when it meets a fatal error."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    config = {**kafka.client_config(), "linger.ms": 15_000, "keyorder.arrow.native": native}
    rows = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "value": ["1", "2", "3"]})
    with OrderedProducer(config) as producer:
        assert producer.produce_arrow(topic_name, rows) == 3
        producer.purge()
        assert producer.flush(120) == 0
        codes = [failure.code for failure in producer.arrow_failures()]
        assert codes == [KafkaError._PURGE_QUEUE] * 3
        assert producer.produce_arrow(topic_name, rows) == 3
        producer.purge()


def test_what_cannot_be_taken_ends_the_batch(kafka: KafkaUnderTest, topic_name: str, producer: OrderedProducer) -> None:
    """Rows before a row that is too large are taken; alone it raises. Other columns are refused."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    batch = pa.RecordBatch.from_pydict({"key": ["a"] * 3, "value": ["1", "x" * 1_100_000, "3"]})
    assert producer.produce_arrow(topic_name, batch) == 1
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        producer.produce_arrow(topic_name, batch.slice(1))
    with pytest.raises(UsageError, match="'value' is int64"):
        producer.produce_arrow(topic_name, pa.RecordBatch.from_pydict({"value": [1]}))
    assert producer.produce_arrow(topic_name, batch.slice(0, 0)) == 0
    assert producer.flush(120) == 0


NO_HEADERS: list[Any] = [None, {"key": None, "value": b"x"}]


@pytest.mark.parametrize("broken", NO_HEADERS, ids=["null", "nameless"])
def test_a_header_that_is_none_ends_the_batch(
    kafka: KafkaUnderTest, topic_name: str, producer: OrderedProducer, broken: Any
) -> None:
    """Rows before it are taken; alone it raises, as produce() does. The C calls would write one without name and value.

    A list outside of the batch, or one that is null, does not count.
    """
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    fine = {"key": "a", "value": b"1"}
    lists = pa.array([[broken], [fine], None, [fine, broken], [fine]], HEADERS)
    batch = pa.RecordBatch.from_pydict({"key": [f"k{n}" for n in range(5)], "value": ["v"] * 5, "headers": lists})
    assert producer.produce_arrow(topic_name, batch.slice(1)) == 2
    assert producer.produce_arrow(topic_name, batch.slice(4)) == 1
    with pytest.raises(TypeError, match="header") as raised:
        producer.produce_arrow(topic_name, batch.slice(3))
    assert isinstance(raised.value, UsageError)
    table = pa.Table.from_batches([batch.slice(1, 2), batch.slice(3)])
    assert producer.produce_arrow(topic_name, table) == 2
    assert producer.flush(120) == 0
    assert producer.arrow_failures() == []
    told = [row["headers"] for row in log_of(kafka, topic_name, 1)[0]]
    assert told == [[fine], None, [fine], [fine], None]


@pytest.mark.parametrize("broken", NO_HEADERS, ids=["null", "nameless"])
def test_a_header_that_is_none_beside_a_hint(
    kafka: KafkaUnderTest, topic_name: str, producer: OrderedProducer, broken: Any
) -> None:
    """Headers of the hint's name are left out of the rows that go."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    hint = {"key": HINT_HEADER, "value": b"7"}
    batch = pa.RecordBatch.from_pydict(
        {"key": ["a", "b"], "value": ["v", "w"], "headers": pa.array([[hint], [broken]], HEADERS)}
    )
    assert producer.produce_arrow(topic_name, batch) == 1
    assert producer.flush(120) == 0
    assert [row["headers"] for row in log_of(kafka, topic_name, 1)[0]] == [None]


def test_an_error_in_the_middle_of_a_full_queue_loses_and_repeats_nothing(
    kafka: KafkaUnderTest, topic_name: str, producer: OrderedProducer
) -> None:
    """Every row is in the log once or told of as failed, and each key's rows lie in their order."""
    TopicAdmin(kafka.client_config()).create(topic_name, 3, config={**QUICK, "max.message.bytes": "5000"})
    count, bad = 3_000, range(200, 3_000, 700)
    keys = [f"key-{row % 11}" for row in range(count)]
    values = [" " * 20_000 * (row in bad) + f"{row}" for row in range(count)]
    batch = pa.RecordBatch.from_pydict({"key": keys, "value": values})
    first, failed = 0, []
    while first < count:
        try:
            first += producer.produce_arrow(topic_name, batch.slice(first))
        except KeyBlockedError:
            assert producer.flush(120) == 0
            failed += producer.arrow_failures()
    assert producer.flush(120) == 0
    failed += producer.arrow_failures()

    found = [row for rows in log_of(kafka, topic_name, 3).values() for row in rows]
    assert len(found) + len(failed) == count
    assert len(failed) >= len(bad)
    for key in sorted(set(keys)):
        own = [int(row["value"]) for row in found if row["key"] == key.encode()]
        assert own == sorted(set(own))
        assert len(own) + [f.key_hash for f in failed].count(key_hash(key.encode())) == keys.count(key)


def test_transactions_take_rows(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What an aborted transaction held does not show, what a committed one held does; the abort blocks no key."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    with OrderedProducer({**kafka.client_config(), "transactional.id": topic_name}) as producer:
        producer.init_transactions(30)
        for number, end in enumerate((producer.abort_transaction, producer.commit_transaction)):
            producer.begin_transaction()
            keys = [f"k{i}" for i in range(50)]
            batch = pa.RecordBatch.from_pydict({"key": keys, "value": [str(number)] * 50})
            assert producer.produce_arrow(topic_name, batch) == 50
            for key in keys:
                producer.produce(topic_name, str(number), key)
            end(30)
        assert producer.arrow_failures() == []
    values = [row["value"] for rows in log_of(kafka, topic_name, 2).values() for row in rows]
    assert values == [b"1"] * 100


def forty_rows() -> pa.Table:
    """Two batches of rows whose values are their numbers, of one key each."""
    numbers = [str(number) for number in range(40)]
    rows = pa.RecordBatch.from_pydict({"key": [f"k{number}" for number in numbers], "value": numbers})
    return pa.Table.from_batches([rows.slice(0, 30), rows.slice(30)])


def key_of(number: int) -> int:
    """How a failure names a row of forty_rows()."""
    return key_hash(f"k{number}".encode())


def numbers_in(kafka: KafkaUnderTest, topic: str) -> list[int]:
    """The values in a topic of four partitions, which are numbers."""
    return sorted(int(row["value"]) for rows in log_of(kafka, topic, 4).values() for row in rows)


@WAYS
@pytest.mark.parametrize("call", ["poll", "flush", "close", "produce_arrow"])
@pytest.mark.parametrize("kind", [ValueError, KafkaException])
def test_what_a_callback_raises_is_heard_when_the_rows_are_taken(
    kafka: KafkaUnderTest, topic_name: str, native: bool, call: str, kind: type[Exception]
) -> None:
    """A single record's callback raises while rows wait for room: all are taken, and the next call raises the first."""
    TopicAdmin(kafka.client_config()).create(topic_name, 4, config=QUICK)
    config = {**kafka.client_config(), "queue.buffering.max.messages": 10, "linger.ms": 200}
    rows = forty_rows()
    errors: list[Exception] = []

    def raises(*_: object) -> None:
        errors.append(kind(KafkaError(KafkaError._APPLICATION)))
        raise errors[-1]

    with OrderedProducer({**config, "keyorder.arrow.native": native}) as producer:
        for _ in range(2):
            producer.produce(topic_name, "-1", "single", on_delivery=raises)
        assert producer.produce_arrow(topic_name, rows) == 40
        calls: dict[str, Callable[[], object]] = {
            "poll": lambda: producer.poll(0),
            "flush": producer.flush,
            "close": producer.close,
            "produce_arrow": lambda: producer.produce_arrow(topic_name, rows),
        }
        with pytest.raises(kind) as heard:
            calls[call]()
        assert heard.value is errors[0]
        assert len(errors) == 2
        if call != "close":
            assert producer.flush(120) == 0
            assert producer.arrow_failures() == []
    assert numbers_in(kafka, topic_name) == [-1, -1, *range(40)]


@WAYS
@pytest.mark.parametrize("where", ["callback", "signal"])
def test_an_interrupt_goes_out_at_once_and_tells_of_the_rows_left_behind(
    kafka: KafkaUnderTest, topic_name: str, native: bool, where: str
) -> None:
    """Ctrl-C in a callback, or what a signal handler raises: each row before the last one taken is there or has failed."""
    TopicAdmin(kafka.client_config()).create(topic_name, 4, config=QUICK)
    linger = 200 if where == "callback" else 3_000
    config = {**kafka.client_config(), "queue.buffering.max.messages": 10, "linger.ms": linger}

    class Interrupted(Exception):
        pass

    raised: type[BaseException] = KeyboardInterrupt if where == "callback" else Interrupted

    def interrupts(*_: object) -> None:
        raise raised

    with OrderedProducer({**config, "keyorder.arrow.native": native}) as producer:
        assert producer.produce_arrow(topic_name, pa.RecordBatch.from_pydict({"value": ["-2"]})) == 1
        assert producer.flush(120) == 0
        before = signal.signal(signal.SIGALRM, interrupts)
        try:
            if where == "callback":
                producer.produce(topic_name, "-1", "single", on_delivery=interrupts)
            else:
                signal.setitimer(signal.ITIMER_REAL, 1)
            with pytest.raises(raised):
                producer.produce_arrow(topic_name, forty_rows())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert producer.flush(120) == 0
        failed = {failure.key_hash for failure in producer.arrow_failures()}
    found = [number for number in numbers_in(kafka, topic_name) if number >= 0]
    assert found == sorted(set(found))
    lost = set(range(found[-1])) - set(found)
    assert lost
    assert failed == {key_of(number) for number in lost}


@WAYS
def test_rows_taken_count_when_the_producer_is_closed_in_the_middle(
    kafka: KafkaUnderTest, topic_name: str, native: bool
) -> None:
    """By a callback: each row that counts as taken is in the log or has failed, and the next call raises."""
    TopicAdmin(kafka.client_config()).create(topic_name, 4, config=QUICK)
    config = {**kafka.client_config(), "queue.buffering.max.messages": 10, "linger.ms": 200}
    producer = OrderedProducer({**config, "keyorder.arrow.native": native})
    producer.produce(topic_name, "-1", "single", on_delivery=lambda *_: producer.close())
    taken = producer.produce_arrow(topic_name, forty_rows())
    with pytest.raises(RuntimeError, match="closed"):
        producer.produce_arrow(topic_name, forty_rows())
    failed = {failure.key_hash for failure in producer.arrow_failures()}
    found = [number for number in numbers_in(kafka, topic_name) if number >= 0]
    assert taken == found[-1] + 1
    assert failed == {key_of(number) for number in set(range(taken)) - set(found)}


@WAYS
def test_a_queue_that_stays_full_ends_a_table_at_the_rows_taken(
    kafka: KafkaUnderTest, topic_name: str, native: bool
) -> None:
    """BufferError comes when the first row is not taken; after an earlier batch the number of rows comes."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    config = {**kafka.client_config(), "queue.buffering.max.messages": 30, "linger.ms": 15_000}
    patience = {"keyorder.control.timeout.ms": 1_000, "keyorder.arrow.native": native}
    with OrderedProducer({**config, **patience}) as producer:
        assert producer.produce_arrow(topic_name, forty_rows()) == 30
        with pytest.raises(BufferError, match="no row was taken"):
            producer.produce_arrow(topic_name, forty_rows().slice(30))
        producer.purge()
