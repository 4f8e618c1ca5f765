"""A broker that is away ends no process, as an admin request of the client library that ran out can, and holds up no close()."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.admin_link import AdminLink
from keyorder.connector.consuming import consumer as consumer_module
from keyorder.connector.group_commits import GroupCommits
from support.cluster import ClusterSpec, KafkaUnderTest
from support.groups import QUICK, await_that, committed_by, group_config, read, send

ASKER = """
import sys
from keyorder import GroupAdmin, KeyorderError
from keyorder.errors import BrokerUnreachableError
from keyorder.connector.groups.resetting import Point, Target

servers, topic = sys.argv[1:]
groups = GroupAdmin({"bootstrap.servers": servers, "reconnect.backoff.max.ms": 500})
groups.reset(topic, topic, Target(Point.EARLIEST))
print("asked", flush=True)
sys.stdin.readline()
away = False
while not away:
    try:
        groups.reset(topic, topic, Target(Point.EARLIEST))
    except KeyorderError as error:
        print(error, file=sys.stderr)
        # The one that was under way may end with another error of the client library, _DESTROY_BROKER.
        away = isinstance(error, BrokerUnreachableError)
print("away", flush=True)
sys.stdin.readline()
answers = 0
while answers < 5:
    try:
        groups.reset(topic, topic, Target(Point.EARLIEST))
        answers += 1
    except BrokerUnreachableError as error:
        print(error, file=sys.stderr)  # a broker that is busy with its start: ask again
"""


@pytest.fixture(scope="module")
def lone(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> Iterator[KafkaUnderTest]:
    """A broker that may stand still."""
    started = start_kafka(ClusterSpec(1, {}, {"broker.session.timeout.ms": "6000"}))
    yield started
    started.stop()


@pytest.fixture
def strike(lone: KafkaUnderTest) -> Iterator[Callable[[signal.Signals], None]]:
    """Sends the broker a signal. However the test ends, the next one finds a broker that runs."""
    sent: list[signal.Signals] = []

    def send(sig: signal.Signals) -> None:
        sent.append(sig)
        lone.kill_broker(1, sig)

    yield send
    if sent[-1:] == [signal.SIGSTOP]:
        lone.kill_broker(1, signal.SIGCONT)
    if signal.SIGKILL in sent:
        lone.start_broker(1)  # one that was started again already is left alone


def test_a_process_outlives_a_broker_that_restarts_slowly(
    lone: KafkaUnderTest, topic_name: str, strike: Callable[[signal.Signals], None]
) -> None:
    """A look at a group fails with the error of a cluster that is away, and succeeds when it is there again."""
    TopicAdmin(lone.client_config()).create(topic_name, 1)
    with subprocess.Popen(
        [sys.executable, "-c", ASKER, lone.bootstrap_servers, topic_name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as asker:  # fmt: skip
        try:
            assert asker.stdin is not None
            assert asker.stdout is not None
            assert asker.stdout.readline() == "asked\n"
            strike(signal.SIGKILL)
            print(file=asker.stdin, flush=True)
            assert asker.stdout.readline() == "away\n"
            lone.start_broker(1)
            print(file=asker.stdin, flush=True)
            assert asker.wait(300) == 0
        finally:
            asker.kill()  # it asks for ever where the test has failed


REQUESTS: dict[str, Callable[[AdminLink, str], object]] = {
    "describe": lambda link, group: link.describe_group(group, 1),
    "delete": lambda link, group: link.delete_group(group, 1),
    "set offsets": lambda link, group: link.set_offsets(group, [TopicPartition(group, 0, 1)], 1),
}


@pytest.mark.parametrize("ask", REQUESTS.values(), ids=list(REQUESTS))
def test_what_a_coordinator_has_not_answered_is_never_sent(
    lone: KafkaUnderTest,
    topic_name: str,
    strike: Callable[[signal.Signals], None],
    ask: Callable[[AdminLink, str], object],
) -> None:
    """The request ends in time; when the coordinator is there again the next is answered, and the old one changes nothing."""
    TopicAdmin(lone.client_config()).create(topic_name, 1)
    link = AdminLink(lone.client_config())
    link.set_offsets(
        topic_name, [TopicPartition(topic_name, 0, 0)], 120
    )  # the library knows the coordinator from now on
    link = AdminLink(lone.client_config())
    strike(signal.SIGSTOP)
    with pytest.raises(KafkaException, match="has not answered for 1 s"):
        ask(link, topic_name)
    strike(signal.SIGCONT)
    assert link.describe_group(topic_name, 120).state.name == "EMPTY"
    consumer = Consumer({**lone.client_config(), "group.id": topic_name})
    (committed,) = consumer.committed([TopicPartition(topic_name, 0)], timeout=120)
    consumer.close()
    assert committed.offset == 0


PROTOCOLS = {
    "range": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
    "assigned": {},
}
# What is not committed yet: what an automatic commit would take, what was sent a moment ago, what a callback commits.
OPEN = ("automatic", "on its way", "in on_revoke")


@pytest.mark.parametrize("sig", [signal.SIGSTOP, signal.SIGKILL], ids=["stands still", "is killed"])
def test_close_ends_without_the_coordinator(
    lone: KafkaUnderTest,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    strike: Callable[[signal.Signals], None],
    sig: signal.Signals,
) -> None:
    """Whatever is to be committed: nothing is then, and none of it counts as committed when the broker is back."""
    monkeypatch.setattr(consumer_module, "_CLOSE_PATIENCE", 1.0)
    TopicAdmin(lone.client_config()).create(topic_name, 1, config=QUICK)
    send(lone, topic_name, *((f"k{n}", f"v{n}") for n in range(10)))
    members: dict[str, OrderedConsumer] = {}
    refused: list[KafkaException] = []

    def commit_again(consumer: OrderedConsumer, _: object) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            refused.append(error)

    for protocol, settings in PROTOCOLS.items():
        for what in OPEN:
            auto = what == "automatic"
            config = group_config(
                lone, f"{topic_name}-{protocol}-{what}",
                enable_auto_commit=auto, auto_commit_interval_ms=600_000, **settings,
            )  # fmt: skip
            consumer = members[f"{protocol}, {what}"] = OrderedConsumer(config)
            if protocol == "assigned":
                consumer.assign([TopicPartition(topic_name, 0)])
            elif what == "in on_revoke":
                consumer.subscribe([topic_name], on_revoke=commit_again)
            else:
                consumer.subscribe([topic_name])
    for consumer in members.values():
        read(consumer, 10)

    strike(sig)
    closed: set[str] = set()

    def close(name: str) -> None:
        if name.endswith("on its way"):
            members[name].commit(asynchronous=True)
        members[name].close()
        closed.add(name)

    closing = [threading.Thread(target=close, args=(name,), daemon=True) for name in members]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(120)
    if sig == signal.SIGSTOP:
        strike(signal.SIGCONT)
    else:
        lone.start_broker(1)
    assert closed == set(members)
    assert len(refused) == 3
    assert {error.args[0].name() for error in refused} == {"_TIMED_OUT"}
    groups = {name: f"{topic_name}-{name.replace(', ', '-')}" for name in members}
    after = GroupCommits(lone.client_config()).read(groups.values(), [(topic_name, 0)], 120)
    for name, group in groups.items():
        committed = after[group].get((topic_name, 0))
        # The group's initial commit, or what was sent, which may still arrive as it was sent.
        assert committed is None or committed.offset == 0 or name.endswith("on its way"), (name, committed)


@pytest.mark.parametrize("what", ["automatic", "proof", "revocation"])
def test_poll_returns_while_the_coordinator_is_silent(
    lone: KafkaUnderTest, topic_name: str, strike: Callable[[signal.Signals], None], what: str
) -> None:
    """A commit that keyorder makes by itself holds up no call; the coordinator takes it when it is there again."""
    admin = TopicAdmin(lone.client_config())
    admin.create(topic_name, 1, config=QUICK)
    send(lone, topic_name, *((f"k{n}", f"v{n}") for n in range(10)))
    interval = 500 if what == "automatic" else 600_000
    long = {"session_timeout_ms": 600_000, "max_poll_interval_ms": 600_000}
    consumer = OrderedConsumer(group_config(lone, topic_name, auto_commit_interval_ms=interval, **long))
    consumer.subscribe([topic_name])
    read(consumer, 10)
    if what == "proof":
        admin.expand(topic_name, 2)
        grown = threading.Event()  # without a call, which would take the records as processed
        while not any(consumer.key_epoch(topic_name, f"k{n}".encode(), 1, 0) for n in range(10)):
            grown.wait(0.05)

    strike(signal.SIGSTOP)
    if what == "revocation":
        consumer.unsubscribe()
    polls = 0

    def poll() -> None:
        nonlocal polls
        while polls < 15:
            assert consumer.poll(0.1) is None
            polls += 1

    polling = threading.Thread(target=poll, daemon=True)
    polling.start()
    polling.join(60)
    strike(signal.SIGCONT)
    assert polls == 15
    polling.join()
    if what == "revocation":
        consumer.subscribe([topic_name])
    again = await_that(consumer, lambda: committed_by(lone.client_config(), topic_name, [(topic_name, 0)]) == {0: 10})
    assert again == []
    consumer.close()
    assert committed_by(lone.client_config(), topic_name, [(topic_name, 0)]) == {0: 10}


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "in a transaction"])
def test_a_producers_close_ends_in_time(
    lone: KafkaUnderTest, topic_name: str, strike: Callable[[signal.Signals], None], transactional: bool
) -> None:
    """What could not be delivered is told as such; the next producer of the same name goes on."""
    TopicAdmin(lone.client_config()).create(topic_name, 1, config=QUICK)
    config = {**lone.client_config(), "log_level": 0, **({"transactional.id": topic_name} if transactional else {})}
    producer = OrderedProducer(config)
    if transactional:
        producer.init_transactions(120)
        producer.begin_transaction()
    producer.produce(topic_name, b"before", b"k")
    assert producer.flush(120) == 0
    if transactional:
        producer.commit_transaction(120)
        producer.begin_transaction()

    strike(signal.SIGSTOP)
    told: list[tuple[bytes | None, bool]] = []
    producer.produce(topic_name, b"late", b"k", on_delivery=lambda error, m: told.append((m.value(), error is None)))
    delivered: list[bool] = []
    closing = threading.Thread(target=lambda: delivered.append(producer.close(0.5)), daemon=True)
    closing.start()
    closing.join(60)
    strike(signal.SIGCONT)
    assert delivered == [False]
    assert told == [(b"late", False)]

    with OrderedProducer(config) as successor:
        if transactional:
            successor.init_transactions(120)
            successor.begin_transaction()
        successor.produce(topic_name, b"after", b"k")
        if transactional:
            successor.commit_transaction(120)
        else:
            assert successor.flush(120) == 0
    with OrderedConsumer(group_config(lone, topic_name)) as consumer:
        consumer.subscribe([topic_name])
        values = [message.value() for message in read(consumer, 2)]
    # Sent before the broker stood still: it may have arrived after all.
    assert [value for value in values if value != b"late"] == [b"before", b"after"][: 2 - values.count(b"late")]
