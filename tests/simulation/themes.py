"""What a history is about. Faults of all kinds strike in each; a theme makes some situations frequent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """Probabilities are per simulated second, or per change, or per run of records.

    records: how many are written, from and to. quiet: that nobody writes for a while. doubling: that a change doubles the
    count. late: that a group begins when much has changed already. newcomer: a writer joins while a change is prepared.
    lease_cut_off: a writer's leases do not reach the broker for a while. leader_away: of a partition. member_killed, rebalance:
    in each group. controller_killed: at each action. gate_keys: groups where keys wait alone.
    """

    records: tuple[int, int] = (70, 120)
    quiet: float = 0.04
    doubling: float = 0.1
    late: float = 0.3
    newcomer: float = 0.15
    lease_cut_off: float = 0.004
    leader_away: float = 0.05
    member_killed: float = 0.02
    rebalance: float = 0.03
    controller_killed: float = 0.02
    gate_keys: float = 0.4


MIXED = Theme()
#: Growths upon growths with hardly a record between them, read from behind: the chain of gates.
SPARSE = Theme(records=(15, 40), quiet=0.5, doubling=0.8, late=0.9, controller_killed=0.004)
#: Writers that come in the middle of a change.
JOINS = Theme(records=(60, 100), newcomer=0.8, controller_killed=0.004)
#: Groups that are far behind, and whose members come and go.
BEHIND = Theme(records=(50, 90), late=0.9, member_killed=0.06, rebalance=0.12, gate_keys=0.6)
#: Writers that cannot renew their leases, and records that take long to arrive.
LEASES = Theme(records=(80, 140), lease_cut_off=0.05, leader_away=0.15, controller_killed=0.004)

THEMES = (MIXED, SPARSE, JOINS, BEHIND, LEASES)
