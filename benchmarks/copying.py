"""The stop-the-world alternative: every record copied to a new topic by as many processes as there are cores.

A copier's process:  python -m keyorder.benchmarks.copying '{"config": ..., "source": ..., "ends": {"0": 17}, ...}'
Each has partitions of the source for itself, so a key's records stay in order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

_BATCH = 10_000


def copy(config: Mapping[str, Any], source: str, target: str, ends: Mapping[int, int]) -> None:
    """Copy the source's partitions up to `ends`; returns when all is acknowledged. Raises RuntimeError if a process fails."""
    shares: list[dict[int, int]] = [{} for _ in range(max(1, min(os.cpu_count() or 1, len(ends))))]
    for number, (partition, end) in enumerate(sorted(ends.items())):
        shares[number % len(shares)][partition] = end
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-Im",
                __name__,
                json.dumps({"config": dict(config), "source": source, "target": target, "ends": share}),
            ]
        )
        for share in shares
    ]
    try:
        failed = [process.wait() for process in running if process.wait()]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    if failed:
        raise RuntimeError(f"copying {source} failed: exit codes {failed}")


def _run(config: dict[str, Any], source: str, target: str, ends: dict[int, int]) -> None:
    consumer = Consumer(
        {
            **config,
            "group.id": f"copy-{target}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
        }
    )
    producer = Producer(
        {
            **config,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    consumer.assign([TopicPartition(source, p, 0) for p, end in ends.items() if end > 0])
    left = {p: end for p, end in ends.items() if end > 0}
    while left:
        for message in consumer.consume(_BATCH, 0.2):
            problem = message.error()
            if problem is not None:
                raise RuntimeError(problem.str())
            partition, offset = message.partition(), message.offset()
            if partition is None or offset is None or offset >= ends[partition]:
                continue
            while True:
                try:
                    producer.produce(target, message.value(), message.key(), timestamp=message.timestamp()[1])
                    break
                except BufferError:
                    producer.poll(0.05)
            if offset + 1 == ends[partition]:
                left.pop(partition)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged within two minutes")
    consumer.close()


def main() -> None:
    """The process of one copier."""
    spec = json.loads(sys.argv[1])
    _run(spec["config"], spec["source"], spec["target"], {int(p): end for p, end in spec["ends"].items()})


if __name__ == "__main__":
    main()
