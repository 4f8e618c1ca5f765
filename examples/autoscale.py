"""A topic that follows its load: a controller grows it while it is busy and shrinks it afterwards.

    python examples/autoscale.py localhost:9092 clicks

This program writes a load that rises and falls, reads it, and says what the topic's count is. It takes about a minute, since its
policy has short windows; examples/autoscale.toml is a policy for a service.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin

# Rates are per partition and second.
POLICY = """
max_records_per_s = 200
min_records_per_s = 50
hot_window_s = 2
cold_window_s = 4
cooldown_after_growth_s = 2
sample_s = 1
max_partitions = 4
step = "double"
"""


@contextmanager
def controller(servers: str, topic: str) -> Iterator[None]:
    """`keyorder controller` with the policy; its events are printed with the program's own lines."""
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.toml"
        policy.write_text(POLICY)
        words = ["controller", "--bootstrap-server", servers, "--topic", topic, "--autoscale", str(policy), "--apply"]
        with subprocess.Popen([sys.executable, "-m", "keyorder", *words]) as process:
            try:
                yield
            finally:
                process.terminate()


class Load:
    """Numbered records of some pages, written and read by one process."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.producer = OrderedProducer({"bootstrap.servers": servers})
        self.consumer = OrderedConsumer(
            {"bootstrap.servers": servers, "group.id": f"{topic}-readers", "auto.offset.reset": "earliest"}
        )
        self.consumer.subscribe([topic])
        self.pages = cycle(f"page {number}" for number in range(100))
        self.sent, self.seen = Counter[str](), Counter[str]()

    def second(self, records: int) -> None:
        """So many records, in about a second."""
        for _ in range(10):
            for _ in range(records // 10):
                page = next(self.pages)
                self.sent[page] += 1
                self.producer.produce(self.topic, key=page, value=str(self.sent[page]))
            self.read(0.1)

    def read(self, seconds: float) -> None:
        """What has come in. Each page's records have to come in the order in which they were sent."""
        for message in self.consumer.consume(10_000, seconds):
            assert message.error() is None, message.error()
            page, number = (message.key() or b"").decode(), int(message.value() or b"")
            if number != self.seen[page] + 1:
                raise RuntimeError(f"{page}: {number} came after {self.seen[page]}")
            self.seen[page] = number


def main(servers: str, topic: str) -> None:
    """The topic is made here, with two partitions."""
    admin = TopicAdmin({"bootstrap.servers": servers})
    admin.create(topic, 2)
    load = Load(servers, topic)
    with admin, load.producer, load.consumer, controller(servers, topic):
        for records, wanted in ((500, 4), (20, 2)):
            print(f"{records} records a second", flush=True)
            while (count := admin.timeline(topic).layout.count) != wanted:
                load.second(records)
            print(f"{topic} has {count} partitions", flush=True)
        load.producer.flush()
        while load.seen != load.sent:
            load.read(1.0)
    print(f"{load.seen.total()} records, each page's in order")


if __name__ == "__main__":
    main(*sys.argv[1:3])
