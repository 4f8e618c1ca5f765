"""One reader of one partition as a process of its own, as keyorder reads or as a reader that blocks whole shards.

    python -Im keyorder.benchmarks.reader '{"config": ..., "topic": ..., "partition": 0, ...}'

Commands come on standard input, one a line: `go {"limit": offset, "parents": {partition: end}}` after a change,
`stop COUNT` once so many numbered records are due. It answers `ready`, `gone`, `drained`, and a JSON object at the end.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections import deque
from math import inf
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from keyorder import OrderedConsumer
from keyorder.connector import clock
from keyorder.connector.messages import offset_of

OLD = b"old"
_BATCH, _TICK, _PATIENCE = 200, 0.01, 120.0


class Reader:
    """The parent's side. The arguments are those of the child's `spec`."""

    def __init__(self, **spec: Any) -> None:
        words = [sys.executable, "-Im", __name__, json.dumps(spec)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def say(self, command: str) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def await_word(self, word: str) -> None:
        """Return when it says this. Raises RuntimeError when it ended instead."""
        if (line := self.line()) != word:
            raise RuntimeError(f"a reader said {line!r} in place of {word!r}")

    def line(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class _Child:
    """What runs in the process."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._topic, self._partition = spec["topic"], spec["partition"]
        self._place = TopicPartition(self._topic, self._partition)
        self._rate, self._backlog, self._waits = spec["rate"], spec["backlog"], spec["waits"]
        self._block: float | None = spec["block"]
        config = {"group.id": self._topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, **spec["config"]}
        self._consumer: Any = OrderedConsumer(config) if self._block is None else Consumer(config)
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._limit, self._parents, self._look_at = inf, dict[int, int](), 0.0
        self._kept: deque[Message] = deque()
        self._seen: dict[int, float] = {}
        self._old, self._due = 0, 0.0
        self._gone = self._drained = self._shown = False

    def run(self) -> None:
        """Until all that is due was given out."""
        self._consumer.assign([self._place])
        while self._block is None and self._consumer.position([self._place])[0].offset < 0:
            self._consume()
        threading.Thread(target=self._listen, daemon=True).start()
        self._say("ready")
        due: int | None = None
        until = clock.now() + _PATIENCE
        while due is None or len(self._seen) < due:
            if clock.now() > until:
                raise RuntimeError(f"{len(self._seen)} of {due} records after {_PATIENCE:.0f} s")
            due = self._obey(due)
            if self._waits and not self._gone:
                threading.Event().wait(_TICK)  # an application that is behind: the client library fetches meanwhile
            else:
                self._consume()
            if self._gone and self._old >= self._backlog and not self._drained:
                self._drained = True
                self._say("drained")
        self._say(json.dumps(self._seen))
        self._consumer.close()

    def _obey(self, due: int | None) -> int | None:
        try:
            word, _, rest = self._commands.get_nowait().partition(" ")
        except queue.Empty:
            return due
        if word == "stop":
            return int(rest)
        found = json.loads(rest)
        if self._block is not None:
            self._limit = found["limit"]
            self._parents = {int(p): end for p, end in found["parents"].items()}
        self._look_at = self._due = clock.now()
        self._gone = True
        self._say("gone")
        return due

    def _consume(self) -> None:
        """Give out what may be, at the rate of the application."""
        for message in self._consumer.consume(_BATCH, _TICK):
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            self._kept.append(message)
        if self._parents and clock.now() >= self._look_at and self._kept and offset_of(self._kept[0]) >= self._limit:
            self._look()
        while self._kept and offset_of(self._kept[0]) < self._limit:
            self._give(self._kept.popleft())
        if self._partition in self._parents and not self._shown and self._old >= self._backlog:
            self._shown = True  # as a shard's end is written down by whoever reads it
            end = TopicPartition(self._topic, self._partition, self._parents[self._partition])
            self._consumer.commit(offsets=[end], asynchronous=False)

    def _look(self) -> None:
        """Are all parents done with? If not, look again after the interval."""
        places = [TopicPartition(self._topic, partition) for partition in self._parents]
        done = all(p.offset >= self._parents[p.partition] for p in self._consumer.committed(places, 10))
        assert self._block is not None
        if done:
            self._limit, self._parents = inf, {}
        else:
            self._look_at += self._block

    def _give(self, message: Message) -> None:
        value, now = message.value(), clock.now()
        assert value is not None
        if value.startswith(OLD):
            self._old += 1
            self._due = max(self._due, now - _TICK) + 1 / self._rate
            if (left := self._due - now) > 0:
                threading.Event().wait(left)  # the work of the application
        elif (number := int(value)) >= 0:
            self._seen[number] = now

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(line.strip())

    @staticmethod
    def _say(text: str) -> None:
        print(text, flush=True)


if __name__ == "__main__":
    _Child(json.loads(sys.argv[1])).run()
