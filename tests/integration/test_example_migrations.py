"""examples/adopt_live.py and examples/migrate.py, as they stand, while stock producers write: each key stays in order."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keyorder
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not re-exported
from keyorder import OrderedConsumer
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.metadata import wait_for_partitions
from support.cluster import KafkaUnderTest
from support.connect_rig import await_leader, group_settings, until
from support.replaced_writer import ReplacedWriter

EXAMPLES = Path(keyorder.__path__[0]) / "examples"
PARTITIONS = 3


def made(kafka: KafkaUnderTest, topic: str) -> None:
    """A topic that keyorder does not know."""
    admin = kafka.admin()
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(120)
    wait_for_partitions(admin, topic, PARTITIONS, kafka.bootstrap_servers, 120.0)


@contextmanager
def started(name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The program, that reads what it is told and whose output is read."""
    command = [sys.executable, str(EXAMPLES / name), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str], expected: str) -> list[str]:
    """Its lines up to the one with these words."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if expected in line:
            return lines
    raise AssertionError(f"it ended without {expected!r}: {lines}")


def enter(process: subprocess.Popen[str]) -> None:
    """Press Enter."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def read(kafka: KafkaUnderTest, topic: str, count: int) -> dict[str, list[int]]:
    """That many records, by key."""
    got: dict[str, list[int]] = defaultdict(list)
    config = {**kafka.client_config(), "group.id": f"{topic}-judge", "auto.offset.reset": "earliest"}
    with OrderedConsumer({**config, "isolation.level": "read_committed"}) as reader:
        reader.subscribe([topic])
        while sum(map(len, got.values())) < count:
            for message in reader.consume(500, 1.0):
                assert message.error() is None
                got[(message.key() or b"").decode()].append(int(message.value() or b""))
    return got


def test_a_live_topic_of_crc32_is_adopted_and_grows(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Stock producers write during the adoption; their successors during the growth."""
    made(kafka, topic_name)
    with ReplacedWriter(kafka.client_config(), topic_name) as writer:
        until(lambda: writer.count() > 50, "the stock producer writes")
        with started("adopt_live.py", kafka.bootstrap_servers, topic_name, "5") as process:
            assert "keys placed by crc32" in "".join(says(process, "is managed"))
            says(process, "Now use OrderedConsumer")
            before = writer.count()
            until(lambda: writer.count() > before + 50, "the stock producer writes on")
            writer.hold()
            writer.go_on(topic_name)
            assert process.poll() is None
            enter(process)
            says(process, f"{topic_name} has 5 partitions")
            assert process.wait(300) == 0
        before = writer.count()
        until(lambda: writer.count() > before + 50, "its successor writes behind the growth")
        writer.finish()
    assert read(kafka, topic_name, writer.count()) == writer.sent


def test_a_topic_that_no_hash_explains_is_migrated(kafka: KafkaUnderTest, topic_name: str) -> None:
    """It is not adopted; its copy has every record once and in order, and the new writers' behind them."""
    made(kafka, topic_name)
    target = f"{topic_name}-v2"
    settings = group_settings(kafka, f"{topic_name}-workers") | {"exactly.once.source.support": "enabled"}
    with (
        ReplacedWriter(kafka.client_config(), topic_name, PARTITIONS) as writer,
        WorkerProcess(settings, in_group=True) as worker,
    ):
        until(lambda: writer.count() > 50, "the stock producer writes")
        with started("adopt_live.py", kafka.bootstrap_servers, topic_name, "5") as process:
            assert f"topic {topic_name!r} was not adopted" in says(process, "was not adopted")[0]
            assert process.wait(300) == 3
        await_leader(worker.url)
        with started("migrate.py", kafka.bootstrap_servers, topic_name, target, "4", worker.url) as process:
            says(process, f"is being copied to {target}")
            writer.hold()
            enter(process)
            says(process, "Go on with OrderedProducers")
            assert process.wait(300) == 0
        writer.go_on(target)
        before = writer.count()
        until(lambda: writer.count() > before + 50, "its successor writes the copy")
        writer.finish()
    assert read(kafka, target, writer.count()) == writer.sent
