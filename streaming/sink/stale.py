"""Rows whose version is below the one that their key has in the topic already.

A worker process keeps the table of a topic (`CompactedView`) between tasks and reads on in it at the start of each. Who
writes at the same time may still put a higher version in front of a row: for a reader by version that changes nothing, as
for it nothing changes by any row that is left out here.
"""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ...compaction.strategy import Strategy, StrategyKind
from ...compaction.view import CompactedView
from ...connector.config import connection_of
from ...connector.metadata import identify
from ...connector.refusals import ClusterAdmin
from .columns import Rows
from .errors import StaleVersionError
from .options import SinkOptions

_TABLES = 4
_lock = threading.Lock()
_tables: OrderedDict[Any, _Table] = OrderedDict()


class Stale:
    """What one task leaves out. `count`: how many rows that were."""

    def __init__(self, options: SinkOptions) -> None:
        assert options.compaction_header is not None
        self._strategy = Strategy(StrategyKind.HEADER, options.compaction_header)
        self._config, self._fails = options.client, options.stale == "fail"
        self._known: dict[tuple[str, bytes], int | None] = {}
        self._views: dict[str, CompactedView] = {}
        self.count = 0
        _trim()

    def left(self, rows: Rows) -> Rows:
        """The rows that are to be written: not below the topic's version of their key, nor below an earlier row's.

        Raises StaleVersionError with `keyorder.sink.stale=fail`, and what a view raises.
        """
        assert rows.version is not None
        keep = [
            key is None or self._keeps(rows.topic, key, version)
            for key, version in zip(rows.key.to_pylist(), rows.version.to_pylist(), strict=True)
        ]
        self.count += keep.count(False)
        return rows if all(keep) else rows.filtered(pa.array(keep, pa.bool_()))

    def _keeps(self, topic: str, key: bytes, version: int | None) -> bool:
        known = self._version(topic, key)
        # A version below none, or none below one: as KIP-280 compares them.
        if known is not None and (version is None or version < known):
            if self._fails:
                raise StaleVersionError(topic, version, known)
            return False
        self._known[topic, key] = version
        return True

    def _version(self, topic: str, key: bytes) -> int | None:
        """The highest version of a key so far, None for none; of the topic's as of the task's first row for it."""
        place = topic, key
        if place not in self._known:
            if topic not in self._views:
                self._views[topic] = _loaded(self._config, topic, self._strategy)
            found = self._views[topic].version(key)
            self._known[place] = found.version if found is not None and found.versioned else None
        return self._known[place]


class _Table:
    """The table of a topic, and the id of the topic that it is of."""

    def __init__(self, config: Mapping[str, Any], topic: str, strategy: Strategy) -> None:
        self._admin, self._servers = ClusterAdmin(config), str(config.get("bootstrap.servers"))
        self._config, self._topic, self._strategy = connection_of(config), topic, strategy
        self.topic_id = ""
        self.view: CompactedView | None = None

    def load(self) -> CompactedView:
        """As of now. Of a topic that was made again nothing is remembered: its keys have no versions yet."""
        topic_id = identify(self._admin, self._topic, self._servers).topic_id
        if topic_id != self.topic_id:
            self.close()
        if self.view is None:
            self.view, self.topic_id = CompactedView(self._config, self._topic, self._strategy), topic_id
        try:
            return self.view.load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Forget it."""
        if self.view is not None:
            self.view.close()
            self.view = None


def _loaded(config: Mapping[str, Any], topic: str, strategy: Strategy) -> CompactedView:
    own = {name: str(value) for name, value in connection_of(config).items() if name != "logger"}
    name = (topic, strategy.header, tuple(sorted(own.items())))
    with _lock:
        table = _tables.pop(name, None) or _Table(own, topic, strategy)
        _tables[name] = table
        return table.load()


def _trim() -> None:
    """Give up the tables that have not been used for longest. Only between tasks: one may use more than that."""
    with _lock:
        while len(_tables) > _TABLES:
            _tables.popitem(last=False)[1].close()


@atexit.register
def _close() -> None:
    with _lock:
        for table in _tables.values():
            table.close()
        _tables.clear()
