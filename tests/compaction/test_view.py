"""CompactedView on a real broker: the latest version of each key, through growth, shrink, restarts and late records."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction.migration import set_strategy
from keyorder.compaction.store import VersionStore
from keyorder.compaction.strategy import Strategy, StrategyKind, encode_version
from keyorder.compaction.topic_log import TopicLog
from keyorder.compaction.view import CompactedView
from keyorder.partitioner.errors import BrokerUnreachableError, ConfigError, KeyorderError, TopicNotFoundError
from keyorder.partitioner.layout import Layout
from support.cluster import KafkaUnderTest
from support.holding import until
from support.stock import with_open_transaction

HEADER = {"compaction.strategy": "header", "compaction.strategy.header": "v", "cleanup.policy": "compact"}
QUICK = {**HEADER, "keyorder.view.age.ms": "200"}


def version(number: int) -> list[tuple[str, bytes | None]]:
    """The header of a version."""
    return [("v", encode_version(number))]


def send(kafka: KafkaUnderTest, topic: str, *records: tuple[str, str | None, int]) -> None:
    """(key, value, version) by an ordered producer, all acknowledged."""
    with OrderedProducer(kafka.client_config()) as producer:
        for key, value, number in records:
            producer.produce(topic, value, key, headers=version(number))
        assert producer.flush(120) == 0


@pytest.mark.kip("K280-02", "K280-03", "K280-08", "K280-12", "K280-19")
def test_the_highest_version_of_each_key(kafka: KafkaUnderTest, topic_name: str) -> None:
    """By the topic's own strategy, or by the one of the call; tombstones compete; the table is asked like a dict."""
    TopicAdmin(kafka.client_config()).create(topic_name, 3, config=QUICK)
    send(kafka, topic_name, ("a", "new", 2), ("a", "old", 1), ("b", "x", 1), ("b", None, 3), ("b", "late", 2))
    send(kafka, topic_name, ("c", None, 1), ("c", "back", 2))

    with CompactedView(kafka.client_config(), topic_name) as view:
        view.load()
        assert dict(view.items()) == {b"a": b"new", b"c": b"back"}
        assert (view.get("a"), view[b"c"], view.get("b"), view.get("zzz", b"none")) == (b"new", b"back", None, b"none")
        assert ("a" in view, "b" in view, len(view), view.tombstones()) == (True, False, 2, 1)
        found = view.version("b")
        assert found is not None
        assert (found.version, found.value) == (3, None)
        assert sorted(view) == [b"a", b"c"]
        with pytest.raises(KeyError):
            view["b"]
        assert (view.counts.records, view.counts.tombstones, view.counts.strays) == (7, 2, 0)

        send(kafka, topic_name, ("a", "newest", 9), ("c", "late", 1))
        assert dict(view.load().items()) == {b"a": b"newest", b"c": b"back"}
    with CompactedView({**kafka.client_config(), "compaction.strategy": "offset"}, topic_name) as view:
        assert dict(view.load().items()) == {b"a": b"newest", b"b": b"late", b"c": b"late"}


@pytest.mark.kip("C-19", "T-13", "K280-08")
def test_versions_of_a_key_in_two_partitions(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Across growth and shrink: equal versions go to the later epoch, a higher one wins wherever it lies, and the null
    values that clear old homes delete nothing."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    layout = admin.describe(topic_name).layout
    keys = [f"k{i}" for i in range(400)]
    moved = [k for k in keys if layout.resized(2).home(k) == 1][:4]
    stays = next(k for k in keys if layout.resized(2).home(k) == 0)
    with CompactedView(kafka.client_config(), topic_name) as live:
        live.follow()
        filler = [(stays, f"f{i}", 0) for i in range(20)]
        send(kafka, topic_name, *filler, *((k, f"first {k}", 5) for k in moved), (stays, "s", 1))
        admin.expand(topic_name, 2)
        send(
            kafka,
            topic_name,
            (moved[0], "same", 5),
            (moved[1], "lower", 4),
            (moved[2], "higher", 6),
            (moved[3], None, 7),
        )
        grown = {
            moved[0].encode(): b"same",
            moved[1].encode(): f"first {moved[1]}".encode(),
            moved[2].encode(): b"higher",
            stays.encode(): b"s",
        }
        assert dict(live.load().items()) == grown
        assert live.counts.move_tombstones == 4
        admin.shrink(topic_name, 1)
        send(kafka, topic_name, (moved[0], "home", 5), (moved[3], "late", 6), (moved[2], "low", 1))
        home = {**grown, moved[0].encode(): b"home"}
        assert dict(live.load().items()) == home
    with CompactedView(kafka.client_config(), topic_name) as fresh:
        assert dict(fresh.load().items()) == home
        assert fresh.counts.strays == 0


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("managed", [True, False])
def test_a_load_reads_partitions_that_were_made_since_the_last_one(
    kafka: KafkaUnderTest, topic_name: str, managed: bool, follows: bool
) -> None:
    """Nothing new lies in those it knows; the thread that follows has not looked for others yet."""
    admin, stock = TopicAdmin(kafka.client_config()), kafka.admin()
    stock.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(60)
    if managed:
        admin.adopt(topic_name, config={"keyorder.view.age.ms": "200"})
    key = next(k for k in (f"k{i}" for i in range(99)) if Layout(1, 2).home(k.encode()) == 1)
    with CompactedView({**kafka.client_config(), "compaction.strategy": "offset"}, topic_name) as view:
        if follows:
            view.follow()
        assert not dict(view.load().items())
        if managed:
            admin.expand(topic_name, 2)
        else:
            stock.create_partitions([NewPartitions(topic_name, 2)])[topic_name].result(60)
            until(lambda: len(stock.list_topics(topic_name).topics[topic_name].partitions) == 2)
        producer = Producer(kafka.client_config())
        producer.produce(topic_name, b"new", key, 1)
        assert producer.flush(120) == 0
        assert dict(view.load().items()) == {key.encode(): b"new"}


@pytest.mark.kip("K280-01", "C-19")
def test_the_default_strategy_across_a_move(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The last record of the newest stay wins, though its offset is lower than that of the old home's."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config={"keyorder.view.age.ms": "200"})
    key = next(k for k in (f"k{i}" for i in range(99)) if admin.describe(topic_name).layout.resized(2).home(k) == 1)
    send(kafka, topic_name, *((key, f"old {i}", i) for i in range(10)))
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (key, "new", 0))

    with CompactedView(kafka.client_config(), topic_name) as view:
        assert dict(view.load().items()) == {key.encode(): b"new"}


def test_a_topic_without_a_timeline(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Written by a stock producer, read by an option's strategy; partitions that are added later are found."""
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 2)])[topic_name].result(120)
    producer = Producer(kafka.client_config())
    for i in range(50):
        producer.produce(topic_name, f"v{i}", f"k{i % 10}", headers=version(i))
        producer.produce(topic_name, f"low{i}", f"k{i % 10}", headers=version(-i))
    producer.produce(topic_name, "no key")
    assert producer.flush(120) == 0

    options = {"compaction.strategy": "header", "compaction.strategy.header": "v"}
    with CompactedView({**kafka.client_config(), **options}, topic_name) as view:
        assert dict(view.load().items()) == {b"k%d" % i: b"v%d" % (40 + i) for i in range(10)}
        assert view.counts.unkeyed == 1


@pytest.mark.kip("K280-14", "K280-16", "K280-11")
@pytest.mark.parametrize("level", ["READ_COMMITTED", " read_committed"])
def test_an_open_transaction_is_behind_the_end_of_what_is_committed(
    kafka: KafkaUnderTest, topic_name: str, level: str
) -> None:
    """However the client library lets the isolation level be written; a view would wait for the end that it cannot reach."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    producer = with_open_transaction(kafka, topic_name)
    log = TopicLog({**kafka.client_config(), "isolation.level": level}, topic_name)
    assert log.ends() == {0: 0}
    log.close()
    producer.abort_transaction(120)


def test_headers_that_are_no_versions(kafka: KafkaUnderTest, topic_name: str) -> None:
    """They count as none and are counted; a record with one wins over those without; by timestamp others win."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, "versioned", "a", headers=version(-5), timestamp=1_000)
        producer.produce(topic_name, "short", "a", headers=[("v", b"12")], timestamp=3_000)
        producer.produce(topic_name, "bare", "a", timestamp=2_000)
        assert producer.flush(120) == 0

    with CompactedView(kafka.client_config(), topic_name) as view:
        assert view.load().get("a") == b"versioned"
        assert (view.counts.malformed, view.counts.unversioned) == (1, 2)
    with CompactedView(kafka.client_config(), topic_name, Strategy(StrategyKind.TIMESTAMP)) as view:
        assert view.load().get("a") == b"short"


@pytest.mark.kip("K280-19")
def test_a_file_survives_and_so_do_floors(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """A second run reads only what is new; a file of another topic is refused; of another strategy it is made anew."""
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    other = f"{topic_name}-other"
    TopicAdmin(kafka.client_config()).create(other, 1, config=QUICK)
    path = tmp_path / "table"
    send(kafka, topic_name, ("a", "one", 1), ("b", None, 5))
    with CompactedView(kafka.client_config(), topic_name, path=path) as view:
        view.load()
    send(kafka, topic_name, ("a", "two", 2), ("b", "late", 4))
    with CompactedView(kafka.client_config(), topic_name, path=path) as view:
        assert dict(view.load().items()) == {b"a": b"two"}
        assert view.counts.records == 2
        assert view.tombstones() == 1
    with (
        CompactedView(kafka.client_config(), other, path=path) as view,
        pytest.raises(ConfigError, match="another topic"),
    ):
        view.load()
    by_offset = {**kafka.client_config(), "compaction.strategy": "offset"}
    with CompactedView(by_offset, topic_name, path=path) as view:
        assert dict(view.load().items()) == {b"a": b"two", b"b": b"late"}
        assert view.counts.records == 4


def test_a_small_memory_and_a_snapshot(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """What does not fit into memory spills, to the same table; a snapshot is a Parquet file of it."""
    import pyarrow.parquet as pq

    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=QUICK)
    send(kafka, topic_name, *((f"k{i % 300}", f"v{i}", i) for i in range(900)))
    expected = {b"k%d" % i: b"v%d" % (600 + i) for i in range(300)}

    with CompactedView(kafka.client_config(), topic_name, memory_limit=20_000) as view:
        assert dict(view.load().items()) == expected
        assert len(view) == 300
        assert view.snapshot(tmp_path / "t.parquet") == 300
    table = pq.read_table(tmp_path / "t.parquet")
    rows = table.to_pylist()
    assert {row["key"]: row["value"] for row in rows} == expected
    assert all(row["version"] == int(row["value"][1:]) for row in rows)
    assert rows[0]["headers"] == [{"key": "v", "value": encode_version(rows[0]["version"])}]
    assert topic_name in table.schema.metadata[b"keyorder"].decode()
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.kip("K280-03")
@pytest.mark.parametrize("follows", [False, True])
def test_a_load_takes_the_strategy_of_its_time(kafka: KafkaUnderTest, topic_name: str, follows: bool) -> None:
    """One that was changed before the call is the one that the table is by when it returns."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, ("a", "high", 2), ("a", "last", 1))
    with CompactedView(kafka.client_config(), topic_name) as view:
        if follows:
            view.follow()
        assert view.load().get("a") == b"high"
        for strategy, wanted in ((Strategy(), b"last"), (Strategy(StrategyKind.HEADER, "v"), b"high")):
            set_strategy(kafka.client_config(), topic_name, strategy)
            assert view.load().get("a") == wanted


@pytest.mark.parametrize("fault", [sqlite3.OperationalError("database or disk is full"), OverflowError("too big")])
def test_a_follower_that_fails_is_heard(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """Whatever ends its thread: nothing is answered from then on, and a load does not wait for it."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)

    def fail(*_: object) -> None:
        raise fault

    with CompactedView(kafka.client_config(), topic_name).follow() as view:
        assert view.load().get("a") is None
        monkeypatch.setattr(VersionStore, "put", fail)
        send(kafka, topic_name, ("a", "new", 1))
        with pytest.raises(KeyorderError, match=str(fault)) as raised:
            view.load(timeout=60)
        assert not isinstance(raised.value, BrokerUnreachableError)
        assert raised.value.__cause__ is fault
        with pytest.raises(KeyorderError, match=str(fault)):
            view.get("a")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_load_that_fails_loses_nothing(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, restarts: bool
) -> None:
    """The next one, or the next process with the same file, reads what it had fetched and not taken in."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, ("a", "one", 1), ("b", "two", 1))
    put = VersionStore.put

    def fail(store: VersionStore, key: bytes, *more: Any) -> None:
        if key == b"b":
            raise MemoryError
        put(store, key, *more)

    with CompactedView(kafka.client_config(), topic_name, path=tmp_path / "table") as view:
        monkeypatch.setattr(VersionStore, "put", fail)
        with pytest.raises(MemoryError):
            view.load()
        monkeypatch.setattr(VersionStore, "put", put)
        if not restarts:
            assert dict(view.load().items()) == {b"a": b"one", b"b": b"two"}
    with CompactedView(kafka.client_config(), topic_name, path=tmp_path / "table") as view:
        assert dict(view.load().items()) == {b"a": b"one", b"b": b"two"}


def test_a_missing_topic_and_a_wrong_option_are_named(kafka: KafkaUnderTest, topic_name: str) -> None:
    """One typed error each."""
    with pytest.raises(TopicNotFoundError):
        CompactedView(kafka.client_config(), topic_name)
    with pytest.raises(ConfigError, match=r"keyorder\.nothing"):
        CompactedView({**kafka.client_config(), "keyorder.nothing": "1"}, topic_name)
    with pytest.raises(ConfigError, match=r"compaction\.strategy"):
        CompactedView({**kafka.client_config(), "compaction.strategy": "best"}, topic_name)
