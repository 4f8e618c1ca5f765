"""Topics that stock producers wrote, whichever hash they place keys by: adopted, grown and read in order, or refused."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message, Producer
from keyorder import Layout, OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.compaction.view import CompactedView
from keyorder.connector.arrow.hashing import home_column
from keyorder.connector.control.control_reader import readable
from keyorder.connector.control.control_topics import timeline_slot
from keyorder.connector.operations.key_sample import sample_keys
from keyorder.connector.topology.rehoming import RehomingTerms
from keyorder.partitioner.errors import LayoutError, MisplacedKeysError, OrphanedTopicError
from keyorder.partitioner.hashing import HASHES
from keyorder.partitioner.records.control_records import timeline_key
from support.cluster import KafkaUnderTest
from support.commands import Command
from support.groups import QUICK, group_config, read
from support.older_client import Refused, older_client_reads
from support.spark_source import create
from support.workload import Workload, assert_in_order

HASH_OF = {
    "consistent": "crc32",
    "consistent_random": "crc32",
    "murmur2": "murmur2",
    "murmur2_random": "murmur2",
    "fnv1a": "fnv1a",
    "fnv1a_random": "fnv1a",
}
STOCK = {"crc32": "consistent_random", "murmur2": "murmur2_random", "fnv1a": "fnv1a_random"}


@pytest.fixture
def keyorder(kafka: KafkaUnderTest, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, against the test's broker."""
    return Command(kafka, capsys)


def fill(
    kafka: KafkaUnderTest, topic: str, keys: Iterable[bytes | str], partitioner: str | None = None, value: str = "stock"
) -> dict[bytes, int]:
    """One record of each key by a stock producer, its default partitioner without one. Returns where each key lies."""
    config = {**kafka.client_config(), "linger.ms": 5, "log_level": 0}
    producer = Producer(config if partitioner is None else {**config, "partitioner": partitioner})
    places: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        key, partition = message.key() or b"", message.partition()
        assert partition is not None
        places[key.encode() if isinstance(key, str) else key] = partition

    for key in keys:
        producer.produce(topic, value, key, on_delivery=delivered)
    assert producer.flush(120) == 0
    return places


def some_keys(count: int, seed: int = 1) -> list[bytes]:
    """Random keys: ASCII, other scripts, arbitrary bytes with zeros in them, and long ones."""
    rng = random.Random(seed)
    keys = [b"\0", b"\0\0\0", "schlüssel".encode(), "клавиша".encode(), "鍵".encode(), b"x" * 10_000, b"5d3f19010"]
    keys += [rng.randbytes(rng.randrange(1, 40)) for _ in range(count)]
    return keys + [b"customer-%d" % i for i in range(count)]


@pytest.mark.kip("K253-66")
@pytest.mark.parametrize("partitioner", HASH_OF)
def test_a_layout_places_keys_where_a_stock_producer_does(
    kafka: KafkaUnderTest, topic_name: str, partitioner: str
) -> None:
    """Each of librdkafka's partitioners that hashes keys, key by key and as a column; an empty key where it hashes that."""
    create(kafka, topic_name, 7)
    scatters_empty_keys = partitioner == "consistent_random"
    keys = some_keys(300) + ([] if scatters_empty_keys else [b""])
    places = fill(kafka, topic_name, keys, partitioner)
    layout = Layout(7, 7, HASH_OF[partitioner])
    assert {key: layout.home(key) for key in keys} == places
    assert home_column(layout, pa.array(keys, pa.binary())).tolist() == [places[key] for key in keys]


@pytest.mark.parametrize("hash_name", STOCK)
def test_a_topic_is_adopted_under_the_hash_that_its_records_show(
    kafka: KafkaUnderTest, keyorder: Command, topic_name: str, hash_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The dry run shows the shares and changes nothing; unkeyed records and empty keys count for nothing."""
    create(kafka, topic_name, 5)
    fill(kafka, topic_name, some_keys(200), STOCK[hash_name])
    fill(kafka, topic_name, [""] * 40, "consistent_random")
    dry = keyorder("topics", "adopt", "--topic", topic_name, "--dry-run")
    assert dry.code == 0, dry
    assert dry.document["layout"] == {"initial": 5, "count": 5, "hash": hash_name}
    sample = dry.document["sample"]
    assert sample["records"] == sample["keys"] == sample["explained"][hash_name] == 407
    assert all(share < 200 for name, share in sample["explained"].items() if name != hash_name)
    admin = TopicAdmin(kafka.client_config())
    assert admin.managed(topic_name) is None

    with caplog.at_level(logging.INFO, "keyorder.admin"):
        adopted = admin.adopt(topic_name)
    assert adopted.layout == Layout(5, 5, hash_name)
    assert f"{topic_name}: adopted with hash {hash_name} (407 keyed records" in caplog.text
    assert adopted.settings == {}
    judged = keyorder("verify", "--topic", topic_name, output="table").out
    assert {
        line.split("key ")[1].split(" ")[0] for line in judged.splitlines() if line.startswith("misplaced record at")
    } == {"b''"}
    other = "fnv1a" if hash_name != "fnv1a" else "crc32"
    with pytest.raises(LayoutError, match=f"with hash {hash_name}, {other} was asked for"):
        admin.adopt(topic_name, hash=other)


def test_a_topic_of_two_hashes_is_refused_until_an_operator_accepts_it(
    kafka: KafkaUnderTest, keyorder: Command, topic_name: str, tmp_path: Path
) -> None:
    """Also when only its oldest records are of another one; what was accepted stands in its settings."""
    create(kafka, topic_name, 4)
    fill(kafka, topic_name, some_keys(100, 1), "murmur2")
    fill(kafka, topic_name, [b"n%d" % i for i in range(5_000)], "consistent")
    admin = TopicAdmin(kafka.client_config())
    with pytest.raises(MisplacedKeysError, match=r"crc32 \d\d\.\d %") as raised:
        admin.adopt(topic_name)
    assert "--accept-misplaced" in str(raised.value)
    assert "MirrorConnector" in str(raised.value)
    with pytest.raises(MisplacedKeysError, match="the hash crc32 does not explain"):
        admin.adopt(topic_name, hash="crc32")
    with OrderedProducer(kafka.client_config()) as producer, pytest.raises(MisplacedKeysError):
        producer.produce(topic_name, b"v", b"k")
    for more in (["--dry-run"], []):
        refused = keyorder("topics", "adopt", "--topic", topic_name, *more)
        assert (refused.code, refused.error["type"]) == (3, "MisplacedKeysError")
        assert "murmur2" in refused.error["message"]
    assert admin.managed(topic_name) is None

    accepted = keyorder("topics", "adopt", "--topic", topic_name, "--accept-misplaced")
    assert accepted.code == 0, accepted
    assert accepted.document["layout"]["hash"] == "crc32"
    note = accepted.document["settings"]["keyorder.accepted.misplaced"]
    assert "@" in note
    assert "murmur2" in note


def test_the_operator_chooses_the_hash_where_records_do_not(kafka: KafkaUnderTest, topic_name: str) -> None:
    """With one partition every hash explains all, and without records too: then the default, or the one that is asked for."""
    admin = TopicAdmin(kafka.client_config())
    create(kafka, topic_name, 1)
    fill(kafka, topic_name, some_keys(20), "consistent")
    assert admin.sample(topic_name).explaining == ("murmur2", "crc32", "fnv1a")
    assert admin.adopt(topic_name, hash="crc32").layout == Layout(1, 1, "crc32")
    for number, (asked, expected) in enumerate([(None, "murmur2"), ("fnv1a", "fnv1a")]):
        create(kafka, f"{topic_name}-{number}", 3)
        assert admin.adopt(f"{topic_name}-{number}", hash=asked).layout.hash == expected
    assert admin.create(f"{topic_name}-made", 3, hash="crc32").layout == Layout(3, 3, "crc32")
    create(kafka, f"{topic_name}-last", 3)
    with pytest.raises(LayoutError, match="murmur2, crc32, fnv1a"):
        admin.adopt(f"{topic_name}-last", hash="md5")


def test_a_topic_without_a_timeline_that_orderedproducers_wrote_is_refused(
    kafka: KafkaUnderTest, keyorder: Command, topic_name: str
) -> None:
    """Its timeline was lost, or it is a copy: where its keys lived nobody knows, and no operator can accept that."""
    create(kafka, topic_name, 3)
    producer = Producer({**kafka.client_config(), "partitioner": "murmur2"})
    producer.produce(topic_name, b"v", b"k", headers=[("keyorder-epoch", b"4")])
    assert producer.flush(120) == 0
    admin = TopicAdmin(kafka.client_config())
    for accept in (False, True):
        with pytest.raises(OrphanedTopicError, match="keyorder-epoch"):
            admin.adopt(topic_name, accept_misplaced=accept)
    with (
        OrderedProducer(kafka.client_config()) as ordered,
        pytest.raises(OrphanedTopicError, match="Restore _keyorder"),
    ):
        ordered.produce(topic_name, b"v", b"k")
    assert keyorder("topics", "adopt", "--topic", topic_name).code == 3


def test_the_look_goes_back_behind_records_without_a_key(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The newest and the oldest of a log say nothing of its keys: what lies between is looked at."""
    create(kafka, topic_name, 1)
    producer = Producer({**kafka.client_config(), "linger.ms": 5})
    for keyed in (False, True, False):
        for i in range(10 if keyed else 700):
            producer.produce(topic_name, b"v", b"k%d" % i if keyed else None)
    assert producer.flush(120) == 0
    assert sample_keys(kafka.client_config(), topic_name, 1).records == 10


@pytest.mark.kip("K253-66")
def test_only_the_import_changes(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A backlog by confluent_kafka's default Producer, then both imports swapped: each key is read in order."""
    create(kafka, topic_name, 6)
    keys = [f"key-{i}" for i in range(40)]
    for round_ in range(10):
        fill(kafka, topic_name, keys, value=str(round_))
    with OrderedProducer(kafka.client_config()) as producer:
        for round_ in range(10, 20):
            for key in keys:
                producer.produce(topic_name, str(round_), key)
        assert producer.flush(120) == 0
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    seen: dict[bytes, list[int]] = {}
    for message in read(consumer, 20 * len(keys)):
        key = message.key()
        assert isinstance(key, bytes)
        seen.setdefault(key, []).append(int(message.value() or b""))
    assert consumer.strays == 0
    consumer.close()
    assert seen == {key.encode(): list(range(20)) for key in keys}


@pytest.mark.parametrize("hash_name", STOCK)
def test_it_grows_and_shrinks_in_order(
    kafka: KafkaUnderTest, keyorder: Command, topic_name: str, tmp_path: Path, hash_name: str
) -> None:
    """6, 9, 12, 13 and back to 6 under load; a stock producer writes beside it at the counts where that is right."""
    partitioner = STOCK[hash_name]
    with Workload(kafka, tmp_path, topic_name, 6, managed=False) as run:
        before = run.writer("w-stock", stock=partitioner, rate=500, seed=1)
        before.expect_progress(run, 200)
        assert run.admin.adopt(topic_name).layout == Layout(6, 6, hash_name)
        run.consumer("c1", "g")
        run.consumer("c2", "g", columns="always")
        run.writer("w-ordered", rate=500, seed=2)
        columns = run.writer("w-columns", rate=500, seed=3, columns="mixed")
        before.expect_progress(run, 200)
        assert before.stop()["left"] == 0  # a stock producer moves keys as soon as there are 9 partitions
        for count in (9, 12):
            assert run.expand(count) == 0
        after = run.writer("w-stock-12", stock=partitioner, rate=500, seed=4)
        after.expect_progress(run, 300)
        assert after.stop()["left"] == 0
        assert run.expand(13) == 0
        assert run.shrink(6) == 0
        assert columns.process.poll() is None
        assert_in_order(run.finish())
    assert keyorder("verify", "--topic", topic_name).code == 0
    assert run.admin.describe(topic_name).layout == Layout(6, 6, hash_name)


def test_a_record_in_the_wrong_place_is_found_in_columns_too(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A crc32 topic that has grown: what a murmur2 producer puts elsewhere is counted, what crc32 puts right is not."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK, hash="crc32")
    admin.expand(topic_name, 4)
    layout = admin.describe(topic_name).layout
    keys = [f"k{i}" for i in range(100)]
    places = fill(kafka, topic_name, keys, "consistent")
    assert {key: layout.home(key) for key in places} == places
    wrong = fill(kafka, topic_name, keys, "murmur2")
    expected = sum(layout.home(key) != p for key, p in wrong.items())
    assert expected
    for columns in (False, True):
        consumer = OrderedConsumer(group_config(kafka, f"{topic_name}-{columns}"))
        consumer.subscribe([topic_name])
        if columns:
            rows = 0
            while rows < 200:
                rows += consumer.consume_arrow(1_000, 0.5).num_rows
        else:
            read(consumer, 200)
        assert consumer.strays == expected
        consumer.close()


def test_nothing_of_a_group_remains_of_a_look(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It joins no group and commits nothing."""
    create(kafka, topic_name, 2)
    fill(kafka, topic_name, some_keys(20), "consistent")
    TopicAdmin(kafka.client_config()).sample(topic_name)
    admin = kafka.admin()  # dropped, it would never answer
    groups = admin.list_consumer_groups(request_timeout=120).result(120)
    assert "keyorder-key-sample" not in {group.group_id for group in groups.valid or ()}


def test_a_compacted_topic_is_a_table_under_another_hash(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Moved keys' old values are cleared, a retired partition's are re-homed by ranges of 32-bit hashes, nothing else changes."""
    admin = TopicAdmin(kafka.client_config())
    config = {
        **QUICK,
        "cleanup.policy": "compact",
        "compaction.strategy": "offset",
        "delete.topic.partition.enable": "true",
    }
    admin.create(topic_name, 2, config=config, hash="crc32")
    keys = [f"k{i}" for i in range(60)]
    expected: dict[bytes, bytes] = {}
    admin.expand(topic_name, 3)
    layout = admin.describe(topic_name).layout
    retired = {key for key in keys if layout.home(key) == 2}
    assert any(HASHES["crc32"].of(key.encode()) >= 2**31 for key in retired)
    with OrderedProducer(kafka.client_config()) as producer:
        for round_ in range(2):
            for number, key in enumerate(keys):
                deleted = round_ == 1 and number % 5 == 0
                producer.produce(topic_name, None if deleted else f"{key}-{round_}", key)
                expected[key.encode()] = f"{key}-{round_}".encode()
                if deleted:
                    del expected[key.encode()]
            assert producer.flush(120) == 0
            if round_ == 0:
                admin.expand(topic_name, 5)
        admin.shrink(topic_name, 2, immediate=True)
        producer.produce(topic_name, b"again", min(retired))
        expected[min(retired).encode()] = b"again"
        assert producer.flush(120) == 0
        steps = admin.drain(topic_name, rehoming=RehomingTerms(slice_keys=3))
    assert all(step.done for step in steps), steps
    with CompactedView(kafka.client_config(), topic_name) as view:
        view.load()
        assert dict(view.items()) == expected
        assert view.counts.strays == 0
    home = Layout(2, 2, "crc32")
    with OrderedConsumer(group_config(kafka, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        table: dict[bytes, tuple[int, bytes]] = {}
        while {key: value for key, (_, value) in table.items()} != expected or consumer.gates():
            for message in consumer.consume(500, 0.2):
                key, value = message.key(), message.value()
                assert message.error() is None
                assert isinstance(key, bytes)
                table.pop(key, None)
                if value is not None:
                    table[key] = message.partition() or 0, bytes(value)
    assert {key: p for key, (p, _) in table.items()} == {key: home.home(key) for key in expected}


def test_all_who_count_misplaced_records_agree_before_the_first_change(
    kafka: KafkaUnderTest, keyorder: Command, topic_name: str
) -> None:
    """By the topic's own hash: what it does not explain is misplaced, what murmur2 would not explain is not."""
    create(kafka, topic_name, 4)
    right = fill(kafka, topic_name, [b"c%d" % i for i in range(120)], "consistent")
    wrong = fill(kafka, topic_name, [b"m%d" % i for i in range(40)], "murmur2")
    layout = Layout(4, 4, "crc32")
    assert {key: layout.home(key) for key in right} == right
    expected = sum(layout.home(key) != p for key, p in wrong.items())
    assert expected
    admin = TopicAdmin(kafka.client_config())
    assert admin.adopt(topic_name, hash="crc32", accept_misplaced=True).layout == layout

    found = admin.describe(topic_name, groups=(), records=1_000).strays
    assert found is not None
    assert sum(each.strays for each in found) == expected
    judged = keyorder("verify", "--topic", topic_name, output="table")
    assert judged.code == 1
    assert f"\n{expected} misplaced records\n" in judged.out
    findings = keyorder("doctor", "--topic", topic_name, "--records", 1_000).document["findings"]
    told = {(f["check"], f["about"], f["status"]): f for f in findings if f["about"].startswith(topic_name)}
    counted = [int(f["text"].split(" ")[0]) for (check, _, _), f in told.items() if check == "misplaced records"]
    assert sum(counted) == expected
    assert "murmur2" in told["adoption", topic_name, "warn"]["text"]
    assert "crc32 may write it: at 4 partitions" in told["stock producers", topic_name, "ok"]["text"]
    for columns in (False, True):
        with OrderedConsumer(group_config(kafka, f"{topic_name}-{columns}")) as consumer:
            consumer.subscribe([topic_name])
            rows = 0
            while rows < 160:
                rows += consumer.consume_arrow(500, 0.2).num_rows if columns else len(consumer.consume(500, 0.2))
            assert consumer.strays == expected
    assert "160 keyed records, 160 keys: crc32" in told["stock producers", topic_name, "warn"]["text"]


def test_the_doctor_and_the_plan_say_where_a_stock_producer_is_right(
    kafka: KafkaUnderTest, keyorder: Command, topic_name: str
) -> None:
    """All partitions count for a stock producer, retired ones too: after a shrink it is wrong at any count."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 3, config=QUICK, hash="fnv1a")

    def told() -> str:
        findings = keyorder("doctor", "--topic", topic_name).document["findings"]
        return str(next(f["text"] for f in findings if f["check"] == "stock producers"))

    def planned(count: int) -> list[str]:
        warnings = keyorder("topics", "plan", "--topic", topic_name, "--partitions", count).document["warnings"]
        return [w["text"] for w in warnings if w["code"] == "stock-writers"]

    assert "fnv1a may write it" in told()
    assert "may go on afterwards" in planned(6)[0]  # nobody writes it, so whoever does is a stock producer
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, b"v", b"k")
        assert producer.flush(120) == 0
        assert planned(6) == planned(7) == []
        for count in (6, 7, 6):
            (admin.expand if count >= admin.describe(topic_name).layout.count else admin.shrink)(topic_name, count)
            expected = (
                "may not write it" if count == 7 or admin.describe(topic_name).partitions == 7 else "may write it"
            )
            assert expected in told()
        assert planned(7) == []
        layout = admin.describe(topic_name).layout
        moved = [key for key in (b"k%d" % i for i in range(99)) if layout.home(key) != layout.resized(3).home(key)]
        stock = Producer(kafka.client_config())
        for key in moved:
            stock.produce(topic_name, b"v", key, layout.home(key))
        assert stock.flush(120) == 0
        (text,) = planned(7)
        assert f"{len(moved)} of the newest records are a stock producer's" in text
        assert "3, 6, 12, 24" in text


def test_a_client_that_knows_murmur2_alone_refuses_what_the_broker_has(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The timeline as it lies in the control topic; that of a murmur2 topic it reads as ever, a growth included."""
    admin = TopicAdmin(kafka.client_config())
    for hash_name in STOCK:
        topic = f"{topic_name}-{hash_name}"
        admin.create(topic, 2, config=QUICK, hash=hash_name)
        admin.expand(topic, 3)
        messages = readable(kafka.client_config(), [timeline_slot(topic)], 20.0)
        newest = [message.value for message in messages if message.key == timeline_key(topic)][-1]
        assert newest is not None
        if hash_name == "murmur2":
            assert [epoch["count"] for epoch in older_client_reads(newest)["epochs"]] == [2, 3]
        else:
            with pytest.raises(Refused):
                older_client_reads(newest)


def test_records_of_an_open_transaction_count(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Who placed them placed the others too; a reader of committed records would see none of them."""
    create(kafka, topic_name, 4)
    producer = Producer({**kafka.client_config(), "transactional.id": topic_name})
    producer.init_transactions(20)
    producer.begin_transaction()
    for key in some_keys(50):
        producer.produce(topic_name, b"v", key)
    assert producer.flush(120) == 0
    admin = TopicAdmin(kafka.client_config())
    assert admin.sample(topic_name).explaining == ("crc32",)
    producer.abort_transaction(20)
    assert admin.adopt(topic_name).layout.hash == "crc32"
