"""One link to a cluster for all clients of a process that reach it by the same settings.

The application's own consumers and producers are its own. What stands beside them (who reads the control topics, lists offsets,
asks for groups, writes leases) is opened once, counted by its users, and ends with the last of them. What is needed only now
and then is opened when it is asked for, and closed when it was idle for a while.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable, Mapping
from typing import Any

from ...partitioner.errors import KafkaOperationError, KeyorderError
from .. import clock
from ..admin_link import AdminLink
from ..config import at_leaders
from ..group_commits import GroupCommits
from ..log_offsets import LogOffsets
from ..weakly import weakly
from .control_feed import ControlFeed, ControlSubscription, Interested
from .control_writer import ControlWriter

# Seconds: how long the reading thread waits for a record, how often it looks for idle clients, how long close() waits for the
# thread, and how long an idle client stays open: longer than from one renewal of a lease to the next.
_TURN, _TIDY, _PATIENCE, _IDLE = 0.1, 1.0, 10.0, 20.0
# What the clients beside the application's own do without, unless it says otherwise: telemetry, for which the library keeps a
# connection of its own, and connections that are idle, as that to the first broker is once the leaders are known.
_SPARING: Mapping[str, Any] = {"enable.metrics.push": False, "connections.max.idle.ms": int(_IDLE * 1000)}
# Groups whose commits somebody waits for, of which a client stays open.
_GROUPS = 8
# Settings that say that somebody logs in by name.
_LOGIN = ("sasl.username", "sasl.mechanism", "sasl.mechanisms")


class ClusterLink:
    """One user's share of the clients. `close` it; one that is dropped counts as closed.

    servers: for errors.

    A child process that was forked makes clients of its own: the parent's do nothing there.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {**_SPARING, **at_leaders(config)}
        self._pid = os.getpid()
        self.servers = str(config.get("bootstrap.servers"))
        self._subscriptions: list[ControlSubscription] = []
        self._before: list[_Clients] = []  # from before new credentials; some subscription still reads there
        self._clients = _Clients.of(self._config, self)

    @property
    def offsets(self) -> LogOffsets:
        """The shared clients that list offsets."""
        return self._clients.offsets

    @property
    def commits(self) -> GroupCommits:
        """The shared clients that are asked for groups' commits."""
        return self._clients.commits

    @property
    def writer(self) -> ControlWriter:
        """The shared client that writes control records."""
        return self._clients.writer

    def subscribe(self, interested: Interested) -> ControlSubscription:
        """Follow control records. interested: the keys that are wanted; called on any thread."""
        with _registry().lock:
            subscription = self._clients.feed.subscribe(interested, weakly(self._forget))
            self._subscriptions.append(subscription)
            return subscription

    @property
    def admin(self) -> AdminLink:
        """The shared admin client, and questions to coordinators through it."""
        return self._clients.admin

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from now on: this user of the link alone, who from now on shares with others that have the same.

        A subscription goes over by itself, once these credentials can read what it follows.
        """
        if os.getpid() != self._pid or self._config.keys().isdisjoint(_LOGIN):
            return
        with _registry().lock:
            self._config = {**self._config, "sasl.username": username, "sasl.password": password}
            before = self._clients
            if self not in before.users:
                return
            self._before.append(
                before
            )  # before anything else: an exception at any line here leaves a user too many, for a while
            self._clients = _Clients.of(self._config, self)
            for subscription in self._subscriptions:
                subscription.move(self._clients.feed, self._leave_behind)
        self._leave_behind()

    def release(self) -> None:
        """As `close`, without waiting and without a lock: for finalizers, which run anywhere."""
        for clients in (self._clients, *self._before):
            clients.users.discard(self)

    def close(self) -> None:
        """The clients end with their last user. May be called again."""
        if os.getpid() == self._pid:
            used = (self._clients, *self._before)  # a subscription that closes leaves those that it alone has read from
            for subscription in list(self._subscriptions):
                subscription.close()
            for clients in used:
                clients.leave(self)

    def _forget(self, subscription: ControlSubscription) -> None:
        """It was closed."""
        with _registry().lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
        self._leave_behind()

    def _leave_behind(self) -> None:
        """Leave the clients of earlier credentials that no subscription reads from any more."""
        with _registry().lock:
            read = [subscription.feed for subscription in self._subscriptions]
            done = [clients for clients in self._before if clients.feed not in read and clients is not self._clients]
            self._before = [clients for clients in self._before if clients.feed in read]
        for clients in done:
            clients.users.discard(self)  # its thread ends it, when the records are written that are on their way


class _Clients(threading.Thread):
    """The clients of one connection. The thread reads the control topics for all of its users, and ends what nobody needs.

    users: who shares it; whoever is dropped is not in it any more.
    """

    def __init__(self, key: Hashable, config: Mapping[str, Any], registry: _Registry) -> None:
        super().__init__(name="keyorder-link", daemon=True)
        self._key, self._config, self._registry = key, dict(config), registry
        self.users: weakref.WeakSet[ClusterLink] = weakref.WeakSet()
        # None of these opens a client yet: this runs under the registry's lock, and with an `oauth_cb` the constructor of a
        # client waits for a token, for up to ten seconds.
        self.offsets = LogOffsets(config)
        self.commits = GroupCommits(config, keep=_GROUPS)
        self.admin = AdminLink(config)
        self.writer = ControlWriter(config)
        self.feed = ControlFeed(config, self.offsets, self.admin)
        self._ended = False
        self._tidy_at = 0.0

    @staticmethod
    def of(config: Mapping[str, Any], user: ClusterLink) -> _Clients:
        """The clients of this connection, with one user more."""
        key, registry = _identity(config), _registry()
        with registry.lock:
            clients = registry.clients.get(key)
            if clients is None or clients._ended or clients.feed.spoiled:
                clients = registry.clients[key] = _Clients(key, config, registry)
            clients.users.add(user)
            if clients.ident is None:
                clients.start()
            return clients

    def leave(self, user: ClusterLink) -> None:
        """One user less. After the last one all is closed when this returns."""
        self.users.discard(user)
        self._end_without_users()
        if self._ended and threading.current_thread() is not self:
            self.join(_PATIENCE)

    def run(self) -> None:
        """The thread."""
        try:
            while not self._ended:
                self.feed.turn(_TURN)
                self._tidy()
        except KeyorderError as error:
            self.feed.fail(error)
        except Exception as error:
            self.feed.fail(KafkaOperationError("read the control topics", repr(error)))
            raise
        finally:
            self.feed.close()

    def _tidy(self) -> None:
        """Close what nobody needs now."""
        self.writer.poll(0)
        if not self.writer.pending:
            self._end_without_users()
        now = clock.now()
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY
            self.offsets.close_idle(_IDLE)
            self.commits.close_idle(_IDLE)
            self.admin.close_idle(_IDLE)

    def _end_without_users(self) -> None:
        if len(self.users):
            return  # as it would be found under the lock: whoever comes and goes afterwards is seen in the next turn
        with self._registry.lock:
            if len(self.users) or self._ended:
                return
            self._ended = True
            if self._registry.clients.get(self._key) is self:
                del self._registry.clients[self._key]
        self.feed.wake()
        self.offsets.close()
        self.commits.close()
        self.writer.close()
        self.admin.close()


class _Registry:
    """The clients of a process by connection."""

    def __init__(self) -> None:
        # Taken again by a signal handler that opens or closes a client.
        self.lock = threading.RLock()
        self.clients: dict[Hashable, _Clients] = {}


# By process: in a child nothing of the parent's works, and to end it would wait for threads that are not there.
_REGISTRIES: dict[int, _Registry] = {}


def _registry() -> _Registry:
    process = os.getpid()
    return _REGISTRIES.get(process) or _REGISTRIES.setdefault(process, _Registry())


def _identity(config: Mapping[str, Any]) -> Hashable:
    """What has to be the same for two users to share clients. Callables by what they are; the client's name does not count."""

    def value(given: Any) -> Hashable:
        return given if isinstance(given, Hashable) else id(given)

    return frozenset((name, value(given)) for name, given in config.items() if name != "client.id")
