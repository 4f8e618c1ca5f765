"""A process that drops consumers whose first assignment waits to be served, when there is no coordinator any more.

Arguments: the connection as JSON, the topic, more settings as JSON. It says "waiting" and goes on after a line on its input.
A library call that hangs holds the interpreter's lock, so no thread of this process could end it: faulthandler's can.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import sys
import time
from itertools import count

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from keyorder import OrderedConsumer

CONSUMERS = 20
_PATIENCE = 60  # seconds for one consumer to end


def assigned(admin: AdminClient, groups: list[str]) -> bool:
    """Whether the only member of each group has partitions."""
    described = [future.result(60) for future in admin.describe_consumer_groups(groups).values()]
    return all(
        len(group.members) == 1 and group.members[0].assignment and group.members[0].assignment.topic_partitions
        for group in described
    )


def gone(admin: AdminClient) -> bool:
    """Whether no broker answers."""
    try:
        admin.list_topics(timeout=0.5)
    except KafkaException:
        return True
    return False


def main() -> None:
    """Drop them one after the other, and say how many there were."""
    connection, topic, settings = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    admin = AdminClient(connection)
    groups = [f"{topic}-{number}" for number in range(CONSUMERS)]
    consumers = []
    for group in groups:
        consumers.append(OrderedConsumer({**connection, "group.id": group, "log_level": 0, **settings}))
        consumers[-1].subscribe([topic])
    faulthandler.dump_traceback_later(2 * _PATIENCE, exit=True)
    while not assigned(admin, groups):
        time.sleep(0.1)
    print("waiting", flush=True)
    faulthandler.dump_traceback_later(2 * _PATIENCE, exit=True)
    sys.stdin.readline()
    while not gone(admin):
        pass
    for dropped in count(1):
        faulthandler.dump_traceback_later(_PATIENCE, exit=True)
        consumers.pop()
        gc.collect()
        if not consumers:
            print(f"dropped {dropped}", flush=True)
            break
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
