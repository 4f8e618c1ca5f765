"""What became of records that have no callback of their own: blocks of counters, and a log of failures.

A record carries the address of its block. Counted by the compiled delivery callback or, where C calls cannot be had, by
Python callbacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# As in delivery_kernel, which cannot be imported before its symbol is defined.
RESOLVED, FAILED, ACKNOWLEDGED, LOG, WORDS = 0, 1, 2, 3, 4
FAILURE_WORDS, MOST_FAILURES = 4, 4096
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was not delivered. key_hash: of its key, -1 without one. code: KafkaError's."""

    topic: str
    partition: int
    code: int
    key_hash: int


class Block:
    """The counters of records that one partition got."""

    __slots__ = ("_seen", "_words", "address", "partition", "topic")

    def __init__(self, topic: str, partition: int, words: np.ndarray[Any, Any], log: int) -> None:
        self.topic, self.partition = topic, partition
        self._words = words
        self._words[:] = 0
        self._words[LOG] = log
        self.address = int(words.ctypes.data)
        self._seen = 0

    @property
    def opaque(self) -> int:
        """What a record carries."""
        return self.address + 1

    @property
    def resolved(self) -> int:
        """Records acknowledged or failed so far."""
        return int(self._words[RESOLVED])

    @property
    def acknowledged(self) -> int:
        """The offset behind the last acknowledged record, 0 before the first."""
        return int(self._words[ACKNOWLEDGED])

    def harvest(self) -> int:
        """How many records have been resolved since the last call."""
        resolved = self.resolved
        news, self._seen = resolved - self._seen, resolved
        return news

    def count(self, code: int, offset: int | None) -> None:
        """One record's fate, told by a Python callback."""
        if code:
            self._words[FAILED] += 1
        elif offset is not None and offset >= self._words[ACKNOWLEDGED]:
            self._words[ACKNOWLEDGED] = offset + 1
        self._words[RESOLVED] += 1


class DeliveryCounters:
    """The blocks and the log of one producer. Lives as long as records may carry its addresses."""

    def __init__(self) -> None:
        self._log = np.zeros(1 + FAILURE_WORDS * MOST_FAILURES, np.int64)
        self._chunks: list[np.ndarray[Any, Any]] = []
        self._free: list[np.ndarray[Any, Any]] = []
        self._blocks: dict[int, Block] = {}
        self._read = 0

    def block(self, topic: str, partition: int) -> Block:
        """A new block."""
        if not self._free:
            self._chunks.append(np.zeros((_CHUNK, WORDS), np.int64))
            self._free.extend(self._chunks[-1])
        made = Block(topic, partition, self._free.pop(), int(self._log.ctypes.data))
        self._blocks[made.address] = made
        return made

    def release(self, block: Block) -> None:
        """Use this block's memory again. Only when every record that carries it is resolved, and failures were read."""
        del self._blocks[block.address]
        self._free.append(block._words)

    def count(self, address: int, code: int, offset: int | None, key_hash: int) -> None:
        """One record's fate, told by a Python callback. address: of its block."""
        block = self._blocks[address]
        if code:
            number = int(self._log[0])
            at = 1 + FAILURE_WORDS * (number % MOST_FAILURES)
            self._log[at : at + FAILURE_WORDS] = block.address, code, key_hash, number + 1
            self._log[0] = number + 1
        block.count(code, offset)

    def failures(self) -> tuple[list[Failure], bool]:
        """The failures since the last call, and whether there were more than the log holds (4096)."""
        found: list[Failure] = []
        lost = False
        while self._read < self._log[0]:
            at = 1 + FAILURE_WORDS * (self._read % MOST_FAILURES)
            address, code, key_hash, number = self._log[at : at + FAILURE_WORDS].tolist()
            if number < self._read + 1:
                break  # counted, and about to be written
            if number > self._read + 1:
                lost = True
            else:
                block = self._blocks[address]
                found.append(Failure(block.topic, block.partition, code, key_hash))
            self._read += 1
        return found, lost
