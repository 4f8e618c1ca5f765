"""`make check` reads no file that is about brokers alone; no test of its own goes missing by that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.broker_files import needs_services

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def test_a(kafka: KafkaUnderTest, topic_name: str) -> None:\n", True),
        ("def test_a(\n    source: Any, kafka: KafkaUnderTest\n) -> None:\n", True),
        ("class TestA:\n    async def test_a(self, kafka3: KafkaUnderTest) -> None:\n", True),
        ("def test_a(kafka: KafkaUnderTest) -> None:\n    ...\n\n\ndef test_b() -> None:\n", False),
        ("def test_a(stage: Stage) -> None:\n", False),
        ("FIXTURES = 1\n", False),
    ],
)
def test_a_file_is_told_by_the_parameters_of_its_tests(text: str, told: bool) -> None:
    """All of them; what is not sure is read."""
    assert needs_services(text) is told


@pytest.mark.slow
def test_nothing_is_passed_by_that_needs_no_service() -> None:
    """Of these files `-m "not kafka"` leaves nothing."""
    passed_by = [str(path) for path in TESTS.rglob("test_*.py") if needs_services(path.read_text(encoding="utf-8"))]
    assert len(passed_by) > 50
    left = subprocess.run(
        [sys.executable, "-Im", "pytest", "--collect-only", "-q", "-m", "not kafka", *passed_by],
        cwd=TESTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert left.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, left.stdout[-2000:]
