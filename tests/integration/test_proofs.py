"""Flush callbacks and what commits prove of them: others go by what the broker has acknowledged, callbacks may fail."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from keyorder import KeyRebalanceListener, OrderedConsumer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.consuming import committing
from keyorder.connector.groups.group_admin import GroupAdmin
from keyorder.connector.groups.resetting import Point, Target
from keyorder.partitioner.gates.starts import epoch_of
from support.cluster import KafkaUnderTest
from support.groups import QUICK, await_that, group_config, grown, read, send
from support.holding import until


class Log(KeyRebalanceListener):
    """Notes the callbacks; those named in `fails` raise, once for each time that they are named."""

    def __init__(self, *fails: str) -> None:
        self.fails = list(fails)
        self.events: list[tuple[str, int]] = []

    def on_partition_key_maybe_revoked(self, partitions: list[TopicPartition]) -> None:
        self._note("flush", partitions)

    def on_partition_key_assigned(self, partitions: list[TopicPartition]) -> None:
        self._note("load", partitions)

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.events.append((what, partitions[0].partition))
        if what in self.fails:
            self.fails.remove(what)
            raise RuntimeError(f"cannot {what}")


def proven(kafka: KafkaUnderTest, group: str, topic: str, partition: int) -> tuple[int, int | None]:
    """(committed offset, epoch that the commit proves), as any other member sees it."""
    client = Consumer(group_config(kafka, group))
    (found,) = client.committed([TopicPartition(topic, partition)], timeout=120)
    client.close()
    return found.offset, epoch_of(found.metadata)


def pair(kafka: KafkaUnderTest, topic: str, **more: object) -> tuple[OrderedConsumer, OrderedConsumer]:
    """Two members, which own partition 0 and partition 1; records may have been returned."""
    members = []
    for name in ("a", "b"):
        settings = group_config(kafka, topic, client_id=name, partition_assignment_strategy="range", **more)
        member = OrderedConsumer(settings)
        member.subscribe([topic], listener=Log())
        members.append(member)
    joined(*members)
    while min(proven(kafka, topic, topic, p)[0] for p in (0, 1)) < 0:
        for member in members:  # the group is made by its member with partition 0
            member.poll(0.1)
    return members[0], members[1]


def joined(*members: OrderedConsumer) -> list[bytes | str | None]:
    """Poll until each member owns the partition of its number; what was returned meanwhile, which may come again."""
    deadline = clock.now() + 180
    got = []
    while [[p.partition for p in m.assignment()] for m in members] != [[p] for p in range(len(members))]:
        assert clock.now() < deadline, [m.assignment() for m in members]
        got += [message.value() for m in members if (message := m.poll(0.1)) is not None]
    return got


@pytest.mark.kip("K253-49")
@pytest.mark.parametrize("gate", ["partition", "key"])
def test_a_proof_that_a_later_commit_has_taken_back_is_given_again(
    kafka: KafkaUnderTest, topic_name: str, gate: str
) -> None:
    """2 -> 1 -> 2. The flush of partition 0 was proven; a commit made while the other member's position was not known
    carries an older epoch. The other member waits for the proof, and nothing else would be committed."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK, initial_partition_count=1)
    one, two = (admin.describe(topic_name).layout.resized(n) for n in (1, 2))
    moved = next(k for k in (f"k{i}" for i in range(1000)) if (one.home(k), two.home(k)) == (0, 1))
    stays = next(k for k in (f"k{i}" for i in range(1000)) if (one.home(k), two.home(k)) == (0, 0))
    first, second = pair(kafka, topic_name, enable_auto_commit=False, keyorder_gate=gate)
    send(kafka, topic_name, (moved, "a0"), (stays, "s0"))
    admin.shrink(topic_name, 1)
    send(kafka, topic_name, (stays, "s1"))
    admin.expand(topic_name, 2)
    send(kafka, topic_name, (moved, "a1"), (stays, "s2"))
    newest = admin.describe(topic_name).epochs[-1].number

    assert [m.value() for m in read(second, 1)] == [b"a0"]
    second.commit(asynchronous=False)
    await_that(second, lambda: proven(kafka, topic_name, topic_name, 1) == (1, newest))
    assert [m.value() for m in read(first, 3)] == [b"s0", b"s1", b"s2"]
    first.commit(asynchronous=False)
    await_that(first, lambda: proven(kafka, topic_name, topic_name, 0) == (3, newest))
    first.seek(TopicPartition(topic_name, 0, 3))  # nothing is skipped or repeated, yet all is judged anew
    first.commit(offsets=[TopicPartition(topic_name, 0, 3)], asynchronous=False)
    assert proven(kafka, topic_name, topic_name, 0) == (3, 0)

    got = await_that(first, lambda: proven(kafka, topic_name, topic_name, 0) == (3, newest))
    assert got == []
    assert [m.value() for m in read(second, 1)] == [b"a1"]
    first.close()
    second.close()


def fails_once(consumer: OrderedConsumer, match: str) -> None:
    """Poll until the error comes; nothing may be returned before it."""
    with pytest.raises(RuntimeError, match=match):
        await_that(consumer, lambda: False)


@pytest.mark.kip("K253-20", "K253-49")
def test_a_flush_that_failed_is_told_once_proves_nothing_and_is_asked_again(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """Each failure reaches the application; the key's next record waits until the flush has been done."""
    _, admin = prepared(kafka, topic_name)
    log = Log("flush", "flush")
    consumer = OrderedConsumer(group_config(kafka, topic_name, auto_commit_interval_ms=100))
    consumer.subscribe([topic_name], listener=log)
    assert [m.value() for m in read(consumer, 1)] == [b"old"]

    for _ in range(2):
        fails_once(consumer, "cannot flush")
        assert (proven(kafka, topic_name, topic_name, 0)[1] or 0) < admin.describe(topic_name).epochs[-1].number

    assert [m.value() for m in read(consumer, 1)] == [b"new"]
    assert log.events == [("flush", 0)] * 3 + [("load", 1)]
    assert proven(kafka, topic_name, topic_name, 0) == (1, admin.describe(topic_name).epochs[-1].number)
    consumer.close()


@pytest.mark.kip("K253-21")
@pytest.mark.parametrize("gate", ["partition", "key"])
def test_a_load_that_failed_is_told_once_and_done_before_the_first_record(
    kafka: KafkaUnderTest, topic_name: str, gate: str
) -> None:
    """Nothing behind the gate is returned before the state is loaded; other partitions and the topic go on."""
    key, _ = prepared(kafka, topic_name)
    log = Log("load", "load")
    consumer = OrderedConsumer(group_config(kafka, topic_name, keyorder_gate=gate))
    consumer.subscribe([topic_name], listener=log)
    assert [m.value() for m in read(consumer, 1)] == [b"old"]

    for _ in range(2):
        fails_once(consumer, "cannot load")

    assert [m.value() for m in read(consumer, 1)] == [b"new"]
    assert log.events == [("flush", 0)] + [("load", 1)] * 3
    send(kafka, topic_name, (key, "more"))
    assert [m.value() for m in read(consumer, 1)] == [b"more"]
    consumer.close()


def prepared(kafka: KafkaUnderTest, topic: str) -> tuple[str, TopicAdmin]:
    """1 -> 2 with a moved key's records on both sides."""
    return grown(kafka, topic), TopicAdmin(kafka.client_config())


@pytest.mark.kip("K253-20", "K253-49")
def test_after_a_rewind_the_flush_is_asked_for_again(kafka: KafkaUnderTest, topic_name: str) -> None:
    """What is processed again changes the state again: flush, then load, then the key's next record once more."""
    prepared(kafka, topic_name)
    log = Log()
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    consumer.subscribe([topic_name], listener=log)
    assert [m.value() for m in read(consumer, 2)] == [b"old", b"new"]
    assert consumer.poll(0.1) is None
    log.events.clear()

    consumer.seek(TopicPartition(topic_name, 0, 0))
    consumer.seek(TopicPartition(topic_name, 1, 0))

    assert [m.value() for m in read(consumer, 2)] == [b"old", b"new"]
    assert log.events == [("flush", 0), ("load", 1)]
    consumer.close()


@pytest.mark.kip("K253-51", "C-09")
@pytest.mark.parametrize("gate", ["partition", "key"])
def test_a_seek_back_inside_the_load_is_read_before_what_waits_for_it(
    kafka: KafkaUnderTest, topic_name: str, gate: str
) -> None:
    """The application builds its state anew from the origin: the key's next record comes behind that, and not before."""
    prepared(kafka, topic_name)
    consumer = OrderedConsumer(group_config(kafka, topic_name, keyorder_gate=gate))

    class Rebuilds(Log):
        """Seeks back when it hears of the gate the first time."""

        def on_partition_key_assigned(self, partitions: list[TopicPartition]) -> None:
            super().on_partition_key_assigned(partitions)
            if self.events.count(("load", 1)) == 1:
                consumer.seek(TopicPartition(topic_name, 0, 0))

    consumer.subscribe([topic_name], listener=Rebuilds())
    assert [m.value() for m in read(consumer, 3)] == [b"old", b"old", b"new"]
    consumer.close()


@pytest.mark.kip("K253-21")
def test_a_partition_that_returns_at_its_start_is_announced_again(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It was another member's meanwhile, or might have been: its state is loaded anew."""
    prepared(kafka, topic_name)
    log = Log()
    consumer = OrderedConsumer(group_config(kafka, topic_name))
    on_assign = lambda c, places: c.pause([TopicPartition(topic_name, 1)])  # noqa: E731
    consumer.subscribe([topic_name], on_assign=on_assign, listener=log)
    assert [m.value() for m in read(consumer, 1)] == [b"old"]
    assert await_that(consumer, lambda: ("load", 1) in log.events) == []
    consumer.unsubscribe()
    until(lambda: consumer.poll(0.1) is None and not consumer.assignment())
    log.events.clear()
    consumer.subscribe([topic_name], on_assign=lambda c, places: c.resume(places), listener=log)
    assert [m.value() for m in read(consumer, 1)] == [b"new"]
    assert log.events == [("load", 1)]
    consumer.close()


def kept(*members: OrderedConsumer) -> list[TopicPartition]:
    return [place for member in members for place in member.assignment()]


@pytest.mark.kip("C-11")
def test_positions_from_before_a_reset_open_no_gate(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Two members leave, the group is reset to the beginning, the same objects return: the key's old record comes first."""
    prepared(kafka, topic_name)
    first, second = pair(kafka, topic_name, enable_auto_commit=False)
    for again in (True, False):
        first.seek(TopicPartition(topic_name, 0, 0))
        for _ in range(20):
            assert second.poll(0.05) is None, "the old record is not processed yet"
        while (proven(kafka, topic_name, topic_name, 0)[1] or 0) == 0:
            for message in first.consume(1, 0.1):
                assert message.value() == b"old"
                first.commit(message, asynchronous=False)
        assert [message.value() for message in read(second, 1)] == [b"new"]
        second.commit(asynchronous=False)
        if again:
            for member in (first, second):
                member.unsubscribe()
            until(lambda: first.poll(0.05) is None and second.poll(0.05) is None and not kept(first, second))
            reset = GroupAdmin(kafka.client_config()).reset(topic_name, topic_name, Target(Point.EARLIEST), True)
            assert reset.executed
            for member in (first, second):
                member.subscribe([topic_name], listener=Log())
            assert set(joined(first, second)) <= {b"old"}
    first.close()
    second.close()


def test_what_a_gate_waits_for_is_proven_soon_where_there_is_nothing_else_to_return(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of many partitions looks seldom, for each look costs. Here it never would, but for its own closed gate."""
    for pause in ("_BRISK", "_CALM", "_AT_LEAST"):
        monkeypatch.setattr(committing, pause, 1e12)
    monkeypatch.setattr(committing, "_CHEAP", -1.0)
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1, config=QUICK)
    keys = [f"k{n}" for n in range(8)]
    send(kafka, topic_name, *((key, "old") for key in keys))
    admin.expand(topic_name, 2)
    send(kafka, topic_name, *((key, "new") for key in keys))
    config = group_config(kafka, topic_name, auto_commit_interval_ms=3_600_000)
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name])

        read(consumer, 2 * len(keys))

        assert proven(kafka, topic_name, topic_name, 0)[1] == 1


def test_a_new_epoch_is_proven_however_long_the_last_look_took(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks that took long are made less often, but an epoch is news: the member that keys have moved to waits for the proof.

    Here a look without news is not made again at all.
    """
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK, initial_partition_count=1)
    send(kafka, topic_name, ("k0", "v0"), ("k1", "v1"))
    with OrderedConsumer(group_config(kafka, topic_name, enable_auto_commit=False)) as consumer:
        consumer.subscribe([topic_name])
        read(consumer, 2)
        consumer.commit(asynchronous=False)
        newest = admin.describe(topic_name).epochs[-1].number
        await_that(consumer, lambda: {proven(kafka, topic_name, topic_name, p)[1] for p in (0, 1)} == {newest})
        monkeypatch.setattr(committing, "_CHEAP", -1.0)
        monkeypatch.setattr(committing, "_BRISK", 0.0)
        monkeypatch.setattr(committing, "_CALM", 1e12)
        monkeypatch.setattr(committing, "_AT_LEAST", 1e12)
        consumer.poll(0.1)

        admin.shrink(topic_name, 1)

        newest += 1
        assert admin.describe(topic_name).epochs[-1].number == newest
        await_that(consumer, lambda: proven(kafka, topic_name, topic_name, 1)[1] == newest)
