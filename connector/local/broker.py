"""One broker: a JVM process with its folder, its log and its readiness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import psutil

from . import guardian
from .errors import BrokerFailedError
from .processes import ProcessId, is_free, terminate
from .properties import HOST, ClusterPlan, Node, client_config, server_properties, to_properties

START_TIMEOUT = 90.0
STOP_TIMEOUT = 10.0

# Start-up counts here, not peak speed: the first compiler only, the simplest collector.
_JVM_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)
_LOG_FLAGS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    # Some thousand lines that repeat server.properties.
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)


def java_command(java: Path, class_path: Sequence[Path], heap: str, main: str, *arguments: str) -> list[str]:
    """The command line of one of Kafka's main classes."""
    jars = os.pathsep.join(str(path) for path in class_path)
    return [str(java), f"-Xmx{heap}", *_JVM_FLAGS, *_LOG_FLAGS, "-cp", jars, main, *arguments]


def server_properties_file(folder: Path) -> Path:
    """Where a broker's configuration is written before each start."""
    return folder / "server.properties"


class Broker:
    """A broker of a LocalCluster. `kill` and `start` may be called in turns, the data stay."""

    def __init__(
        self, plan: ClusterPlan, node: Node, folder: Path, command: Sequence[str], on_start: Callable[[], None]
    ) -> None:
        self.plan, self.node, self.data_dir = plan, node, folder
        self.log_file = folder / "server.log"
        self._command, self._on_start = list(command), on_start
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: ProcessId | None = None
        self._owner_pipe: int | None = None

    @property
    def id(self) -> int:
        """The broker's node id, from 1."""
        return self.node.id

    @property
    def port(self) -> int:
        """The port of clients on the loopback interface."""
        return self.node.port

    @property
    def pid(self) -> int | None:
        """The process id while the broker runs, else None."""
        return self._identity.pid if self._identity is not None and self.running else None

    @property
    def identity(self) -> ProcessId | None:
        """The process that was last started, running or not."""
        return self._identity

    @property
    def log_dir(self) -> Path:
        """The folder of the partitions' logs."""
        return self.data_dir / "logs"

    @property
    def running(self) -> bool:
        """Whether the process is there. Says nothing about readiness."""
        if self._process is not None:
            return self._process.poll() is None
        return self._identity is not None and self._identity.find() is not None

    def start(self) -> None:
        """Start the process and return at once; see `wait_ready`. Nothing happens if it runs."""
        if self.running:
            return
        self.release()
        settings = server_properties(self.plan, self.node, self.log_dir)
        target = server_properties_file(self.data_dir)
        # Passwords are among the settings: for the owner's eyes only.
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(to_properties(settings))
        owner_read, self._owner_pipe = os.pipe()
        try:
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", guardian.__file__, str(owner_read), *self._command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(owner_read,),
                    cwd=self.data_dir,
                    # Ctrl-C in a terminal is for the program that owns the brokers, which stops them in order.
                    start_new_session=True,
                )
        finally:
            os.close(owner_read)
        self._identity = ProcessId.of(self._process.pid)
        self._on_start()

    def wait_ready(self, expected: Collection[int] | None = None, timeout: float = START_TIMEOUT) -> None:
        """Return when the broker answers and sees itself, or all of `expected`, in the cluster.

        BrokerFailedError if it exits before, or is not there after `timeout` seconds.
        """
        # Not at the top: a client library need not be loaded for `status` and `down`.
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        wanted = set(expected or {self.id})
        deadline = time.monotonic() + timeout
        while is_free(self.port):
            self._check_progress(deadline)
            time.sleep(0.05)
        config: dict[str, str | int | float | bool] = {**client_config(self.plan)}
        config |= {"bootstrap.servers": f"{HOST}:{self.port}", "log_level": 0}
        config |= {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "client.id": "keyorder-local"}
        admin = AdminClient(config)
        while True:
            self._check_progress(deadline)
            try:
                # Not the whole wait at once: the process may die meanwhile.
                if wanted <= set(admin.list_topics(timeout=1.0).brokers):
                    return
            except KafkaException:
                continue  # not listening or not authenticating yet; the loop watches process and clock
            time.sleep(0.05)

    def _check_progress(self, deadline: float) -> None:
        if not self.running:
            raise BrokerFailedError(f"broker {self.id} exited{self._exit_code()}.\n{self.log_end()}")
        if time.monotonic() > deadline:
            raise BrokerFailedError(f"broker {self.id} did not become ready in time.\n{self.log_end()}")

    def _exit_code(self) -> str:
        return f" with code {self._process.returncode}" if self._process is not None else ""

    def log_end(self, lines: int = 25) -> str:
        """The last lines of the broker's log, with the log's place."""
        try:
            with self.log_file.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - (64 << 10)))
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            text = ""
        return f"The end of {self.log_file}:\n" + "\n".join(text.splitlines()[-lines:])

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Send a signal. After SIGKILL the process has gone when this returns."""
        process = self._identity.find() if self._identity is not None else None
        if process is None:
            return
        try:
            process.send_signal(sig)
        except psutil.NoSuchProcess:
            return
        if sig == signal.SIGKILL:
            process.wait(10)
            self._reap()

    def stop(self, grace: float = STOP_TIMEOUT) -> None:
        """End the process: SIGTERM, and SIGKILL after `grace` seconds."""
        if self._identity is not None:
            terminate([self._identity], grace)
        self._reap()

    def detach(self) -> None:
        """Let the process outlive this one."""
        if self._owner_pipe is not None:
            os.write(self._owner_pipe, b"d")
        self.release()

    def release(self) -> None:
        """Close the pipe that ties the process to this one. A broker that still runs is killed by it."""
        if self._owner_pipe is not None:
            os.close(self._owner_pipe)
            self._owner_pipe = None

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(10)
        self.release()
