"""What one run leaves to the next, in a file or in memory, holds for its topic, its rules and its time alone."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction import table, topic_log
from keyorder.compaction.compactor import TopicCompactor
from keyorder.compaction.errors import TopicReplacedError
from keyorder.compaction.snapshot import write_snapshot
from keyorder.compaction.store import VersionStore
from keyorder.compaction.strategy import encode_version
from keyorder.compaction.table import VersionTable
from keyorder.compaction.versions import Version
from keyorder.compaction.view import CompactedView
from keyorder.connector import clock
from keyorder.partitioner.errors import ConfigError, IdentityMismatchError, KeyorderError
from support.cleaning import HEADER, HELD, ROLLER, clean, dump, facts_of
from support.cleaning import send_versions as send
from support.cluster import KafkaUnderTest


def abort(kafka: KafkaUnderTest, topic: str, key: str, value: str, version: int) -> None:
    """A record of a transaction that is given up."""
    producer = Producer({**kafka.client_config(), "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value, key, headers=[("v", encode_version(version))])
    assert producer.flush(60) == 0
    producer.abort_transaction(60)


def test_aborted_values_of_a_views_file_are_not_a_compactors(
    cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """A view may read what is not committed. Its file is read anew by who does not, or an aborted value would be written."""
    kafka, state = cleaning_kafka, tmp_path / "state"
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "committed", 1), ("a", "late", 0))
    abort(kafka, topic_name, "a", "aborted", 9)
    uncommitted = {**kafka.client_config(), "isolation.level": "read_uncommitted"}
    with CompactedView(uncommitted, topic_name, path=state) as view:
        assert view.load().get("a") == b"aborted"

    with TopicCompactor(kafka.client_config(), topic_name, path=state) as it:
        assert it.run().appends == 1
    assert [each.value for each in dump(kafka, topic_name)] == [b"committed", b"late", b"committed"]
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert view.load().get("a") == b"committed"
        assert view.counts.records == 0  # what has read the same is gone on from
    with CompactedView(uncommitted, topic_name, path=state) as view:
        assert view.load().get("a") == b"aborted"


def test_a_deletion_that_was_purged_between_two_runs(
    cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """What counts is when the topic was read last, not when the file was closed."""
    kafka, state = cleaning_kafka, tmp_path / "state"
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config={**HEADER, "delete.retention.ms": "4000"})
    send(kafka, topic_name, ("a", "x", 1), ("b", "x", 1))
    view = CompactedView(kafka.client_config(), topic_name, path=state).load()
    assert sorted(view.keys()) == [b"a", b"b"]
    send(kafka, topic_name, ("a", None, 5))
    while any(each.key == b"a" for each in clean(kafka, topic_name)):
        time.sleep(0.5)  # the test's time limit ends a tombstone that stays
    view.close()

    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        found = {key: value for key, value in view.load().items() if key != ROLLER}
        assert found == {b"b": b"x"}


@pytest.mark.parametrize("midway", [True, False])
def test_a_run_that_fails_leaves_the_time_of_the_one_before(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, midway: bool
) -> None:
    """Or a file that nobody has brought up to date for days would pass for a new one: of runs that fail each day."""
    state = tmp_path / "state"
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "x", 1))

    def saved() -> str:
        return facts_of(state)["saved_at_ms"]

    def fail(*_: object) -> None:
        raise MemoryError

    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        view.load()
    before = saved()
    send(kafka, topic_name, ("b", "y", 1))
    with CompactedView(kafka.client_config(), topic_name, path=state) as view, monkeypatch.context() as patch:
        patch.setattr(*((VersionStore, "put") if midway else (VersionTable, "ends")), fail)
        with pytest.raises(MemoryError):
            view.load()
    assert saved() == before
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert dict(view.load().items()) == {b"a": b"x", b"b": b"y"}
        assert view.counts.records == 1
    assert saved() > before


def test_a_follower_that_ends_before_the_end_does_not_pass_for_up_to_date(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion may lie ahead of where it is, and be purged before the next run gets there."""
    state, taken = tmp_path / "state", threading.Event()
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=HEADER)
    send(kafka, topic_name, ("a", "x", 1))
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        view.load()
    before = facts_of(state)["saved_at_ms"]
    send(kafka, topic_name, *((f"k{n}", "x", 1) for n in range(200)))
    turn, ahead = VersionTable.turn, threading.Semaphore(3)

    def slow(table: VersionTable, timeout: float) -> int:
        if not ahead.acquire(blocking=False):
            taken.set()
            time.sleep(0.01)
            return 0
        return turn(table, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(topic_log, "_BATCH", 10)
        patch.setattr(VersionTable, "turn", slow)
        with CompactedView(kafka.client_config(), topic_name, path=state) as view:
            view.follow()
            assert taken.wait(60)
    assert 1 < sum(json.loads(facts_of(state)["positions"]).values()) < 201
    assert facts_of(state)["saved_at_ms"] == before
    now = clock.wall_ms()
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert len(view.follow().load()) == 201
    assert int(facts_of(state)["saved_at_ms"]) >= now


def test_a_first_run_that_ends_before_the_end_is_gone_on_from(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has read was there when it began: a tombstone that came later is there for `delete.retention.ms` from then."""
    state = tmp_path / "state"
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, *((f"k{n}", "x", 1) for n in range(200)))
    began = clock.wall_ms()
    with monkeypatch.context() as patch, CompactedView(kafka.client_config(), topic_name, path=state) as view:
        patch.setattr(topic_log, "_BATCH", 10)
        patch.setattr(VersionTable, "reached", lambda *_: view.counts.records > 20)
        view.load()
    assert began <= int(facts_of(state)["saved_at_ms"]) <= clock.wall_ms()
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert len(view.load()) == 200
        assert 0 < view.counts.records < 200


@pytest.mark.long
@pytest.mark.parametrize("kind", ["view", "compactor"])
def test_a_follower_of_a_topic_that_never_rests_is_up_to_date(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """There is always another record: what counts is where the topic ended when it was asked."""
    state, stopped = tmp_path / "state", threading.Event()
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "x", 1))
    monkeypatch.setattr(table, "_ASK_S", 0.1)

    def keep_on() -> None:
        with OrderedProducer({**kafka.client_config(), "linger.ms": 0}) as producer:
            version = 1
            while not stopped.wait(0.005):
                version += 1
                producer.produce(topic_name, "x", "a", headers=[("v", encode_version(version))])

    busy = threading.Thread(target=keep_on)
    busy.start()
    try:
        made = CompactedView if kind == "view" else TopicCompactor
        with made(kafka.client_config(), topic_name, path=state) as it:
            if isinstance(it, CompactedView):
                it.follow()
                later = it._table._read_ms + 1000
                while it._table._read_ms < later:  # the test's time limit ends one that is never up to date
                    time.sleep(0.05)
            else:
                begun: list[int] = []
                found = it._table

                def up_to_date() -> bool:
                    begun.append(found._read_ms)
                    return found._read_ms > begun[0] + 1000

                it.follow(up_to_date, every=0.2)
                later = begun[0] + 1000
    finally:
        stopped.set()
        busy.join()
    assert int(facts_of(state)["saved_at_ms"]) > later


def test_a_run_that_dies_before_its_first_save_where_tombstones_stay_for_ever(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file says whose it is, and not when it was read."""
    state = tmp_path / "state"
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config={**HEADER, "delete.retention.ms": str(2**63 - 1)})
    send(kafka, topic_name, ("a", "x", 1))
    with monkeypatch.context() as patch, CompactedView(kafka.client_config(), topic_name, path=state) as view:
        patch.setattr(VersionTable, "save", lambda _: None)
        view.load()
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert dict(view.load().items()) == {b"a": b"x"}


def test_a_file_that_does_not_say_what_was_committed_is_read_anew(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Of an earlier release, whose views put aborted values into it, too. What was deleted stays known."""
    state = tmp_path / "state"
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "committed", 1), ("gone", None, 5))
    abort(kafka, topic_name, "a", "aborted", 9)
    uncommitted = {**kafka.client_config(), "isolation.level": "read_uncommitted"}
    with CompactedView(uncommitted, topic_name, path=state) as view:
        assert view.load().get("a") == b"aborted"
    with closing(sqlite3.connect(state)) as database, database:
        database.execute("DELETE FROM facts WHERE name = 'isolation'")
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert dict(view.load().items()) == {b"a": b"committed"}


def replace(kafka: KafkaUnderTest, topic: str) -> None:
    """Delete the topic and make one of its name with other tools, and without what it held."""
    stock = kafka.admin()
    stock.delete_topics([topic])[topic].result(60)
    while True:
        with suppress(KafkaException):  # as long as the old one is there
            stock.create_topics([NewTopic(topic, 1, config=HELD)])[topic].result(60)
            return
        time.sleep(0.1)


def stock_records(kafka: KafkaUnderTest, topic: str, count: int, value: str, version: int) -> None:
    """By a plain producer, which asks no timeline: one of each key, and each once more."""
    producer = Producer(kafka.client_config())
    for number in range(2 * count):
        headers = [("v", encode_version(version))]
        producer.produce(topic, value, f"k{number % count}", headers=headers)  # type: ignore[arg-type]
    assert producer.flush(120) == 0


@pytest.mark.long
@pytest.mark.parametrize("follows", [True, False])
def test_a_view_does_not_answer_for_another_topic(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, follows: bool
) -> None:
    """One that was deleted and made again while it was read has none of the old records, though all have higher offsets."""
    stock, config = kafka.admin(), {**kafka.client_config(), "compaction.strategy": "offset"}
    stock.create_topics([NewTopic(topic_name, 1)])[topic_name].result(60)
    stock_records(kafka, topic_name, 10, "old", 1)
    with CompactedView(config, topic_name, path=tmp_path / "state") as view:
        if follows:
            view.follow()
        assert len(view.load()) == 10
        replace(kafka, topic_name)
        stock_records(kafka, topic_name, 2, "new", 1)

        def use() -> None:
            while True:  # the test's time limit ends a view that does not notice
                if follows:
                    view.get("k0")
                    time.sleep(0.1)
                else:
                    view.load()

        with pytest.raises(TopicReplacedError, match=topic_name):
            use()
    with (
        CompactedView(config, topic_name, path=tmp_path / "state") as view,
        pytest.raises(ConfigError, match="another"),
    ):
        view.load()
    with CompactedView(config, topic_name) as view:
        assert dict(view.load().items()) == {b"k0": b"new", b"k1": b"new"}


def test_a_compactor_writes_nothing_to_another_topic(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its winners are of the one that was deleted."""
    kafka = cleaning_kafka  # others' commands look at all topics of `kafka`, and this one cannot be read
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, *((f"k{i}", "old", 9) for i in range(5)), *((f"k{i}", "low", 8) for i in range(5)))
    with TopicCompactor(kafka.client_config(), topic_name) as it:
        assert it.run().appends == 5
        replace(kafka, topic_name)
        stock_records(kafka, topic_name, 5, "new", 1)
        stock_records(kafka, topic_name, 5, "new", 1)
        with pytest.raises((TopicReplacedError, IdentityMismatchError)):
            it.run()
        # Now with what it has taken in of the new one, whose records are later and of lower versions.
        with pytest.raises((TopicReplacedError, IdentityMismatchError)):
            it.follow(lambda: False, every=0.2)
    assert {each.value for each in dump(kafka, topic_name)} == {b"new"}


def test_a_follower_writes_nothing_to_another_topic(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """Also one that is in the middle of it, and has not looked at the cluster since."""
    kafka = cleaning_kafka  # others' commands look at all topics of `kafka`, and this one cannot be read
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, *((f"k{i}", "old", 9) for i in range(5)), *((f"k{i}", "low", 8) for i in range(5)))
    ended: list[BaseException] = []

    def follow() -> None:
        try:
            it.follow(lambda: False, every=0.2)
        except KeyorderError as error:
            ended.append(error)

    with TopicCompactor(kafka.client_config(), topic_name) as it:
        thread = threading.Thread(target=follow)
        thread.start()
        while len(dump(kafka, topic_name)) < 15:
            assert thread.is_alive()  # the test's time limit ends one that hangs
        replace(kafka, topic_name)
        stock_records(kafka, topic_name, 20, "new", 1)
        thread.join(120)
    assert [type(error) for error in ended] == [TopicReplacedError]
    assert {each.value for each in dump(kafka, topic_name)} == {b"new"}


def test_two_snapshots_to_one_path(tmp_path: Path) -> None:
    """One that is made while another one is: each is whole, the last one stays, and nothing else is left."""
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"

    def versions(value: bytes, inside: bool) -> list[tuple[bytes, Version]]:
        return [(b"%05d" % n, Version(n, 0, n, 0, 0, None, value)) for n in range(30_000)]

    def slow() -> object:
        for number, each in enumerate(versions(b"outer", True)):
            if number == 25_000:
                assert write_snapshot(path, versions(b"inner", False), {}) == 30_000
                inner.append(path.read_bytes())
            yield each
        assert path.read_bytes() == inner[0]

    inner: list[bytes] = []
    assert write_snapshot(path, slow(), {}) == 30_000  # type: ignore[arg-type]
    assert pq.read_table(path).column("value").to_pylist() == [b"outer"] * 30_000
    assert [each.name for each in tmp_path.iterdir()] == ["t.parquet"]
