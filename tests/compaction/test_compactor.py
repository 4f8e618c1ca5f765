"""TopicCompactor on a real broker whose log cleaner runs: what it leaves is the highest version of each key."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction import compactor as compactor_module
from keyorder.compaction.cli_output import report_rows
from keyorder.compaction.compactor import TopicCompactor
from keyorder.compaction.errors import CompactionUnsafeError, CompactionWindowError, CompactorFencedError
from keyorder.compaction.migration import set_strategy
from keyorder.compaction.strategy import Strategy, StrategyKind, encode_version
from keyorder.compaction.view import CompactedView
from keyorder.connector.crash import COMPACTOR_STEPS
from keyorder.partitioner.errors import ConfigError, UnmanagedTopicError
from support.cleaning import HELD, ROLLER, clean, configure, dump
from support.cluster import KafkaUnderTest

HEADER = {**HELD, "compaction.strategy": "header", "compaction.strategy.header": "v", "keyorder.view.age.ms": "200"}
Sent = tuple[str, str | None, int | None]


def send(kafka: KafkaUnderTest, topic: str, *records: Sent, timestamps: list[int] | None = None) -> None:
    """(key, value, version) by an ordered producer, all acknowledged."""
    with OrderedProducer(kafka.client_config()) as producer:
        for number, (key, value, version) in enumerate(records):
            headers = None if version is None else [("other", b"x"), ("v", encode_version(version))]
            producer.produce(topic, value, key, headers=headers, timestamp=timestamps[number] if timestamps else 0)
        assert producer.flush(120) == 0


def compactor(kafka: KafkaUnderTest, topic: str, **options: object) -> TopicCompactor:
    """With its usual margin."""
    return TopicCompactor(kafka.client_config(), topic, **options)  # type: ignore[arg-type]


@pytest.mark.kip("K280-02", "K280-12", "K280-19", "K280-20")
def test_the_cleaner_keeps_the_highest_version(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """A plan says what a run does; afterwards the stock cleaner leaves each key's highest version, headers and all."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=HEADER)
    send(kafka, topic_name, ("a", "new", 2), ("a", "old", 1), ("b", None, 3), ("b", "late", 2), ("c", "x", 1))
    send(kafka, topic_name, ("d", "first", 7), ("d", "tie", 7), ("e", "versioned", -4), ("e", "without", None))

    with compactor(kafka, topic_name) as it:
        plan = it.plan()
        assert (plan.keys, plan.tombstones, plan.appends, plan.records, plan.unversioned) == (4, 1, 3, 9, 1)
        assert len(dump(kafka, topic_name)) == 9
        report = it.run()
        assert (report.appends, report.raced, report.transactions) == (3, 0, 1)
        again = it.run()
        assert again.appends == 0
    kept = clean(kafka, topic_name)

    assert {each.key: each.value for each in kept} == {
        b"a": b"new", b"b": None, b"c": b"x", b"d": b"tie", b"e": b"versioned"
    }  # fmt: skip
    headers = next(each.headers for each in kept if each.key == b"a")
    assert headers[:2] == (("other", b"x"), ("v", encode_version(2)))
    assert [name for name, _ in headers[2:]] == ["keyorder-copy"]


@pytest.mark.kip("K280-11")
def test_by_timestamp_the_append_keeps_it(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """Where producers set timestamps the winner keeps its own, or it would win for ever."""
    kafka = cleaning_kafka
    config = {**HELD, "compaction.strategy": "timestamp", "message.timestamp.type": "CreateTime"}
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=config)
    send(kafka, topic_name, ("a", "new", 1), ("a", "old", 2), timestamps=[2_000, 1_000])

    with compactor(kafka, topic_name) as it:
        assert it.run().appends == 1
    assert [(each.value, each.timestamp) for each in dump(kafka, topic_name)][-1] == (b"new", 2_000)


@pytest.mark.kip("K280-01")
def test_the_default_strategy_leaves_every_byte(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """Nothing is written; the log is the same record for record, and the cleaner keeps the last ones."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=HELD)
    send(kafka, topic_name, *((f"k{i % 3}", f"v{i}", 9 - i) for i in range(9)))
    before = dump(kafka, topic_name)

    with compactor(kafka, topic_name) as it:
        assert it.plan().appends == 0
        report = it.run()
    assert (report.appends, report.transactions) == (0, 0)
    assert dump(kafka, topic_name) == before
    assert {each.key: each.value for each in clean(kafka, topic_name)} == {b"k0": b"v6", b"k1": b"v7", b"k2": b"v8"}


@pytest.mark.kip("C-19", "K280-20")
def test_a_keys_versions_in_two_partitions(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """A winner at the old home is written at the new one before its old copy is cleared; a tombstone too."""
    kafka = cleaning_kafka
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=HEADER)
    layout = admin.describe(topic_name).layout.resized(2)
    one, two, three = [k for k in (f"k{i}" for i in range(99)) if layout.home(k) == 1][:3]
    send(kafka, topic_name, (one, "winner", 9), (two, None, 9), (three, "stays", 9), (three, "late", 8))
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (one, "loser", 1), (two, "loser", 2))

    with compactor(kafka, topic_name) as it:
        assert it.run().appends == 3
    kept = {(each.partition, each.key): each.value for each in clean(kafka, topic_name)}

    assert {key: value for (p, key), value in kept.items() if p == 1} == {
        one.encode(): b"winner", two.encode(): None, three.encode(): b"stays"
    }  # fmt: skip
    assert all(value is None for (p, _), value in kept.items() if p == 0)
    with CompactedView(kafka.client_config(), topic_name) as view:
        assert {key: value for key, value in view.load().items() if key != ROLLER} == {
            one.encode(): b"winner",
            three.encode(): b"stays",
        }


@pytest.mark.kip("K280-20")
def test_a_higher_version_between_look_and_append_wins(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """A producer writes after the look: its record would be hidden behind ours, so it is written again."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "high", 5), ("a", "low", 1), ("b", "high", 5), ("b", "low", 1))
    raced = []

    def race(phase: str, done: int, total: int) -> None:
        if phase == "reading" and done == total and not raced:
            raced.append(phase)
            send(kafka, topic_name, ("a", "higher", 6), ("b", "between", 3))

    with compactor(kafka, topic_name, progress=race) as it:
        report = it.run()
    assert (report.appends, report.raced) == (3, 1)
    assert {each.key: each.value for each in clean(kafka, topic_name)} == {b"a": b"higher", b"b": b"high"}


@pytest.mark.kip("K280-20", "C-18")
def test_a_tie_between_look_and_append_goes_to_the_later_record(
    cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """A copy competes as the record it was made of: one of the same version that was written in between still wins.

    Also for a compactor that knows nothing of the copy, and for a copy of a copy.
    """
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "first", 5), ("a", "low", 1))
    raced = []

    def race(phase: str, done: int, total: int) -> None:
        if phase == "reading" and done == total and not raced:
            raced.append(phase)
            send(kafka, topic_name, ("a", "second", 5))

    with compactor(kafka, topic_name, progress=race) as it:
        assert it.run().raced == 1
    assert [each.value for each in dump(kafka, topic_name)] == [b"first", b"low", b"second", b"first", b"second"]
    send(kafka, topic_name, ("a", "low again", 1))
    with compactor(kafka, topic_name) as it:
        assert (it.run().appends, it.run().appends) == (1, 0)
    by_offset = {**kafka.client_config(), "compaction.strategy": "offset"}
    with CompactedView(by_offset, topic_name) as view:
        assert view.load().get("a") == b"second"  # the copy, as for the cleaner, and not what it has displaced
    assert {each.value for each in clean(kafka, topic_name)} == {b"second"}


@pytest.mark.kip("K280-20")
@pytest.mark.parametrize("step", COMPACTOR_STEPS)
def test_killed_at_any_step_nothing_is_lost(cleaning_kafka: KafkaUnderTest, topic_name: str, step: str) -> None:
    """The next run takes over at once and finishes; the log holds each winner last, and each once more at the most."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 2, config=HEADER)
    send(kafka, topic_name, *((f"k{i}", "high", 2) for i in range(20)), *((f"k{i}", "low", 1) for i in range(20)))
    command = [sys.executable, "-m", "keyorder", "compact", "run", "--bootstrap-server", kafka.bootstrap_servers]
    environment = {**os.environ, "KEYORDER_CRASH_AT": step}
    killed = subprocess.run([*command, "--topic", topic_name], env=environment, capture_output=True, timeout=100)
    assert killed.returncode == -signal.SIGKILL, killed

    with compactor(kafka, topic_name) as it:
        report = it.run()
    assert report.appends == (20 if step in ("compactor-read", "compactor-appended") else 0)
    kept = clean(kafka, topic_name)
    assert {each.key: each.value for each in kept} == {b"k%d" % i: b"high" for i in range(20)}


@pytest.mark.kip("K280-19")
def test_a_tombstones_life(cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """It wins, is kept for its retention, is purged; an older value that comes then is deleted again by whoever has
    seen the tombstone, and revives the key for whoever has not."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config={**HEADER, "delete.retention.ms": "1"})
    state, table = tmp_path / "state", tmp_path / "table"
    send(kafka, topic_name, ("a", None, 5), ("a", "low", 1), ("b", "x", 1))
    with compactor(kafka, topic_name, path=state) as it:
        assert it.run().appends == 1
    with CompactedView(kafka.client_config(), topic_name, path=table) as view:
        assert sorted(view.load()) == [b"b"]
    while any(each.key == b"a" for each in clean(kafka, topic_name)):
        pass  # each turn cleans once more; the test's time limit ends a tombstone that stays
    configure(kafka, topic_name, {"delete.retention.ms": "3600000"})
    send(kafka, topic_name, ("a", "late", 4))

    with CompactedView(kafka.client_config(), topic_name) as unaware:
        assert unaware.load().get("a") == b"late"
    with CompactedView(kafka.client_config(), topic_name, path=table) as view:
        assert view.load().get("a") is None
    with compactor(kafka, topic_name, path=state) as it:
        assert it.run().appends == 1
    assert {each.key: each.value for each in clean(kafka, topic_name)} == {b"a": None, b"b": b"x"}


def read_and_die(kafka: KafkaUnderTest, topic: str, state: Path) -> None:
    """The first run with a file, ended after its rows went there and before it saved."""

    def die(phase: str, done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with (
        compactor(kafka, topic, path=state, memory_limit=1, progress=die) as it,
        pytest.raises(KeyboardInterrupt),
    ):
        it.run()
    with sqlite3.connect(state) as database:
        (rows,) = database.execute("SELECT count(*) FROM versions").fetchone()
    database.close()
    assert rows > 0


def test_a_file_of_a_run_that_died_is_not_taken_for_another_strategy(
    cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """What won by the strategy of the first run is no winner by the one that the topic has now."""
    kafka, state = cleaning_kafka, tmp_path / "state"
    config = {**HEADER, "compaction.strategy": "timestamp", "message.timestamp.type": "CreateTime"}
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=config)
    send(kafka, topic_name, ("a", "loser", 1), ("a", "winner", 5), timestamps=[2_000, 1_000])
    read_and_die(kafka, topic_name, state)
    set_strategy(kafka.client_config(), topic_name, Strategy(StrategyKind.HEADER, "v"))

    with compactor(kafka, topic_name, path=state) as it:
        assert it.run().appends == 0
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert dict(view.load().items()) == {b"a": b"winner"}
    assert [each.value for each in dump(kafka, topic_name)] == [b"loser", b"winner"]


def test_a_file_tells_of_a_strategy_that_was_changed_while_it_was_open(
    cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """A run that dies after it took the new strategy leaves nothing that counts when the topic has the old one again."""
    kafka, state, died = cleaning_kafka, tmp_path / "state", []
    by_time = {**kafka.client_config(), "compaction.strategy": "timestamp"}
    config = {**HEADER, "message.timestamp.type": "CreateTime"}
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config={**config, "compaction.strategy": "timestamp"})
    send(kafka, topic_name, ("a", None, 50_000), ("a", "late", 10_000), timestamps=[1_000, 2_000])

    def die(phase: str, done: int, total: int) -> None:
        if died and done == total:
            raise KeyboardInterrupt

    with compactor(kafka, topic_name, path=state, memory_limit=1, progress=die) as it:
        assert it.plan().appends == 0
        set_strategy(kafka.client_config(), topic_name, Strategy(StrategyKind.HEADER, "v"))
        died.append(True)
        with pytest.raises(KeyboardInterrupt):
            it.run()
    with CompactedView(by_time, topic_name, path=state) as view:
        assert dict(view.load().items()) == {b"a": b"late"}
        assert view.counts.records == 2


def test_a_file_of_a_run_that_died_is_not_taken_for_another_topic(
    cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """It is refused. One whose rows say of no topic, as earlier releases left them, is made anew from the topic."""
    kafka, state, other = cleaning_kafka, tmp_path / "state", f"{topic_name}-other"
    for topic in (topic_name, other):
        TopicAdmin(kafka.client_config()).create(topic, 1, config=HEADER)
    send(kafka, topic_name, ("a", "high", 9), ("a", "low", 8), ("b", None, 9))
    send(kafka, other, ("a", "other", 1), ("b", "other", 1))
    read_and_die(kafka, topic_name, state)

    with compactor(kafka, other, path=state) as it, pytest.raises(ConfigError, match="another topic"):
        it.run()
    with sqlite3.connect(state) as database:
        database.execute("DELETE FROM facts")
    database.close()
    with compactor(kafka, other, path=state) as it:
        assert it.run().appends == 0
    with CompactedView(kafka.client_config(), other, path=state) as view:
        assert dict(view.load().items()) == {b"a": b"other", b"b": b"other"}
    assert [(each.key, each.value) for each in dump(kafka, other)] == [(b"a", b"other"), (b"b", b"other")]


def test_floors_outlive_a_run_that_died(cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """A file that was left for longer than tombstones last is read anew; that the run dies then loses no deleted key."""
    kafka, state = cleaning_kafka, tmp_path / "state"
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", None, 9), ("b", "x", 1))
    with compactor(kafka, topic_name, path=state) as it:
        assert it.run().appends == 0
    with sqlite3.connect(state) as database:
        # As if they had been purged meanwhile: nothing but the file tells of the deletion.
        database.execute("UPDATE versions SET version = 99 WHERE key = ?", (b"a",))
        database.execute("UPDATE facts SET text = '0' WHERE name = 'saved_at_ms'")
    database.close()
    send(kafka, topic_name, ("a", "late", 98))

    for _ in range(2):
        read_and_die(kafka, topic_name, state)
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert dict(view.load().items()) == {b"b": b"x"}
        assert view.counts.records == 3


@pytest.mark.kip("K280-20")
def test_unsafe_settings_are_refused_before_anything_is_written(
    cleaning_kafka: KafkaUnderTest, topic_name: str
) -> None:
    """No lag, or one that the margin eats up, or no compaction; a plan says so without an error; force goes on."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "high", 2), ("a", "low", 1))
    for setting, value in (
        ("min.compaction.lag.ms", "0"),
        ("min.compaction.lag.ms", "60000"),
        ("cleanup.policy", "delete"),
    ):
        configure(kafka, topic_name, {setting: value})
        with compactor(kafka, topic_name) as it:
            with pytest.raises(CompactionUnsafeError, match=setting):
                it.run()
            plan = it.plan()
            assert (plan.appends, plan.findings[0].setting, plan.findings[0].fatal) == (1, setting, True)
        configure(kafka, topic_name, {setting: HEADER[setting]})
    assert len(dump(kafka, topic_name)) == 2
    with compactor(kafka, topic_name, margin=4000, force=True) as it:
        assert it.run().appends == 1


@pytest.mark.kip("K280-20")
def test_a_pass_that_takes_too_long_is_reported(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """All is written, and the error names the setting with a value that would do."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "high", 2), ("a", "low", 1))

    with (
        compactor(kafka, topic_name, margin=3599.999) as it,
        pytest.raises(CompactionWindowError, match=r"min\.compaction\.lag\.ms"),
    ):
        it.run()
    assert [each.value for each in dump(kafka, topic_name)] == [b"high", b"low", b"high"]


@pytest.mark.kip("K280-20")
def test_one_compactor_is_in_charge(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """A second one takes over, the first stops with a typed error; neither harms the log."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "high", 2), ("a", "low", 1))
    with compactor(kafka, topic_name) as first, compactor(kafka, topic_name) as second:
        assert first.run().appends == 1
        assert second.run().appends == 0
        send(kafka, topic_name, ("a", "low again", 1))
        with pytest.raises(CompactorFencedError):
            first.run()
        assert second.run().appends == 1
    assert dump(kafka, topic_name)[-1].value == b"high"


def test_follow_goes_on_until_it_is_stopped(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """A key that is displaced later is written again without another run, at a given rate; the count grows under it."""
    kafka = cleaning_kafka
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=HEADER)
    stop = threading.Event()
    reports = []
    with compactor(kafka, topic_name, throttle=100_000) as it:
        thread = threading.Thread(target=lambda: reports.append(it.follow(stop.is_set, every=0.2)))
        thread.start()
        send(kafka, topic_name, *((f"k{i}", "high", 2) for i in range(30)))
        admin.expand(topic_name, 3)
        send(kafka, topic_name, *((f"k{i}", "low", 1) for i in range(30)))
        while [each.value for each in dump(kafka, topic_name)].count(b"high") < 60:
            assert (
                thread.is_alive()
            )  # until each has been written once more; the test's time limit ends a compactor that hangs
        with CompactedView(kafka.client_config(), topic_name) as view:
            assert {value for _, value in view.load().items()} == {b"high"}
            assert view.counts.copies == 30
        stop.set()
        thread.join(120)
    assert reports[0].appends == 30


@pytest.mark.kip("K280-03", "K280-20")
def test_after_a_change_of_the_strategy_the_whole_topic_is_judged(
    cleaning_kafka: KafkaUnderTest, topic_name: str
) -> None:
    """A follower that takes a new strategy writes nothing before it has read all again: half a topic has other winners."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    numbers = [("a", 1, 2), ("a", 2, 1), *((f"k{i}", 1, 1) for i in range(20)), ("b", 1, 5), ("b", 2, 4), ("a", 3, 9)]
    with OrderedProducer(kafka.client_config()) as producer:
        for number, (key, v, w) in enumerate(numbers):
            headers = [("v", encode_version(v)), ("w", encode_version(w))]
            producer.produce(topic_name, f"{number}", key, headers=headers)
            assert producer.flush(120) == 0
    stop, read = threading.Event(), threading.Event()
    reports = []
    one_by_one = {**kafka.client_config(), "fetch.message.max.bytes": 1}  # a batch of one record each time

    def shown(phase: str, done: int, total: int) -> None:
        if done == total:
            read.set()

    with TopicCompactor(one_by_one, topic_name, progress=shown) as it:
        thread = threading.Thread(target=lambda: reports.append(it.follow(stop.is_set, every=0.001)))
        thread.start()
        assert read.wait(120)
        set_strategy(kafka.client_config(), topic_name, Strategy(StrategyKind.HEADER, "w"))
        while (b"b", b"22") not in [(each.key, each.value) for each in dump(kafka, topic_name)][25:]:
            assert thread.is_alive()  # the test's time limit ends a compactor that hangs
        stop.set()
        thread.join(120)
    assert (reports[0].appends, reports[0].raced) == (1, 0)


@pytest.mark.kip("K280-03", "K280-20")
def test_a_batch_that_waits_for_the_rate_is_dropped_with_its_strategy(
    cleaning_kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records were judged by the strategy that was changed while it waited."""
    kafka = cleaning_kafka
    monkeypatch.setattr(compactor_module, "_BATCH_RECORDS", 1)
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "high", 2), ("a", "low", 1), ("b", "high", 2), ("b", "low", 1))

    def change(phase: str, done: int, total: int) -> None:
        if phase == "appending" and done == 1:
            set_strategy(kafka.client_config(), topic_name, Strategy())

    with compactor(kafka, topic_name, throttle=0.5, progress=change) as it:
        assert it.run().appends == 1
    assert [each.value for each in dump(kafka, topic_name)] == [b"high", b"low", b"high", b"low", b"high"]


@pytest.mark.kip("K280-03")
def test_each_run_sees_the_strategy_of_its_time(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """One that found the default strategy, and did nothing, does not keep the next one from its work."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HELD)
    send(kafka, topic_name, ("a", "high", 2), ("a", "low", 1))

    with compactor(kafka, topic_name) as it:
        assert it.run().appends == 0
        set_strategy(kafka.client_config(), topic_name, Strategy(StrategyKind.HEADER, "v"))
        report = it.run()
    assert (report.appends, report.strategy.header) == (1, "v")


@pytest.mark.kip("K280-20")
def test_winners_near_the_topics_largest_size(cleaning_kafka: KafkaUnderTest, topic_name: str) -> None:
    """A batch is no larger than the topic takes, and a record that fitted compressed is written compressed. One that does
    not fit any more is counted, and keeps no other from being written; it is when the topic takes it."""
    kafka = cleaning_kafka
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    large = os.urandom(30_000)
    with OrderedProducer({**kafka.client_config(), "compression.type": "gzip"}) as producer:
        for version in (2, 1):
            for i in range(60):
                value = (
                    b"low" if version == 1 else large if i in (10, 50) else b"z" * 40_000 if i == 30 else b"x" * 1_000
                )
                producer.produce(topic_name, value, f"k{i:02}", headers=[("v", encode_version(version))])
        assert producer.flush(120) == 0
    configure(kafka, topic_name, {"max.message.bytes": "10000"})

    with compactor(kafka, topic_name) as it:
        report = it.run()
        assert (report.appends, report.raced, report.unappendable) == (58, 0, 2)
        again = it.run()
        assert (again.appends, again.unappendable) == (0, 2)
        assert ("keys that could not be written again", 2) in list(report_rows(again))
        configure(kafka, topic_name, {"max.message.bytes": "1048588"})
        last = it.run()
        assert (last.appends, last.unappendable) == (2, 0)
    assert {len(each.value or b"") for each in clean(kafka, topic_name)} == {1_000, 30_000, 40_000}


def test_an_unmanaged_topic_is_refused(cleaning_kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """A compactor does not adopt what it was only asked to compact; a plan works all the same."""
    kafka = cleaning_kafka
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    producer = Producer(kafka.client_config())
    producer.produce(topic_name, "v", "k")
    assert producer.flush(120) == 0
    options = {"compaction.strategy": "timestamp"}

    with TopicCompactor({**kafka.client_config(), **options}, topic_name) as it:
        assert it.plan().keys == 1
        with pytest.raises(UnmanagedTopicError):
            it.run()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="folder"):
        TopicCompactor(kafka.client_config(), topic_name, path=tmp_path / "folder")
