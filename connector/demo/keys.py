"""Which key a writer sends next: some hot keys all the time, and orders that come, live for a few records, and go."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from .settings import HOT_SHARE

_HOT_KEYS = 0.01


def key_stream(seed: int, writer: int, writers: int, keys: int, per_key: float, together: int) -> Iterator[str]:
    """The endless row of keys that writer number `writer` of `writers` sends. Equal arguments give equal rows.

    The writers share no key, so each key's records have one sequence. per_key: how many records a key that is not hot
    gets, on average. together: how many such keys are alive at a time; the smaller, the closer a key's records.
    """
    random = Random(f"{seed}/{writer}")
    deck = [f"order-{number:06d}" for number in range(writer, keys, writers)]
    hot = [f"customer-{writer}-{number:03d}" for number in range(max(1, int(len(deck) * _HOT_KEYS)))]
    random.shuffle(deck)
    coming = _endless(deck)
    alive: list[tuple[str, int]] = []
    while True:
        if random.random() < HOT_SHARE:
            yield random.choice(hot)
            continue
        if len(alive) < together:
            alive.append((next(coming), _lives(per_key, random)))
            place = len(alive) - 1
        else:
            place = random.randrange(together)
        key, lives = alive[place]
        alive[place] = (key, lives - 1) if lives > 1 else (next(coming), _lives(per_key, random))
        yield key


def _endless(deck: list[str]) -> Iterator[str]:
    while True:
        yield from deck


def _lives(mean: float, random: Random) -> int:
    """A whole number of records, at least one, whose average is `mean`."""
    return max(1, int(mean) + (random.random() < mean % 1))
