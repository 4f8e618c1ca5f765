"""The connector instances of the leader: started, asked for task configurations, stopped."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from .....partitioner.errors import ConfigError
from ...api.connector import Connector, ConnectorContext
from ...config.providers import Resolver
from ..plugins import Plugins
from .state import ClusterState, Target, digest
from .stores import Status

_LOG = logging.getLogger("keyorder.connect.connector")


class _Running:
    def __init__(self, instance: Connector, made_from: str) -> None:
        self.instance, self.made_from = instance, made_from
        self.reconfigure = threading.Event()
        self.failure: Exception | None = None


class Connectors:
    """Keeps one instance per connector that is started. Used by the herder's thread alone."""

    def __init__(self, plugins: Plugins, resolver: Resolver, worker_id: str, wake: Callable[[], None]) -> None:
        self._plugins, self._resolver, self._worker_id, self._wake = plugins, resolver, worker_id, wake
        self._running: dict[str, _Running] = {}
        self._failed: dict[str, tuple[str, Status]] = {}

    def follow(self, state: ClusterState) -> tuple[dict[str, list[dict[str, str]]], dict[str, Status]]:
        """Start and stop instances. Returns new task configurations, and the state of every connector."""
        statuses: dict[str, Status] = {}
        tasks: dict[str, list[dict[str, str]]] = {}
        for name in list(self._running):
            stale = self._running[name].made_from != digest(state.configs.get(name, {}))
            if name not in state.configs or stale or state.target(name) is not Target.STARTED:
                self.stop(name)
        for name, (made_from, _) in list(self._failed.items()):
            if made_from != digest(state.configs.get(name, {})) or state.target(name) is Target.STOPPED:
                del self._failed[name]  # another one now, none, or one that begins anew
        for name, config in state.configs.items():
            target = state.target(name)
            if name in self._failed:
                statuses[name] = self._failed[name][1]
                continue
            if target is not Target.STARTED:
                statuses[name] = Status("PAUSED" if target is Target.PAUSED else "STOPPED", self._worker_id)
                continue
            try:
                made = self._one(name, config, state)
            except Exception as error:
                statuses[name] = self.fail(name, config, error)
                continue
            statuses[name] = Status("RUNNING", self._worker_id)
            if made is not None:
                tasks[name] = made
        return tasks, statuses

    def fail(self, name: str, config: Mapping[str, str], error: Exception) -> Status:
        """End it for good: its own code has failed. Returns its state from now on."""
        self.stop(name)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        _LOG.error("connector %s failed: %s", name, self._resolver.redact(str(error)))
        status = Status("FAILED", self._worker_id, self._resolver.redact(text))
        self._failed[name] = digest(config), status
        return status

    def _one(self, name: str, config: Mapping[str, str], state: ClusterState) -> list[dict[str, str]] | None:
        """Start it if it does not run; its task configurations if they may have changed."""
        running = self._running.get(name)
        current = digest(config)
        if running is None:
            self._resolver.keep_secret(config)
            resolved = self._resolver.resolve(config)
            instance = self._plugins.connector(resolved["connector.class"])()
            running = _Running(instance, current)
            instance.initialize(ConnectorContext(name, self._reconfigurer(running), self._blamer(running)))
            instance.start(resolved)
            self._running[name] = running
            running.reconfigure.set()
        if running.failure is not None:
            raise running.failure
        known = state.tasks.get(name)
        if not running.reconfigure.is_set() and known is not None and known[1] == current:
            return None
        running.reconfigure.clear()
        most = int(config.get("tasks.max", "1"))
        made = running.instance.task_configs(most)
        if len(made) > most and config.get("tasks.max.enforce", "true").lower() != "false":
            raise ConfigError("tasks.max", f"the connector makes {len(made)} tasks", f"it may make {most}")
        stored = [self._placeholders(own, config) for own in made]
        return None if known == (stored, current) else stored

    def _placeholders(self, made: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
        """A task's settings as they are stored: what came from a placeholder goes back to it."""
        resolved = self._resolver.resolve(config)
        back = {value: config[name] for name, value in resolved.items() if value != config[name]}
        return {name: back.get(value, value) for name, value in made.items()}

    def _reconfigurer(self, running: _Running) -> Callable[[], None]:
        def request() -> None:
            running.reconfigure.set()
            self._wake()

        return request

    def _blamer(self, running: _Running) -> Callable[[Exception], None]:
        def blame(error: Exception) -> None:
            running.failure = error
            self._wake()

        return blame

    def restart(self, name: str) -> None:
        """Begin it anew at the next `follow`."""
        self.stop(name)
        self._failed.pop(name, None)

    def stop(self, name: str) -> None:
        """End one."""
        running = self._running.pop(name, None)
        if running is not None:
            try:
                running.instance.stop()
            except Exception as error:
                _LOG.warning("connector %s did not stop well: %s", name, self._resolver.redact(str(error)))

    def stop_all(self) -> None:
        """End all: this worker does not lead any more."""
        for name in list(self._running):
            self.stop(name)
        self._failed.clear()

    def instance(self, name: str) -> Any:
        """A running instance, if there is one."""
        running = self._running.get(name)
        return None if running is None else running.instance
