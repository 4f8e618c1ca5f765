"""The live count of order: reads what the consumers record while they do it. For the eye; the checker judges."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .late import LateCounter

_DELIVER_START = '"ds"'


class OrderWatch:
    """Follows the recorders' files of one group."""

    def __init__(self) -> None:
        self.late = LateCounter()
        self.deliveries = 0
        self._read: dict[Path, int] = {}
        self._waiting: list[tuple[int, str, int]] = []

    def look(self, files: Iterable[Path], until: int) -> None:
        """Count what was recorded before `until` (nanoseconds of the recorder's clock).

        Later events wait for the next look: another member's file may not have been read that far.
        """
        for file in files:
            self._waiting.extend(parse_deliveries(self._new_lines(file)))
        self._waiting.sort()
        ripe = 0
        for t, key, sequence in self._waiting:
            if t >= until:
                break
            self.late.see(key, sequence)
            ripe += 1
        self.deliveries += ripe
        del self._waiting[:ripe]

    def _new_lines(self, path: Path) -> list[str]:
        try:
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data.rfind(b"\n") + 1
        self._read[path] = self._read.get(path, 0) + whole
        return data[:whole].decode("utf-8", "replace").splitlines()


def parse_deliveries(lines: Iterable[str]) -> list[tuple[int, str, int]]:
    """(time, key, sequence) of each line that tells of the start of a delivery of ours."""
    found = []
    for line in lines:
        if _DELIVER_START not in line:
            continue
        try:
            event: Any = json.loads(line)
        except ValueError:
            continue  # the torn last line of a killed process
        if len(event) == 8 and event[1] == "ds":
            found.append((event[0], event[6], event[7]))
    return found
