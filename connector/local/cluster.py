"""A real Kafka on this machine: one or three KRaft brokers, each a JVM process on the loopback interface."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType

from ...partitioner.errors import UsageError
from .broker import START_TIMEOUT, STOP_TIMEOUT, Broker, java_command, server_properties_file
from .errors import AlreadyRunningError, BrokerFailedError, ClusterStateError, WipeFailedError
from .jars import Progress, ensure_jars
from .java import find_java
from .processes import free_ports, is_free, terminate
from .properties import ClusterPlan, Node, check_users, client_config
from .repository import kafka_dir
from .state import ClusterState, broker_folder, load_state, save_state, starting
from .storage import JavaRun, ensure_template, format_folder, new_id
from .versions import DEFAULT_KAFKA_VERSION, load_lock

_PORT_ATTEMPTS = 3
_PORT_TAKEN = "Address already in use"


class LocalCluster:
    """One or three brokers that live no longer than this process, unless `detach` lets them go.

    `data_dir` keeps the data between runs; without it they are in a temporary folder that goes with
    `wipe` or the end of the `with` block. `version` is one of the locked Kafka versions; `properties`
    are set on every broker and win over the defaults here; `node_properties` is called with the plan and a
    node at each start of that broker, and what it returns wins over both. With `users` (name to password) clients
    need SASL/PLAIN and rights: the first user has all, the others none until an ACL grants some.
    `progress` is called with (bytes there, bytes needed) while jars are fetched.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        brokers: int = 1,
        version: str = DEFAULT_KAFKA_VERSION,
        properties: Mapping[str, str] = {},
        heap: str = "384m",
        users: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        port: int | None = None,
        node_properties: Callable[[ClusterPlan, Node], Mapping[str, str]] | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise UsageError(f"a local cluster has 1 or 3 brokers, not {brokers}: two cannot outvote each other")
        check_users(users or {})
        self._lock = load_lock(version)
        self._users, self._properties = dict(users or {}), dict(properties)
        self._count, self._heap, self._progress, self._port = brokers, heap, progress, port
        self._node_properties = node_properties
        self._temporary = data_dir is None
        self.data_dir = data_dir.absolute() if data_dir else Path(tempfile.mkdtemp(prefix="keyorder-kafka-"))
        self.brokers: list[Broker] = []
        self._cluster_id = ""

    @property
    def version(self) -> str:
        """The Kafka version of the brokers."""
        return self._lock.version

    @property
    def plan(self) -> ClusterPlan:
        """Ports, users and properties of a started cluster."""
        if not self.brokers:
            raise UsageError("the cluster was not started")
        return self.brokers[0].plan

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, joined by commas."""
        return self.plan.bootstrap_servers

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """A confluent-kafka configuration for `user`; with users, by default the first, who has all rights."""
        return client_config(self.plan, user)

    def start(self, timeout: float = START_TIMEOUT) -> None:
        """Start every broker and return when each sees all. Nothing stays running if that fails.

        JavaNotFoundError, DownloadError, ChecksumError, ClusterStateError, AlreadyRunningError, DataFolderError or
        BrokerFailedError.
        """
        java = find_java()
        class_path = ensure_jars(self._lock, progress=self._progress)
        run = partial(java_command, java.executable, class_path, self._heap)
        template = ensure_template(self.version, kafka_dir(self.version), run)
        with starting(self.data_dir):
            self._start_formatted(template, run, timeout)

    def _start_formatted(self, template: Path, run: JavaRun, timeout: float) -> None:
        known = self._checked_state()
        self._cluster_id = known.cluster_id if known else new_id()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            nodes = self._nodes(known if attempt == 1 else None)
            plan = ClusterPlan(self.version, nodes, self._users, self._properties, self._node_properties)
            self.brokers = [self._new_broker(plan, node, run) for node in nodes]
            for broker in self.brokers:
                format_folder(broker.log_dir, template, self._cluster_id, broker.id)
            try:
                self._start_all(timeout)
                return
            except BrokerFailedError:
                # Between the choice of a free port and its use, another process may have taken it.
                taken = any(_PORT_TAKEN in broker.log_end(200) for broker in self.brokers)
                if not taken or self._port is not None or attempt == _PORT_ATTEMPTS:
                    raise

    def _new_broker(self, plan: ClusterPlan, node: Node, run: JavaRun) -> Broker:
        folder = broker_folder(self.data_dir, node.id)
        folder.mkdir(exist_ok=True)
        # A new log for each start of the cluster; the restart of one broker goes on in the same.
        (folder / "server.log").write_bytes(b"")
        command = run("kafka.Kafka", str(server_properties_file(folder)))
        return Broker(plan, node, folder, command, self._save)

    def _checked_state(self) -> ClusterState | None:
        known = load_state(self.data_dir)
        if known is None:
            return None
        if known.running():
            raise AlreadyRunningError(f"the cluster in {self.data_dir} is running already")
        if known.version != self.version or len(known.nodes) != self._count:
            raise ClusterStateError(
                f"{self.data_dir} holds a cluster of Kafka {known.version} with {len(known.nodes)} broker(s), "
                f"not of {self.version} with {self._count}: ask for that, or use another folder"
            )
        return known

    def _nodes(self, known: ClusterState | None) -> tuple[Node, ...]:
        """Ports: those that the caller named, else those of the last time, else any that are free."""
        if self._port is not None:
            client = list(range(self._port, self._port + self._count))
            for port in client:
                if not is_free(port):
                    raise ClusterStateError(f"port {port} is in use")
            controller = free_ports(2 * self._count)
            controller = [port for port in controller if port not in client][: self._count]
        elif known and all(is_free(port) for n in known.nodes for port in (n.port, n.controller_port)):
            return known.nodes
        else:
            ports = free_ports(2 * self._count)
            client, controller = ports[: self._count], ports[self._count :]
        return tuple(Node(i + 1, client[i], controller[i]) for i in range(self._count))

    def _start_all(self, timeout: float) -> None:
        try:
            for broker in self.brokers:
                broker.start()
            everyone = {broker.id for broker in self.brokers}
            for broker in self.brokers:
                broker.wait_ready(everyone, timeout)
        except BaseException:
            self._end(grace=0)
            raise

    def _save(self) -> None:
        processes = {broker.id: broker.identity for broker in self.brokers if broker.identity is not None}
        nodes = tuple(broker.node for broker in self.brokers)
        save_state(self.data_dir, ClusterState(self._cluster_id, self.version, nodes, processes))

    def detach(self) -> None:
        """Let the brokers outlive this process; `stop_cluster` ends them."""
        for broker in self.brokers:
            broker.detach()

    def stop(self, grace: float = STOP_TIMEOUT) -> None:
        """End every broker: SIGTERM, and SIGKILL after `grace` seconds. The data stay."""
        self._end(grace)

    def _end(self, grace: float) -> None:
        # All at once: three brokers that wait for each other's farewell would use up three graces.
        terminate([broker.identity for broker in self.brokers if broker.identity is not None], grace)
        for broker in self.brokers:
            broker.stop(0)

    def wipe(self) -> None:
        """End every broker at once and delete the data. WipeFailedError where that cannot be done."""
        self._end(grace=0)
        # A start that failed early has written no state: then this object alone knows what it made.
        if not wipe_folder(self.data_dir) and (self.brokers or self._temporary):
            _delete(self.data_dir, (broker.data_dir for broker in self.brokers))

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Nobody reads the data of a temporary cluster again: no need for an orderly farewell.
        if self._temporary:
            self.wipe()
        else:
            self.stop()


def stop_cluster(data_dir: Path, grace: float = STOP_TIMEOUT) -> list[int]:
    """End the cluster that another process left running in `data_dir`. Returns the ids of brokers that ran."""
    state = load_state(data_dir)
    running = state.running() if state is not None else {}
    terminate(running.values(), grace)
    return sorted(running)


def wipe_folder(folder: Path) -> bool:
    """Delete what a stopped cluster wrote. False where there is no cluster: then nothing in the folder is ours.

    WipeFailedError where something cannot be deleted, ClusterStateError for a state that cannot be read.
    """
    state = load_state(folder)
    if state is None:
        return False
    _delete(folder, (broker_folder(folder, node.id) for node in state.nodes))
    return True


def _delete(folder: Path, broker_folders: Iterable[Path]) -> None:
    # The state goes after the data: while any are left, the folder is a cluster's and can be wiped again.
    for path in (*broker_folders, folder / "cluster.json", folder / ".lock"):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise WipeFailedError(f"{path} cannot be deleted: {error}") from error
    try:
        os.rmdir(folder)
    except OSError:
        pass  # not empty, or gone
