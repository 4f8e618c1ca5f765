"""Which test files are about running brokers alone, told by their text: to import one takes longer than to read it."""

from __future__ import annotations

import re

# Those of tests/conftest.py and of the folders' own that a test has in its parameters and that start something.
_SERVICES = {"kafka", "kafka3", "kafka_factory", "quick_groups", "spark", "postgres", "judge", "registry"}
_TEST = re.compile(r"^ *(?:async )?def test_\w+\(([^)]*)\)", re.MULTILINE)
_PARAMETER = re.compile(r"(\w+)\s*:")


def needs_services(text: str) -> bool:
    """Whether each test of a file names a service among its parameters. One that has it through another fixture is not told."""
    tests = _TEST.findall(text)
    return bool(tests) and all(_SERVICES.intersection(_PARAMETER.findall(parameters)) for parameters in tests)
