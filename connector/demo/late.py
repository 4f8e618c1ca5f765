"""Counting records that came late: delivered for the first time after a later record of the same key."""

from __future__ import annotations

from collections.abc import Hashable


class LateCounter:
    """Sees a group's deliveries in order of time. Sequences count from 1 for each key.

    records: how many came late. keys: the keys of these.
    """

    def __init__(self) -> None:
        self.records = 0
        self.keys: set[Hashable] = set()
        self._highest: dict[Hashable, int] = {}
        self._passed: dict[Hashable, set[int]] = {}

    def see(self, key: Hashable, sequence: int) -> bool:
        """Whether this delivery is late. A second delivery of a record never is."""
        highest = self._highest.get(key, 0)
        if sequence > highest:
            if sequence > highest + 1:
                self._passed.setdefault(key, set()).update(range(highest + 1, sequence))
            self._highest[key] = sequence
            return False
        passed = self._passed.get(key)
        if passed is None or sequence not in passed:
            return False
        passed.discard(sequence)
        self.records += 1
        self.keys.add(key)
        return True
