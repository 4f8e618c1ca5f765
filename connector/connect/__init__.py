"""A plugin runtime with Kafka Connect's shape, which keeps each key in order across layout changes.

Plugin authors import from here; names are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api.connector import Connector, SinkConnector, SourceConnector
    from .api.errors import ConnectError, DataError, RetriableError
    from .api.records import ConnectRecord, Header, Headers, SinkRecord, SourceRecord
    from .api.schema import Field, Schema
    from .api.task import SinkTask, SourceTask
    from .config.configdef import ConfigDef

_HOME_OF = {
    "ConfigDef": ".config.configdef",
    "ConnectError": ".api.errors",
    "ConnectRecord": ".api.records",
    "Connector": ".api.connector",
    "DataError": ".api.errors",
    "Field": ".api.schema",
    "Header": ".api.records",
    "Headers": ".api.records",
    "RetriableError": ".api.errors",
    "Schema": ".api.schema",
    "SinkConnector": ".api.connector",
    "SinkRecord": ".api.records",
    "SinkTask": ".api.task",
    "SourceConnector": ".api.connector",
    "SourceRecord": ".api.records",
    "SourceTask": ".api.task",
}
__all__ = [
    "ConfigDef",
    "ConnectError",
    "ConnectRecord",
    "Connector",
    "DataError",
    "Field",
    "Header",
    "Headers",
    "RetriableError",
    "Schema",
    "SinkConnector",
    "SinkRecord",
    "SinkTask",
    "SourceConnector",
    "SourceRecord",
    "SourceTask",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name], __name__), name)
