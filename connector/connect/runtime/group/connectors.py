"""The connector instances of the leader: started, asked for task configurations, stopped."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping

from .....partitioner.errors import ConfigError
from .... import clock
from ....cli.connecting import is_secret
from ...api.connector import Connector, ConnectorContext
from ...api.java import BLANKS
from ...config.providers import Resolver, forms, may_be_secret
from ..plugins import Plugins
from .state import ClusterState, Target, digest
from .stores import Status

_LOG = logging.getLogger("keyorder.connect.connector")


class _Running(threading.Thread):
    """One instance, and the thread that calls it: one that hangs keeps nobody else waiting.

    made: its newest task configurations, as they are stored. failure: what has ended it.
    """

    def __init__(
        self, connector: str, config: Mapping[str, str], plugins: Plugins, resolver: Resolver, wake: Callable[[], None]
    ) -> None:
        super().__init__(name=f"connect-connector-{connector}", daemon=True)
        self._connector, self._config, self._plugins = connector, dict(config), plugins
        self._resolver, self._wake = resolver, wake
        self.made_from = digest(config)
        self.made: list[dict[str, str]] | None = None
        self.failure: Exception | None = None
        self._resolved: dict[str, str] = {}  # as the instance was started with them: a secret may change meanwhile
        self._asked, self._stopping = threading.Event(), threading.Event()
        self._asked.set()

    def end(self) -> None:
        """Let it stop. Waits for nothing."""
        self._stopping.set()
        self._asked.set()

    def run(self) -> None:
        """The thread."""
        try:
            self._resolver.keep_secret(self._config)
            resolved = self._resolver.resolve(self._config)
            self._resolved = dict(resolved)
            instance = self._plugins.connector(resolved["connector.class"])()
            instance.initialize(ConnectorContext(self._connector, self._asked.set, self._blame))
            instance.start(resolved)
            try:
                self._make_tasks(instance)
            finally:
                self._release(instance)
        except Exception as error:  # of its own code: anything
            self._blame(error)
        self._wake()

    def _make_tasks(self, instance: Connector) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._stopping.is_set() or self.failure is not None:
                return
            most = int(self._resolved.get("tasks.max", "1").strip(BLANKS))
            made = instance.task_configs(most)
            enforced = self._resolved.get("tasks.max.enforce", "true").strip(BLANKS).lower() != "false"
            if len(made) > most and enforced:
                raise ConfigError("tasks.max", f"the connector makes {len(made)} tasks", f"it may make {most}")
            # As it will be read: what cannot be stored is an error of the connector.
            self.made = json.loads(json.dumps([self._placeholders(own) for own in made], allow_nan=False))
            self._wake()

    def _placeholders(self, made: Mapping[str, str]) -> dict[str, str]:
        """A task's settings as they are stored: what came from a placeholder goes back to it."""
        return {name: self._placeholder(name, value) for name, value in made.items()}

    def _placeholder(self, name: str, value: str) -> str:
        """By name, as in Kafka Connect, where the connector has left the value as it was given or has trimmed it.

        Under another name a secret alone: what is equal by chance would follow the placeholder when that changes.
        """
        same = [own for own, given in self._resolved.items() if given != self._config[own] and value in forms(given)]
        if name in same:
            return self._config[name]
        secrets = [own for own in same if may_be_secret(value) and (is_secret(own) or is_secret(name))]
        return self._config[secrets[0]] if secrets else value

    def _blame(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._asked.set()
        self._wake()

    def _release(self, instance: Connector) -> None:
        try:
            instance.stop()
        except Exception as error:
            _LOG.warning("connector %s did not stop well: %s", self._connector, self._resolver.redact(str(error)))


class Connectors:
    """Keeps one instance per connector that is started. Used by the herder's thread alone.

    patience: seconds for which an instance that is to end is awaited, before another one takes its place.
    """

    def __init__(
        self, plugins: Plugins, resolver: Resolver, worker_id: str, wake: Callable[[], None], patience: float
    ) -> None:
        self._plugins, self._resolver, self._worker_id, self._wake = plugins, resolver, worker_id, wake
        self._patience = patience
        self._running: dict[str, _Running] = {}
        self._ending: dict[str, tuple[_Running, float]] = {}
        self._failed: dict[str, tuple[str, Status]] = {}

    def follow(self, state: ClusterState) -> tuple[dict[str, list[dict[str, str]]], dict[str, Status]]:
        """Start and stop instances. Returns new task configurations, and the state of every connector that has one."""
        statuses: dict[str, Status] = {}
        tasks: dict[str, list[dict[str, str]]] = {}
        for name in list(self._running):
            stale = self._running[name].made_from != digest(state.configs.get(name, {}))
            if stale or state.target(name) is not Target.STARTED:
                self.stop(name)
        for name, (made_from, _) in list(self._failed.items()):
            if made_from != digest(state.configs.get(name, {})) or state.target(name) is Target.STOPPED:
                del self._failed[name]  # another one now, none, or one that begins anew
        self._ending = {name: each for name, each in self._ending.items() if each[0].is_alive()}
        for name, config in state.configs.items():
            target = state.target(name)
            if name in self._failed:
                statuses[name] = self._failed[name][1]
                continue
            if target is not Target.STARTED:
                statuses[name] = Status("PAUSED" if target is Target.PAUSED else "STOPPED", self._worker_id)
                continue
            running = self._running.get(name) or self._start(name, config)
            made = None if running is None else running.made
            if running is not None and running.failure is not None:
                statuses[name] = self.fail(name, config, running.failure)
                continue
            statuses[name] = Status("UNASSIGNED" if made is None else "RUNNING", self._worker_id)
            if running is not None and made is not None and state.tasks.get(name) != (made, running.made_from):
                tasks[name] = made
        return tasks, statuses

    def _start(self, name: str, config: Mapping[str, str]) -> _Running | None:
        """A new instance; None while the one before it may still end."""
        if name in self._ending:
            if clock.now() < self._ending[name][1]:
                return None
            del self._ending[name]
            _LOG.warning("connector %s begins anew, though it has not stopped in %g s", name, self._patience)
        running = self._running[name] = _Running(name, config, self._plugins, self._resolver, self._wake)
        running.start()
        return running

    def fail(self, name: str, config: Mapping[str, str], error: Exception) -> Status:
        """End it for good: its own code has failed. Returns its state from now on."""
        self.stop(name)
        _LOG.error("connector %s failed: %s", name, self._resolver.redact(str(error)))
        status = Status("FAILED", self._worker_id, self._resolver.trace(error))
        self._failed[name] = digest(config), status
        return status

    def restart(self, name: str) -> None:
        """Begin it anew at the next `follow`."""
        self.stop(name)
        self._failed.pop(name, None)

    def stop(self, name: str) -> None:
        """Let one end. Waits for nothing."""
        running = self._running.pop(name, None)
        if running is not None:
            running.end()
            self._ending[name] = running, clock.now() + self._patience

    def stop_all(self) -> None:
        """Let all end: this worker does not lead any more."""
        for name in list(self._running):
            self.stop(name)
        self._failed.clear()

    def close(self) -> None:
        """End all, as far as they do while they are awaited."""
        self.stop_all()
        for name, (running, deadline) in self._ending.items():
            running.join(max(0.0, deadline - clock.now()))
            if running.is_alive():
                _LOG.warning("the worker ends while connector %s has not stopped", name)
