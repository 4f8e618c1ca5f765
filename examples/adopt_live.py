"""Lets a running topic grow that stock producers write, such as confluent-kafka's with CRC-32: adopt, replace them, grow.

    python examples/adopt_live.py localhost:9092 orders 6

Adoption moves nothing and stops nobody: producers and consumers go on, and producers of both kinds may write side by side until
the topic's count changes. Replace the consumers first, then the producers; docs/adopt.md has the details.
"""

from __future__ import annotations

import sys

from keyorder import TopicAdmin
from keyorder.errors import MisplacedKeysError


def main(servers: str, topic: str, partitions: str) -> None:
    """Exit code 3: no hash explains where the topic's keys lie."""
    with TopicAdmin({"bootstrap.servers": servers}) as admin:
        try:
            found = admin.adopt(topic)
        except MisplacedKeysError as error:
            print(f"{error}\nexamples/migrate.py copies such a topic into a managed one.")
            sys.exit(3)
        print(f"{topic} is managed: {found.layout.count} partitions, keys placed by {found.layout.hash}")
        if found.sample is not None:  # it was not managed before
            print(f"What it was judged by: {found.sample}")
        print(
            "Now use OrderedConsumer in every consumer and OrderedProducer in every producer, one process after the other."
        )
        input("Press Enter when no stock producer writes any more. ")
        writers = [writer.writer for writer in admin.describe(topic).writers]
        print(f"OrderedProducers that write now: {', '.join(writers) or 'none'}")
        for warning in admin.plan(topic, int(partitions)).warnings:
            print(f"Note: {warning.text}")
        change = admin.expand(topic, int(partitions))
        print(f"{topic} has {change.after} partitions")


if __name__ == "__main__":
    main(*sys.argv[1:4])
