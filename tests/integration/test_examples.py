"""The small programs in examples/, as they stand, while their topic grows."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keyorder
import pytest
import sqlalchemy as sa
from keyorder import GroupAdmin, OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.groups.resetting import Point, Target
from support.cluster import KafkaUnderTest
from support.connect_rig import until
from support.postgres import Postgres

EXAMPLES = Path(keyorder.__path__[0]) / "examples"
KEYS, ROUNDS = 10, 4


def written(kafka: KafkaUnderTest, topic: str, rounds: range) -> None:
    """A record of each key in each round."""
    with OrderedProducer(kafka.client_config()) as producer:
        for n in rounds:
            for key in range(KEYS):
                producer.produce(topic, str(n), f"customer {key}")
        assert producer.flush(300) == 0


def started(name: str, *words: str) -> subprocess.Popen[str]:
    """The program, its output to be read."""
    return subprocess.Popen([sys.executable, str(EXAMPLES / name), *words], stdout=subprocess.PIPE, text=True)


@contextmanager
def running(name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The program until the end of the block, where SIGTERM ends it as it should."""
    with started(name, *words) as process:
        try:
            yield process
            process.terminate()
            assert process.wait(300) == 0
        finally:
            process.kill()


def test_the_transform_writes_each_record_once_and_in_order(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Its source grows in between; SIGTERM ends it."""
    target, admin = f"{topic_name}-out", TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2)
    admin.create(target, 2)
    written(kafka, topic_name, range(2))
    config = {**kafka.client_config(), "group.id": f"{topic_name}-judge", "auto.offset.reset": "earliest"}
    seen: dict[bytes, list[bytes]] = {}
    with started("transform.py", kafka.bootstrap_servers, topic_name, target) as process:
        try:
            admin.expand(topic_name, 3)
            written(kafka, topic_name, range(2, ROUNDS))
            with OrderedConsumer({**config, "isolation.level": "read_committed"}) as judge:
                judge.subscribe([target])
                while sum(map(len, seen.values())) < KEYS * ROUNDS:
                    assert process.poll() is None
                    for message in judge.consume(100, 1.0):
                        assert message.error() is None
                        seen.setdefault(message.key(), []).append(message.value())  # type: ignore[arg-type]
            process.terminate()
            assert process.wait(300) == 0
        finally:
            process.kill()
    assert len(seen) == KEYS
    assert all(values == [b"%d EUR" % n for n in range(ROUNDS)] for values in seen.values())


@pytest.mark.parametrize("program", ["service.py", "asyncio_service.py"])
def test_the_service_handles_each_key_in_order(kafka: KafkaUnderTest, topic_name: str, program: str) -> None:
    """It shows its metrics meanwhile, and commits what it has handled."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2)
    written(kafka, topic_name, range(2))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    handled: dict[str, list[int]] = {}
    with started(program, kafka.bootstrap_servers, topic_name, f"{topic_name}-g", str(port)) as process:
        try:
            admin.expand(topic_name, 3)
            written(kafka, topic_name, range(2, ROUNDS))
            assert process.stdout is not None
            while sum(map(len, handled.values())) < KEYS * ROUNDS:
                line = process.stdout.readline()
                assert line
                if found := re.search(r" service (customer \d+): (\d+)$", line.rstrip()):
                    handled.setdefault(found[1], []).append(int(found[2]))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
                assert b"keyorder_consumer_epoch" in answer.read()
            process.terminate()
            assert process.wait(300) == 0
        finally:
            process.kill()
    assert handled == {f"customer {key}": list(range(ROUNDS)) for key in range(KEYS)}
    (group,) = admin.describe(topic_name).groups
    assert sum(group.committed.values()) >= KEYS * ROUNDS


def test_a_topic_follows_its_load(kafka: KafkaUnderTest, topic_name: str) -> None:
    """The controller grows it and shrinks it back; the program ends by itself when all was read in order."""
    with started("autoscale.py", kafka.bootstrap_servers, topic_name) as process:
        try:
            told, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0
    counts = re.findall(rf"^{re.escape(topic_name)} has (\d+) partitions$", told, re.MULTILINE)
    assert counts == ["4", "2"]
    assert re.search(r"^\d+ records, each page's in order$", told, re.MULTILINE)


# Each change of a row, in the order in which the database made them.
AUDIT = """
CREATE TABLE customers (customer text PRIMARY KEY, value text NOT NULL);
CREATE TABLE audit (number serial, customer text, value text);
CREATE FUNCTION audited() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (customer, value) VALUES (coalesce(new.customer, old.customer), new.value);
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT OR UPDATE OR DELETE ON customers FOR EACH ROW EXECUTE FUNCTION audited();
"""


def test_the_sink_writes_each_record_once_and_in_order(
    kafka: KafkaUnderTest, topic_name: str, postgres: Postgres
) -> None:
    """Its topic grows, and then the group begins anew: what the database has already is skipped."""
    admin, group = TopicAdmin(kafka.client_config()), f"{topic_name}-to-postgresql"
    admin.create(topic_name, 2)
    with postgres.engine.begin() as connection:
        connection.execute(sa.text(AUDIT))
    address = f"host={sa.make_url(postgres.url).query['host']} user=postgres dbname=postgres"
    words = ("to_postgresql.py", kafka.bootstrap_servers, topic_name, address)

    def changes() -> int:
        return len(postgres.rows("SELECT number FROM audit"))

    written(kafka, topic_name, range(2))
    with running(*words) as process:
        until(lambda: process.poll() is not None or changes() == KEYS * 2, lambda: f"{changes()} changes")
        admin.expand(topic_name, 3)
        written(kafka, topic_name, range(2, 3))
        until(lambda: process.poll() is not None or changes() == KEYS * 3, lambda: f"{changes()} changes")
    GroupAdmin(kafka.client_config()).reset(topic_name, group, Target(Point.EARLIEST), execute=True)
    written(kafka, topic_name, range(3, ROUNDS))
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, None, "customer 0")
    with running(*words) as process:
        until(lambda: process.poll() is not None or changes() > KEYS * ROUNDS, lambda: f"{changes()} changes")
    made: dict[str, list[str | None]] = {}
    for customer, value in postgres.rows("SELECT customer, value FROM audit ORDER BY number"):
        made.setdefault(str(customer), []).append(None if value is None else str(value))
    values = [str(n) for n in range(ROUNDS)]
    expected = {f"customer {key}": [*values, None] if key == 0 else values for key in range(KEYS)}
    assert made == expected
    assert sorted(postgres.rows("SELECT * FROM customers")) == [(f"customer {k}", values[-1]) for k in range(1, KEYS)]
