"""What one worker has in its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .membership import Membership
from .state import ClusterState
from .stores import Log, Statuses


@dataclass(frozen=True)
class WorkerPlace:
    """Name, REST address, settings as given and as parsed, what was agreed, and the logs in which it stands.

    configs, statuses: made with `state.apply` and `known.apply` as their folds.
    """

    worker_id: str
    url: str
    settings: Mapping[str, str]
    parsed: Mapping[str, Any]
    state: ClusterState
    configs: Log
    known: Statuses
    statuses: Log
    membership: Membership
