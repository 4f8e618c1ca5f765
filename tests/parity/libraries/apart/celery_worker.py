"""A worker of Celery: `celery_worker.py BROKER QUEUE KIND FROM TO` sends tasks FROM to TO - 1, and prints those that it ran."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from celery import Celery
from celery.worker import state
from keyorder import OrderedConsumer, OrderedProducer
from kombu.transport import confluentkafka


def main(broker: str, queue: str, kind: str, first: str, beyond: str) -> None:
    """The worker ends when it has run as many as were sent."""
    if kind == "ordered":
        confluentkafka.Consumer, confluentkafka.Producer = OrderedConsumer, OrderedProducer
    app = Celery("app", broker=f"confluentkafka://{broker}/")
    # The transport has no broadcasts, by which workers are told something and hear of each other.
    app.conf.update(task_default_queue=queue, task_ignore_result=True, worker_enable_remote_control=False)
    app.conf.update(task_acks_late=True, worker_hijack_root_logger=False, worker_redirect_stdouts=False)
    ran: list[int] = []
    numbers = range(int(first), int(beyond))

    @app.task
    def note(number: int) -> None:
        ran.append(number)
        if len(ran) == len(numbers):
            state.should_stop = 0  # an exit code: the worker acknowledges this one and ends

    for number in numbers:
        note.delay(number)
    worker = app.Worker(
        pool="solo", without_gossip=True, without_mingle=True, without_heartbeat=True, loglevel="ERROR", quiet=True
    )
    with suppress(SystemExit):  # of a worker that was told to end
        worker.start()
    print(json.dumps(ran))


if __name__ == "__main__":
    main(*sys.argv[1:])
