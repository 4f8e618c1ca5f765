"""What one broker behind a proxy shows: a coordinator that moves, records that are in flight for as long as it is wanted."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Message, libversion
from faults.cluster import PATIENCE, FaultyCluster
from faults.proxy import Effect, Rule, Way
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.partitioner.layout import Layout
from support.groups import QUICK, group_config, read
from support.holding import prepared, until

pytestmark = [pytest.mark.kafka, pytest.mark.process_supplier("a broker behind a proxy")]

# The newest client library of which it is known that it crashes.
CRASHES = 0x021000FF
ADMIN = """
import sys
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

admin = AdminClient({"bootstrap.servers": sys.argv[1]})
print(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(sys.argv[2])])[sys.argv[2]].result(120))
"""
COMMAND = "from keyorder.connector.cli.main import main; main()"
METER = """
import sys
from keyorder.connector.topology.load import LoadMeter

meter = LoadMeter({"bootstrap.servers": sys.argv[1]})
meter.measure("orders", 2, 2, 0.0, [sys.argv[2]])
lag = meter.measure("orders", 2, 2, 0.0, [sys.argv[2]]).groups[sys.argv[2]]
meter.close()
print(lag.records)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[FaultyCluster]:
    with FaultyCluster(brokers=1) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def group(broker: FaultyCluster) -> str:
    """A group with commits on the topic `orders`, which has grown since."""
    config = broker.client_config()
    admin = TopicAdmin(config)
    admin.create("orders", 1, config=QUICK)
    with OrderedProducer(config) as producer:
        for number in range(20):
            producer.produce("orders", b"v", f"k{number}")
    with OrderedConsumer(group_config(broker, "readers")) as consumer:
        consumer.subscribe(["orders"])
        consumer.commit(message=read(consumer, 5)[-1], asynchronous=False)
    admin.expand("orders", 2)
    return "readers"


@contextmanager
def moving(broker: FaultyCluster, times: int) -> Iterator[Rule]:
    """The broker says so often that the group is another one's."""
    rule = Rule(Effect.DISOWN, Way.ANSWER, frozenset({"OffsetFetch"}), limit=times)
    broker.network.apply([rule])
    yield rule
    broker.network.lift([rule])


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own; one that crashes leaves no core."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )  # fmt: skip


def test_an_admin_client_of_the_library_crashes(broker: FaultyCluster, group: str) -> None:
    """Why it is not asked. With a library in which it answers `connector/group_commits.py` can become simpler."""
    with moving(broker, 1) as rule:
        ended = run(ADMIN, broker.bootstrap_servers, group)

    assert len(rule.hits) == 1
    if libversion()[1] <= CRASHES:
        assert ended.returncode == -signal.SIGSEGV, ended


@pytest.mark.parametrize("command", ["groups list", "gates list", "topics describe --topic orders"])
def test_a_command_answers_all_the_same(broker: FaultyCluster, group: str, command: str) -> None:
    """It asks again until the coordinator is found."""
    with moving(broker, 2) as rule:
        ended = run(COMMAND, *command.split(), "--bootstrap-server", broker.bootstrap_servers, "--output", "json")

    assert len(rule.hits) == 2
    assert ended.returncode == 0, ended
    assert group in ended.stdout, ended


def test_a_load_is_measured_all_the_same(broker: FaultyCluster, group: str) -> None:
    """By the running controller, which a crash would take away from all topics."""
    with moving(broker, 2) as rule:
        ended = run(METER, broker.bootstrap_servers, group)

    assert len(rule.hits) == 2
    assert (ended.returncode, ended.stdout.strip()) == (0, "15"), ended


def test_a_purge_leaves_what_is_in_flight_while_the_topic_is_changed(broker: FaultyCluster) -> None:
    """It may still arrive: told as purged, the change would have to wait until that is out of the question."""
    admin = TopicAdmin(broker.client_config())
    admin.create("purged", 1, config=QUICK)
    reports: list[tuple[bytes | None, KafkaError | None]] = []

    def told(error: KafkaError | None, message: Message) -> None:
        reports.append((message.value(), error))

    def await_that(condition: Callable[[], bool]) -> None:
        deadline = clock.now() + PATIENCE
        while not condition():
            assert clock.now() < deadline, (reports, producer.figures())
            producer.poll(0.05)

    moved = next(k for k in map(str, range(100)) if Layout(1, 2).home(k) == 1)
    with OrderedProducer({**broker.client_config(), "client.id": "purging"}) as producer:
        producer.produce("purged", b"first", moved, on_delivery=told)
        assert producer.flush(PATIENCE) == 0
        held = Rule(Effect.HOLD, Way.REQUEST, frozenset({"Produce"}), "purging", limit=1)
        broker.network.apply([held])
        try:
            producer.produce("purged", b"in flight", moved, on_delivery=told)
            await_that(lambda: bool(held.hits))
            with ThreadPoolExecutor(1) as pool:
                change = pool.submit(admin.expand, "purged", 2, timeout=PATIENCE)
                await_that(lambda: producer.figures().changing["purged"])
                producer.produce("purged", b"held", moved, on_delivery=told)
                producer.purge()
                await_that(lambda: len(reports) >= 2)
                broker.network.lift([held])
                assert change.result(PATIENCE).after == 2
        finally:
            broker.network.lift([held])
        producer.produce("purged", b"last", moved, on_delivery=told)
        assert producer.flush(PATIENCE) == 0

    purged = {value: None if error is None else error.code() for value, error in reports}
    assert purged == {b"first": None, b"in flight": None, b"held": KafkaError._PURGE_QUEUE, b"last": None}


def test_a_start_that_cannot_be_found_for_long_is_tried_on(broker: FaultyCluster) -> None:
    """As by a stock consumer nothing is told of it, and when the broker answers the records come, from the first one on."""
    TopicAdmin(broker.client_config()).create("waiting", 1, config=QUICK)
    with OrderedProducer(broker.client_config()) as producer:
        for number in range(10):
            producer.produce("waiting", str(number), "k")
    rule = Rule(Effect.DISOWN, Way.ANSWER, frozenset({"OffsetFetch"}), "reading")
    broker.network.apply([rule])
    config = group_config(broker, "waiters", client_id="reading", keyorder_control_timeout_ms=1000)
    try:
        with OrderedConsumer(config) as consumer:
            consumer.subscribe(["waiting"])
            deadline, first = clock.now() + PATIENCE, None
            # Longer than the time for which it counts as passing: one question takes ten seconds.
            while first is None or clock.now() < first + 2:
                assert clock.now() < deadline
                assert consumer.poll(0.1) is None
                if rule.hits and first is None:
                    first = rule.hits[0]
            broker.network.lift([rule])
            assert [message.value() for message in read(consumer, 10)] == [b"%d" % number for number in range(10)]
    finally:
        broker.network.lift([rule])


def test_a_change_that_is_prepared_opens_the_client_that_its_gates_ask_through(broker: FaultyCluster) -> None:
    """A gate's first question does not wait for a new client, its connection and the group's coordinator."""
    TopicAdmin(broker.client_config()).create("expected", 1, config=QUICK)
    with OrderedProducer(broker.client_config()) as producer:
        producer.produce("expected", b"v", "k")
    asked = Rule(Effect.DELAY, Way.REQUEST, frozenset({"OffsetFetch"}), "expecting")  # by nothing: they are counted
    with OrderedConsumer(group_config(broker, "expecting", client_id="expecting")) as consumer:
        consumer.subscribe(["expected"])
        read(consumer, 1)
        broker.network.apply([asked])
        try:
            with prepared(broker, "expected", 2):
                until(lambda: consumer.poll(0.05) is None and bool(asked.hits))
        finally:
            broker.network.lift([asked])
