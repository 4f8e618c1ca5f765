"""Named findings, and the collector that the checks report to.

Ids that make a history invalid are R1..R12, A1..A10, A1', A4w and A13. Three are counted beside the
verdict and do not decide it:

- `R6'`: a value that stands twice, and that was on its way while its writer's client library began a new
  producer epoch. librdkafka then writes again what was not acknowledged yet (its issue 4953), and no broker
  can know it; nothing around the library can keep it from that.
- `A7z`: an overlap whose first owner was a zombie: it had lost the partition (revoke, lost, session
  expiry) and was still inside the application. No client can take a record back from a running
  application; its effect shows as A4, A10 or A13 where it does harm.
- `A9'`: a commit by a member that another had replaced was accepted. A recorder sees the broker's answer
  later than the broker gave it, so a commit acknowledged just before the hand-over looks the same.

Liveness, control-plane and compaction checks (A11, A12, C1..C6, K1) may add their ids to the same
collector: every id that is not in `OBSERVED` invalidates.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

OBSERVED = frozenset({"A7z", "A9'", "R6'"})
KEPT_PER_ID = 1_000


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding; `group` is "" for findings in the log, `partition` and `offset` -1 where unknown."""

    id: str
    key: str
    partition: int
    offset: int
    detail: str
    group: str = ""


class Findings:
    """Counts every finding, and keeps the first thousand of each id with their details."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.kept: list[Anomaly] = []

    def add(self, id: str, key: str, partition: int, offset: int, detail: str, group: str = "") -> None:
        """Reports one anomaly."""
        self.counts[id] += 1
        if self.counts[id] <= KEPT_PER_ID:
            self.kept.append(Anomaly(id, key, partition, offset, detail, group))
