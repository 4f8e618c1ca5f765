"""What a cluster's data folder says about it: `cluster.json`, for the next process that comes along."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .errors import ClusterStateError, DataFolderError
from .processes import ProcessId
from .properties import ClusterPlan, Node

_FILE = "cluster.json"
_LOCK = ".lock"


@dataclass(frozen=True)
class ClusterState:
    """Identity, places and last known processes of a cluster."""

    cluster_id: str
    version: str
    nodes: tuple[Node, ...]
    processes: dict[int, ProcessId] = field(default_factory=dict)
    """The process of each broker that was started and not yet stopped, by node id."""

    @property
    def plan(self) -> ClusterPlan:
        """The plan as far as the file knows it: users and properties are not kept here."""
        return ClusterPlan(self.version, self.nodes)

    def running(self) -> dict[int, ProcessId]:
        """The brokers whose very processes run now, by node id."""
        return {node: process for node, process in self.processes.items() if process.find() is not None}


@contextmanager
def starting(data_dir: Path) -> Iterator[None]:
    """Held while a cluster starts, so that two starts at once do not both find nothing running.

    The kernel lets go of it when the process ends, however it ends. Raises DataFolderError.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        opened = (data_dir / _LOCK).open("ab")
    except OSError as problem:
        raise DataFolderError(data_dir, problem) from problem
    with opened as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def broker_folder(data_dir: Path, node_id: int) -> Path:
    """The folder of one broker."""
    return data_dir / f"broker-{node_id}"


def load_state(data_dir: Path) -> ClusterState | None:
    """The state of the cluster in `data_dir`, None where there is no cluster.

    ClusterStateError for a file that is not ours or not whole, DataFolderError for one that cannot be read.
    """
    path = data_dir / _FILE
    try:
        document = json.loads(path.read_text("utf-8"))
        return ClusterState(
            cluster_id=str(document["cluster_id"]),
            version=str(document["version"]),
            nodes=tuple(Node(int(n["id"]), int(n["port"]), int(n["controller_port"])) for n in document["nodes"]),
            processes={
                int(node): ProcessId(int(p["pid"]), float(p["created"])) for node, p in document["processes"].items()
            },
        )
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise DataFolderError(data_dir, problem) from problem
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as problem:
        raise ClusterStateError(f"{path} does not describe a local cluster: {problem!r}") from problem


def save_state(data_dir: Path, state: ClusterState) -> None:
    """Replace the state at once: a reader sees the old or the new, never a part."""
    handle, temporary = tempfile.mkstemp(prefix=f".{_FILE}.", dir=data_dir)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(state), file, indent=1)
    os.replace(temporary, data_dir / _FILE)
