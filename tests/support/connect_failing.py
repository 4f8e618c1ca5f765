"""Connectors whose tasks cannot start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keyorder.connector.connect import ConfigDef, SinkConnector, SinkRecord, SinkTask, SourceConnector, SourceTask
from keyorder.connector.connect.api.records import SourceRecord


class Failing:
    """Fails where the connector's `fails` says."""

    fails = ""

    def __init__(self) -> None:
        super().__init__()
        self._fail("constructor")

    def initialize(self, context: Any) -> None:
        super().initialize(context)  # type: ignore[misc]
        self._fail("initialize")

    def start(self, config: Any) -> None:
        self._fail("start")

    def _fail(self, where: str) -> None:
        if Failing.fails == where:
            raise ValueError(f"no {where}")


class WrongSinkTask(Failing, SinkTask):
    def put(self, records: Sequence[SinkRecord]) -> None: ...


class WrongSourceTask(Failing, SourceTask):
    def poll(self) -> list[SourceRecord] | None:
        return None


class _Made:
    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef()

    def start(self, config: dict[str, str]) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._config]


class WrongSink(_Made, SinkConnector):
    @classmethod
    def task_class(cls) -> type[SinkTask]:
        return WrongSinkTask


class WrongSource(_Made, SourceConnector):
    @classmethod
    def task_class(cls) -> type[SourceTask]:
        return WrongSourceTask
