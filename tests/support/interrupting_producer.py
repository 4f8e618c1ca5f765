"""A program whose signal handler calls a producer in the middle of the producer's own calls.

    python interrupting_producer.py CONFIG TOPIC CALL INTERRUPTED ROUNDS

Prints `done` and the count of handler runs at its end; a watchdog prints every stack and ends it with code 3.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import random
import signal
import sys
from typing import Any

from keyorder import OrderedProducer

SECONDS_TO_HANG = 40


def main() -> None:
    config, topic, call, interrupted, rounds = json.loads(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
    ran = 0
    for number in range(rounds):
        faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)
        producer = OrderedProducer(config)
        producer.produce(topic, b"first", b"k")
        assert producer.flush(120) == 0
        seen: list[Any] = []

        def handler(*_: object, producer: OrderedProducer = producer, seen: list[Any] = seen) -> None:
            if call == "produce":
                with contextlib.suppress(BufferError):
                    producer.produce(topic, b"from the handler", b"k")
            elif call == "poll":
                producer.poll(0.05)
            elif call == "flush":
                producer.flush(0.5)
            else:
                producer.close()
            seen.append(call)

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.05))
        try:
            while not seen:
                try:
                    # No key: every record of these goes under the lock.
                    producer.produce(topic, b"v" * 10)
                except BufferError:
                    producer.poll(0.01)
                if interrupted == "poll":
                    producer.poll(0.01)
                elif interrupted == "flush":
                    producer.flush(0.01)
            if call == "close":
                producer.produce(topic, b"v")  # it is closed by now, if not before
                raise AssertionError("the producer is open")
        except RuntimeError as error:
            if "closed" not in str(error):
                raise
        assert len(seen) == 1, number
        ran += 1
        producer.close()
    faulthandler.cancel_dump_traceback_later()
    print(f"done {ran}")


if __name__ == "__main__":
    main()
