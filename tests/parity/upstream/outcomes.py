"""A pytest plugin: each test's outcome as a line of JSON in the file that KEYORDER_OUTCOMES names, when it is known.

A line is {"test", "outcome", "why"}. A test that began and has no outcome ended its process.
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

import pytest
from confluent_kafka.schema_registry import schema_registry_client as sync
from confluent_kafka.schema_registry._async import schema_registry_client as asynchronous


def _say(test: str, outcome: str, why: str = "") -> None:
    with open(os.environ["KEYORDER_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "why": why[:300]}) + "\n")


def _trivup() -> None:
    """The suites import it also where they are given a running broker."""
    for name in ("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["trivup.clusters.KafkaCluster"].KafkaCluster = object  # type: ignore[attr-defined]


_trivup()


def _mock_registry() -> None:
    """The suites make their registry's client by its class, which does not know `mock://`; its factory does."""
    for module, name in ((sync, "SchemaRegistryClient"), (asynchronous, "AsyncSchemaRegistryClient")):
        setattr(module, name, getattr(module, name).new_client)


_mock_registry()


def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    _say(nodeid, "began")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    why = str(report.longrepr).strip().splitlines()[-1] if report.longrepr else ""
    if report.when == "call" or report.outcome != "passed":
        _say(report.nodeid, report.outcome, why if report.when == "call" else f"{report.when}: {why}")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _say(report.nodeid, "failed", "collection: " + str(report.longrepr).strip().splitlines()[-1])
