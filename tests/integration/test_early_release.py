"""`keyorder.gate.early.release`: behind a closed gate only keys with unread records in an earlier home wait."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from keyorder import KeyRebalanceListener, Layout, OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.partitioner.errors import ConfigError, UsageError
from keyorder.partitioner.gates.gate import Gates
from keyorder.partitioner.routing import Routing
from support.cluster import KafkaUnderTest
from support.groups import await_that, read
from support.workload import Workload, assert_in_order

QUICK = {"keyorder.view.age.ms": "300"}
KEYS = [b"%d" % n for n in range(200)]


def homed(*homes: int, hash: str = "murmur2") -> list[bytes]:
    """Four keys whose homes are these with 1, 2, 4 partitions; fewer numbers, fewer demands."""
    layouts = [Layout(1, count, hash) for count in (1, 2, 4)]
    found = [k for k in KEYS if all(layout.home(k) == home for layout, home in zip(layouts, homes, strict=False))]
    return found[:4]


OWN, MOVED = homed(0, 0), homed(0, 1)
PRESENT, ABSENT = MOVED[:2], MOVED[2:]


def write(config: dict[str, Any], topic: str, value: bytes, keys: list[bytes]) -> None:
    with OrderedProducer(config) as producer:
        for key in keys:
            producer.produce(topic, value, key)


@contextmanager
def reader(kafka: KafkaUnderTest, topic: str, partitions: int, **more: Any) -> Iterator[OrderedConsumer]:
    """A member of the topic's group, to which partition 0 gives nothing until it is resumed."""
    config = {
        **kafka.client_config(),
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "keyorder.gate": "key",
        "keyorder.gate.early.release": True,
        **more,
    }
    with OrderedConsumer(config) as consumer:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        consumer.assign(places)
        consumer.pause(places[:1])
        yield consumer


def pairs(messages: list[Any]) -> list[tuple[bytes, bytes]]:
    return [(m.key(), m.value()) for m in messages]


def note(consumer: OrderedConsumer) -> str:
    """What the first closed gate says of early release."""
    gates = consumer.gates()
    return gates[0].early_release if gates else ""


def grow(
    kafka: KafkaUnderTest,
    topic: str,
    old: list[bytes] = OWN + PRESENT,
    moved: list[bytes] = MOVED,
    hash: str = "murmur2",
) -> str:
    """A topic that grew from 1 to 2 over unread records of old; then every moved key was written to."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic, 1, config=QUICK, hash=hash)
    write(config, topic, b"old", old)
    admin.expand(topic, 2)
    write(config, topic, b"new", moved)
    return topic


@pytest.fixture
def grown(kafka: KafkaUnderTest, topic_name: str) -> str:
    """Such a topic of the test's own."""
    return grow(kafka, topic_name)


@pytest.fixture(scope="module")
def shared(kafka: KafkaUnderTest) -> str:
    """Such a topic for those who only read it, each with a group of its own."""
    return grow(kafka, "early-release")


def test_absent_keys_are_delivered_while_the_origin_stands_still(kafka: KafkaUnderTest, shared: str) -> None:
    """Those with unread records there wait until these are processed; then all is committed."""
    with reader(kafka, shared, 2, **{"group.id": "absent"}) as consumer:
        assert pairs(read(consumer, 2)) == [(key, b"new") for key in ABSENT]

        assert await_that(consumer, lambda: note(consumer).startswith("all keys but 2 flow")) == []
        assert consumer.gates()[0].records_held == 2
        consumer.resume([TopicPartition(shared, 0)])
        rest = pairs(read(consumer, 8))
        assert rest == [(key, b"old") for key in OWN + PRESENT] + [(key, b"new") for key in PRESENT]
        consumer.commit(asynchronous=False)
        assert [p.offset for p in consumer.committed([TopicPartition(shared, p) for p in (0, 1)])] == [6, 4]


@pytest.mark.parametrize("hash_name", ["crc32", "fnv1a"])
def test_keys_of_another_hash_go_early_too(kafka: KafkaUnderTest, topic_name: str, hash_name: str) -> None:
    """The scan keeps the topic's own hashes, by which it knows the keys that moved."""
    stayed, moved = homed(0, 0, hash=hash_name), homed(0, 1, hash=hash_name)
    present, absent = moved[:2], moved[2:]
    topic = grow(kafka, topic_name, stayed + present, moved, hash_name)
    with reader(kafka, topic, 2) as consumer:
        assert pairs(read(consumer, 2)) == [(key, b"new") for key in absent]
        consumer.resume([TopicPartition(topic, 0)])
        rest = pairs(read(consumer, 8))
        assert rest == [(key, b"old") for key in stayed + present] + [(key, b"new") for key in present]


def test_columns_go_early_too(kafka: KafkaUnderTest, shared: str) -> None:
    """consume_arrow() holds and lets go as poll() does."""
    with reader(kafka, shared, 2, **{"group.id": "columns"}) as consumer:
        seen: list[tuple[bytes, bytes]] = []
        for place, most in ((None, 2), (TopicPartition(shared, 0), 10)):
            if place is not None:
                consumer.resume([place])
            while len(seen) < most:
                batch = consumer.consume_arrow(most - len(seen), 0.1)  # what was given counts with the next call
                seen += zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
            if place is None:
                assert seen == [(key, b"new") for key in ABSENT]
        assert seen[2:] == [(key, b"old") for key in OWN + PRESENT] + [(key, b"new") for key in PRESENT]


@pytest.mark.parametrize("gate", ["key", "partition"])
def test_a_new_owner_returns_only_what_waited(kafka: KafkaUnderTest, shared: str, gate: str) -> None:
    """What had gone early stands in the commit: another member, with early release or without, does not repeat it."""
    group = {"group.id": f"owners-{gate}"}
    with reader(kafka, shared, 2, **group) as first:
        assert pairs(read(first, 2)) == [(key, b"new") for key in ABSENT]
        first.commit(asynchronous=False)
    early = gate == "key"
    with reader(kafka, shared, 2, **group, **{"keyorder.gate": gate, "keyorder.gate.early.release": early}) as second:
        second.resume([TopicPartition(shared, 0)])
        rest = pairs(read(second, 8))
    assert rest == [(key, b"old") for key in OWN + PRESENT] + [(key, b"new") for key in PRESENT]


def test_a_key_goes_when_its_last_unread_record_is_committed(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Not when the gate opens: what lies behind it in the origin is other keys' business."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    write(config, topic_name, b"old", [PRESENT[0], *OWN])
    admin.expand(topic_name, 2)
    write(config, topic_name, b"new", PRESENT[:1])
    with reader(kafka, topic_name, 2, **{"enable.auto.commit": False}) as consumer:
        assert await_that(consumer, lambda: note(consumer).startswith("all keys but 1 flow")) == []
        consumer.resume([TopicPartition(topic_name, 0)])
        assert pairs(read(consumer, 5)) == [(PRESENT[0], b"old"), *((key, b"old") for key in OWN)]
        consumer.commit(offsets=[TopicPartition(topic_name, 0, 1)], asynchronous=False)

        assert pairs(read(consumer, 1)) == [(PRESENT[0], b"new")]
        assert consumer.gates()[0].at_offset == 1


def test_every_earlier_home_is_read(kafka: KafkaUnderTest, topic_name: str) -> None:
    """1 -> 2 -> 4 with nothing written in between: keys of partition 3 are looked for in 1, and in 0 before it."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    twice = homed(0, 1, 3)
    write(config, topic_name, b"old", twice[:1])
    admin.expand(topic_name, 2)
    write(config, topic_name, b"mid", twice[1:2])
    admin.expand(topic_name, 4)
    write(config, topic_name, b"new", twice)
    with reader(kafka, topic_name, 4) as consumer:
        seen = pairs(read(consumer, 4))
        assert sorted(seen) == sorted([(twice[1], b"mid"), *((key, b"new") for key in twice[1:])])
        assert seen.index((twice[1], b"mid")) < seen.index((twice[1], b"new"))
        consumer.resume([TopicPartition(topic_name, 0)])
        assert pairs(read(consumer, 2)) == [(twice[0], b"old"), (twice[0], b"new")]


def test_aborted_records_are_no_keys_and_an_open_transaction_is_waited_for(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """The tail is read as the group reads it."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    write(config, topic_name, b"old", OWN)
    with OrderedProducer({**config, "transactional.id": topic_name}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic_name, b"aborted", ABSENT[0])
        producer.flush(120)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.produce(topic_name, b"open", PRESENT[0])
        producer.flush(120)
        admin.expand(topic_name, 2)
        write(config, topic_name, b"new", [*ABSENT[:1], PRESENT[0]])
        stable = len(OWN) + 2  # the aborted record and its marker
        with reader(kafka, topic_name, 2) as consumer:
            where = f"looks for the keys of the unread tail: {stable} of {stable + 1} offsets"
            assert await_that(consumer, lambda: note(consumer) == where) == []
            producer.commit_transaction(30)

            assert pairs(read(consumer, 1)) == [(ABSENT[0], b"new")]
            consumer.resume([TopicPartition(topic_name, 0)])
            rest = pairs(read(consumer, len(OWN) + 2))
            assert rest == [*((key, b"old") for key in OWN), (PRESENT[0], b"open"), (PRESENT[0], b"new")]


def test_what_retention_took_is_passed_when_the_groups_position_is(kafka: KafkaUnderTest, grown: str) -> None:
    """The origin's owner may have in memory what the log has lost, so that the log begins later lets nothing go."""
    with reader(kafka, grown, 2, **{"keyorder.gate.early.release": False}) as consumer:
        assert await_that(consumer, lambda: bool(consumer.gates())) == []
    admin = AdminClient(kafka.client_config())
    admin.delete_records([TopicPartition(grown, 0, 5)])[TopicPartition(grown, 0, 5)].result(120)
    with reader(kafka, grown, 2, **{"enable.auto.commit": False}) as consumer:
        says = "waits until the group, at 0 of partition 0, has passed 5, where its log began"
        assert await_that(consumer, lambda: note(consumer) == says) == []
        consumer.commit(offsets=[TopicPartition(grown, 0, 5)], asynchronous=False)

        assert sorted(pairs(read(consumer, 3))) == sorted((key, b"new") for key in [PRESENT[0], *ABSENT])
        consumer.resume([TopicPartition(grown, 0)])
        assert pairs(read(consumer, 1)) == [(PRESENT[1], b"old")]
        consumer.commit(asynchronous=False)
        assert pairs(read(consumer, 1)) == [(PRESENT[1], b"new")]


def test_a_seek_back_in_the_origin_closes_it_for_keys_that_lie_there(kafka: KafkaUnderTest, grown: str) -> None:
    """Nothing is known of what lies before the scan: the tail is read again from the new position."""
    config = kafka.client_config()
    with reader(kafka, grown, 2, **{"enable.auto.commit": False}) as consumer:
        origin = TopicPartition(grown, 0)
        consumer.resume([origin])
        seen = pairs(read(consumer, 6 + 2))
        assert sorted(seen) == sorted([(key, b"old") for key in OWN + PRESENT] + [(key, b"new") for key in ABSENT])
        consumer.commit(offsets=[TopicPartition(grown, 0, 5)], asynchronous=False)
        assert pairs(read(consumer, 1)) == [(PRESENT[0], b"new")]
        consumer.pause([origin])
        consumer.seek(TopicPartition(grown, 0, 4))
        write(config, grown, b"newer", MOVED)

        assert sorted(pairs(read(consumer, 2))) == sorted((key, b"newer") for key in ABSENT)
        assert await_that(consumer, lambda: note(consumer).startswith("all keys but 2 flow")) == []
        consumer.resume([origin])
        assert pairs(read(consumer, 2)) == [(key, b"old") for key in PRESENT]


@pytest.mark.parametrize(
    ("topic_config", "settings", "says"),
    [
        ({"cleanup.policy": "compact"}, {}, "given up: topic .* has cleanup.policy=compact"),
        (
            {},
            {"keyorder.gate.early.release.max.keys": 1},
            "given up: more than 1 keys in the unread tail of partition 0",
        ),
    ],
)
def test_what_cannot_be_shown_is_given_up_and_said(
    kafka: KafkaUnderTest, topic_name: str, topic_config: dict[str, str], settings: dict[str, Any], says: str
) -> None:
    """Then all wait for the gate, as without it."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config={**QUICK, **topic_config})
    write(config, topic_name, b"old", OWN + PRESENT)
    admin.expand(topic_name, 2)
    write(config, topic_name, b"new", MOVED)
    with reader(kafka, topic_name, 2, **settings) as consumer:
        assert await_that(consumer, lambda: note(consumer).startswith("given up")) == []
        assert re.match(says, note(consumer))
        consumer.resume([TopicPartition(topic_name, 0)])
        rest = pairs(read(consumer, 10))
        assert rest == [(key, b"old") for key in OWN + PRESENT] + [(key, b"new") for key in MOVED]


def test_a_full_memory_flows_again_when_the_tail_is_known(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Before that all are held, and the partition is paused; what waits for long must not keep it so."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 1, config=QUICK)
    write(config, topic_name, b"old", OWN + PRESENT[:1])
    admin.expand(topic_name, 2)
    write(config, topic_name, b"new", [PRESENT[0], *ABSENT * 50])
    with reader(kafka, topic_name, 2, **{"keyorder.hold.max.messages": 10}) as consumer:
        assert pairs(read(consumer, 100)) == [(key, b"new") for key in ABSENT * 50]
        assert consumer.gates()[0].records_held == 1


class _Listens(KeyRebalanceListener):
    def on_partition_key_assigned(self, partitions: list[TopicPartition]) -> None:
        """Load."""


def test_what_it_does_not_go_with_is_refused(kafka: KafkaUnderTest, topic_name: str) -> None:
    """At the start, with the setting and the way out."""
    config = {**kafka.client_config(), "group.id": topic_name, "keyorder.gate.early.release": "true"}
    with pytest.raises(ConfigError, match=r"keyorder\.gate\.early\.release.*keyorder\.gate=key"):
        OrderedConsumer(config)
    with pytest.raises(ConfigError, match=r"max\.keys"):
        OrderedConsumer({**config, "keyorder.gate": "key", "keyorder.gate.early.release.max.keys": 0})
    with OrderedConsumer({**config, "keyorder.gate": "key"}) as consumer:
        with pytest.raises(UsageError, match="listener"):
            consumer.subscribe([topic_name], listener=_Listens())
        consumer.subscribe([topic_name], listener=KeyRebalanceListener())


@pytest.mark.nightly
def test_growth_over_a_backlog_with_members_killed(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """The origin's owner is slow, keys go early elsewhere, owners on both sides die: no key is reordered, none lost."""
    # Whoever owns the origin has seconds of work before it, however long the changes take on a busy machine.
    settings = {"keyorder.gate": "key", "keyorder.gate.early.release": True, "keyorder.hold.max.messages": 500}
    with Workload(kafka, tmp_path, topic_name, partitions=1, config=QUICK) as run:
        run.writer("w0", rate=10_000, keys=200, count=8_000).expect("finished")
        run.consumer("c1", "g", work_s=0.002, batch=20, config=settings)
        run.writer("w1", rate=300, keys=1_500, seed=1)
        run.writer("w2", rate=300, keys=1_500, seed=2).expect_progress(run)
        assert run.resize(2) == 0
        second = run.consumer("c2", "g", work_s=0.001, batch=20, config=settings)
        assert run.resize(4) == 0
        run.consumer("c3", "g", work_s=0.002, batch=20, config=settings)
        run.kill(second)
        run.consumer("c4", "g", work_s=0.001, batch=20, config=settings)
        assert run.resize(3) == 0
        verdict = run.finish()

        assert_in_order(verdict)
        assert went_early(run)


def went_early(run: Workload) -> int:
    """How many records were given out before their gate was open at what the group had committed by then."""
    timeline = run.admin.timeline(run.topic)
    gates, routing = Gates(timeline), Routing(timeline)
    events: list[list[Any]] = []
    for path in run.folder.glob("c*.jsonl"):
        lines = path.read_text().splitlines()
        events += [
            json.loads(line) for line in lines if line.endswith("]")
        ]  # the last one of a killed process may be cut
    committed: dict[int, int] = {}
    opened = gates.open_now(lambda q: committed.get(q, 0))
    early = 0
    for event in sorted(events, key=lambda event: event[0]):
        if event[1] == "co" and event[4] == "ok":
            committed[event[2]] = event[3]
            opened = gates.open_now(lambda q: committed.get(q, 0))
        elif event[1] == "ds":
            _, _, partition, offset, _, _, key, _ = event
            gate = gates.entry(routing.of(key.encode()).moves, partition, offset)
            early += gate is not None and not opened.is_open(gate)
    return early
