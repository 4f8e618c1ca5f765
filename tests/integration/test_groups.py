"""What a group sees around a change: callbacks, births, migrations, gates, seeks."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from keyorder import KeyRebalanceListener, OrderedConsumer, TopicAdmin
from keyorder.partitioner.errors import GroupResetError, IdentityMismatchError
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_gone, await_that, group_config, grown, moving_key, read, send


class Log(KeyRebalanceListener):
    """Notes KIP-253's callbacks among the records."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def on_partition_key_maybe_revoked(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("flush", sorted(p.partition for p in partitions)))

    def on_partition_key_assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("load", sorted(p.partition for p in partitions)))


@pytest.mark.kip("K253-04", "K253-12", "K253-19", "K253-20", "K253-21", "K253-49", "C-01")
def test_flush_and_load_run_between_a_moved_keys_records(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Last record at the old home, flush, load, first record at the new home."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    log = Log()
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name], listener=log)
    send(kafka, topic_name, (key, "old"))
    (old,) = read(consumer, 1)
    log.events.append(("record", (old.value() or b"").decode()))
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (key, "new"))

    (new,) = read(consumer, 1)
    log.events.append(("record", (new.value() or b"").decode()))

    assert (old.partition(), new.partition()) == (0, 1)
    assert (old.headers(), new.headers()) == (None, [("keyorder-epoch", b"1")])
    assert log.events == [("record", "old"), ("flush", [0]), ("load", [1]), ("record", "new")]
    consumer.close()


@pytest.mark.kip("K253-04", "K253-20", "K253-21", "C-01")
def test_the_old_owner_flushes_before_the_new_one_loads(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Two members, each with one of the two homes: state handed over between their callbacks misses no record."""
    admin, cluster = TopicAdmin(kafka.client_config()), kafka.admin()
    admin.create(topic_name, 1, config=QUICK)
    key = moving_key(admin, topic_name, 2)
    told: list[tuple[str, str, object]] = []
    logs = {name: Log() for name in ("a", "b")}
    # Assigned in the order of member ids, which begin with the client's: partition 0 to a, 1 to b.
    members = {name: OrderedConsumer(group_config(kafka, topic_name, client_id=name)) for name in logs}

    def poll_until(condition: Callable[[], bool]) -> None:
        """Poll both in turn; what each is told and given is put in one row."""
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, (told, [member.gates() for member in members.values()])
            for name, member in members.items():
                message = member.poll(0.05)
                told.extend((name, *event) for event in logs[name].events)
                logs[name].events.clear()
                if message is not None and message.error() is None:
                    told.append((name, "record", (message.value() or b"").decode()))

    def both_joined() -> bool:
        """Whether the group has settled on two members."""
        group = cluster.describe_consumer_groups([topic_name])[topic_name].result(120)
        return len(group.members) == 2 and group.state == ConsumerGroupState.STABLE

    for name, member in members.items():
        member.subscribe([topic_name], listener=logs[name])
    poll_until(lambda: both_joined() and bool(members["a"].assignment()))
    send(kafka, topic_name, (key, "old"))
    poll_until(lambda: ("a", "record", "old") in told)
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (key, "new"))
    poll_until(lambda: any(event[1:] == ("record", "new") for event in told))

    assert told == [("a", "record", "old"), ("a", "flush", [0]), ("b", "load", [1]), ("b", "record", "new")]
    for member in members.values():
        member.close()


@pytest.mark.kip("K253-54", "C-10", "C-11")
def test_a_moved_record_waits_until_the_other_member_has_committed(kafka: KafkaUnderTest, topic_name: str) -> None:
    """With manual commits the gate stays shut until the application commits, and gates() says for what it waits."""
    grown(kafka, topic_name)
    consumer = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    consumer.subscribe([topic_name])

    (old,) = read(consumer, 1)
    await_that(consumer, lambda: len(consumer.gates()) == 1)
    (gate,) = consumer.gates()
    assert (gate.partition, gate.waits_for, gate.needs_offset, gate.at_offset) == (1, 0, 1, 0)
    assert gate.owner == "this member"
    assert consumer.poll(0.5) is None

    consumer.commit(old)
    (new,) = read(consumer, 1)
    assert (new.value(), consumer.gates()) == (b"new", [])
    consumer.close()


@pytest.mark.kip("C-10")
def test_a_crash_before_the_commit_redelivers_both_in_order(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A new record is never delivered on the strength of a position that was only read: the replay begins with the old."""
    grown(kafka, topic_name)
    first = OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False))
    first.subscribe([topic_name])
    read(first, 1)
    first._raw.close()  # gone without a commit

    second = OrderedConsumer(group_config(kafka, topic_name))
    second.subscribe([topic_name])
    assert [m.value() for m in read(second, 2)] == [b"old", b"new"]
    second.close()


@pytest.mark.kip("K253-50", "C-09")
def test_a_group_born_at_latest_reads_what_comes_after_on_every_partition(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """Later partitions are read from their start, whatever auto.offset.reset says: nothing written since is skipped."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    send(kafka, topic_name, *((f"k{i}", "before") for i in range(20)))
    consumer = OrderedConsumer(group_config(kafka, topic_name, auto_offset_reset="latest"))
    consumer.subscribe([topic_name])
    started = {TopicPartition(topic_name, p) for p in range(2)}

    def born() -> bool:
        return all(p.offset >= 0 for p in consumer.committed(list(started), 5))

    assert await_that(consumer, born) == []
    admin.expand(topic_name, 5)
    send(kafka, topic_name, *((f"k{i}", "after") for i in range(40)))

    messages = read(consumer, 40)

    assert {m.value() for m in messages} == {b"after"}
    assert {m.partition() for m in messages} == {0, 1, 2, 3, 4}
    consumer.close()


def test_a_stock_groups_offsets_are_taken_over(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A group of the stock client goes on where it was; its partitions without a commit follow auto.offset.reset."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    stock = Producer({**kafka.client_config(), "partitioner": "murmur2_random"})
    for i in range(10):
        stock.produce(topic_name, f"a{i}", partition=0)
        stock.produce(topic_name, f"b{i}", partition=1)
    stock.flush(120)
    before = Consumer(group_config(kafka, topic_name, enable_auto_commit=False))
    before.assign([TopicPartition(topic_name, 0, 0)])
    before.commit(offsets=[TopicPartition(topic_name, 0, 4)], asynchronous=False)
    before.close()

    consumer = OrderedConsumer(group_config(kafka, topic_name, auto_offset_reset="latest"))
    consumer.subscribe([topic_name])
    values = [m.value() for m in read(consumer, 6)]

    assert values == [f"a{i}".encode() for i in range(4, 10)]
    with Consumer(group_config(kafka, topic_name)) as asking:
        commits = asking.committed([TopicPartition(topic_name, p) for p in range(2)], 120)
    assert [(c.partition, c.metadata) for c in commits] == [(0, "ko1:0"), (1, "ko1:0")]
    consumer.close()


def test_a_commit_above_the_end_of_the_log_is_an_error(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The broker accepts it; reading on from there would skip records unseen."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, ("k", "v"))
    stock = Consumer(group_config(kafka, topic_name, enable_auto_commit=False))
    stock.commit(offsets=[TopicPartition(topic_name, 0, 99)], asynchronous=False)
    stock.close()
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])

    with pytest.raises(GroupResetError, match="groups reset"):
        read(consumer, 1)
    consumer.close()


@pytest.mark.kip("C-11")
def test_a_lost_commit_of_an_origin_stops_the_group(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Past the gate on the child, nothing on the origin: reading it again would put old records behind new ones."""
    send(kafka, topic_name, (grown(kafka, topic_name), "newer"))
    stock = Consumer(group_config(kafka, topic_name, enable_auto_commit=False))
    stock.commit(offsets=[TopicPartition(topic_name, 1, 1, "ko1:1")], asynchronous=False)
    stock.close()
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])

    with pytest.raises(GroupResetError, match="origin 0 has no commit"):
        read(consumer, 1)
    consumer.close()


@pytest.mark.kip("K253-51", "C-09")
def test_seeking_an_origin_back_closes_the_gate_again(kafka: KafkaUnderTest, topic_name: str) -> None:
    """After the rewind the old record comes first again, for the next owner of both too."""
    grown(kafka, topic_name)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    assert [m.value() for m in read(consumer, 2)] == [b"old", b"new"]
    consumer.poll(0.1)

    consumer.seek(TopicPartition(topic_name, 0, 0))
    consumer.seek(TopicPartition(topic_name, 1, 0))
    consumer.pause([TopicPartition(topic_name, 0)])  # so that the child is fetched first

    assert consumer.poll(1.0) is None
    (gate,) = consumer.gates()
    assert (gate.partition, gate.waits_for, gate.at_offset) == (1, 0, 0)
    consumer.resume([TopicPartition(topic_name, 0)])
    assert [m.value() for m in read(consumer, 2)] == [b"old", b"new"]
    consumer.close()


@pytest.mark.parametrize("how", ["consume", "consume_arrow"])
def test_a_call_does_not_wait_for_what_waits_for_its_own_records(
    kafka: KafkaUnderTest, topic_name: str, how: str
) -> None:
    """The moved key's new record comes when the old one was processed: a call that wants both, for ever, has to end first."""
    key = grown(kafka, topic_name)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])

    def values() -> list[bytes | None]:
        if how == "consume":
            return [m.value() for m in consumer.consume(2)]
        return list(consumer.consume_arrow(2).column("value").to_pylist())

    assert values() == [b"old"]
    send(kafka, topic_name, (key, "last"))
    assert values() == [b"new", b"last"]
    consumer.close()


@pytest.mark.kip("K253-66", "K694-25")
def test_an_unmanaged_topic_is_read_as_by_a_stock_consumer(kafka: KafkaUnderTest, topic_name: str) -> None:
    """And goes on in order once it is adopted and grown."""
    stock = kafka.admin()
    stock.create_topics([NewTopic(topic_name, 2)])[topic_name].result(120)
    producer = Producer({**kafka.client_config(), "partitioner": "murmur2_random"})
    for i in range(20):
        producer.produce(topic_name, b"stock", f"k{i}")
    producer.flush(120)
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name])
    assert len(read(consumer, 20)) == 20

    admin = TopicAdmin(kafka.client_config())
    admin.adopt(topic_name)
    admin.expand(topic_name, 3)
    send(kafka, topic_name, *((f"k{i}", "ordered") for i in range(20)))

    assert {m.value() for m in read(consumer, 20)} == {b"ordered"}
    consumer.close()


@pytest.mark.kip("C-11")
def test_a_topic_that_was_made_again_is_never_read_by_its_old_timeline(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Until somebody adopts it anew, a reader stops; afterwards the old timeline, still in the log, is none of its."""
    admin, cluster = TopicAdmin(kafka.client_config()), kafka.admin()
    admin.create(topic_name, 1, config=QUICK)
    send(kafka, topic_name, *((f"k{i}", "old") for i in range(10)))
    admin.expand(topic_name, 2)
    cluster.delete_topics([topic_name])[topic_name].result(120)
    await_gone(cluster, topic_name)
    cluster.create_topics([NewTopic(topic_name, 1)])[topic_name].result(120)
    first = OrderedConsumer(group_config(kafka, topic_name))
    first.subscribe([topic_name])
    with pytest.raises(IdentityMismatchError, match="adopt"):
        read(first, 1)
    first.close()

    admin.adopt(topic_name, again=True)
    send(kafka, topic_name, ("k", "new"))
    second = OrderedConsumer(group_config(kafka, topic_name))
    second.subscribe([topic_name])
    assert [m.value() for m in read(second, 1)] == [b"new"]
    second.close()
