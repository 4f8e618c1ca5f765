"""docs/client-parity.md is made of what came of confluent-kafka's own tests, and each difference has its reason."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from support.client_parity import PAGE, UPSTREAM, page, reasons, results

sys.path.insert(0, str(UPSTREAM))
try:
    from rewriting import rewritten
    from run import SECTIONS
finally:
    sys.path.remove(str(UPSTREAM))


def alone(found: dict[str, Any]) -> set[str]:
    """Which tests fail with ours alone, as differences.toml names them."""
    return {
        f"{file}::{test}{added}"
        for section, added in SECTIONS.values()
        for file, counts in found.get(section, {}).items()
        for test in counts["alone"]
    }


def test_the_page_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("version", list(results()))
def test_each_difference_has_its_reason(version: str) -> None:
    """Of the newest client and of the oldest; and a reason without a difference in either is none."""
    named = [test for reason in reasons() for test in reason["tests"]]
    assert len(named) == len(set(named))
    assert alone(results()[version]) <= set(named)
    ever = set().union(*map(alone, results().values()))
    always = {test for reason in reasons() if not reason.get("sometimes") for test in reason["tests"]}
    assert always <= ever
    for program, came in results()[version].get("examples", {}).items():
        assert came["stock"] == "runs", program
        assert came["ours"] in ("runs", "refused"), program


@pytest.mark.parametrize(
    ("source", "expected", "count"),
    [
        ("from confluent_kafka import Producer", "from stand_ins import Producer", 1),
        (
            "from confluent_kafka import KafkaError, Consumer as C",
            "from confluent_kafka import KafkaError\nfrom stand_ins import Consumer as C",
            1,
        ),
        (
            "from confluent_kafka.aio import AIOProducer, AIOConsumer",
            "from stand_ins import AIOProducer, AIOConsumer",
            2,
        ),
        ("p = confluent_kafka.Producer({})", "p = __import__('stand_ins').Producer({})", 1),
        (
            "from confluent_kafka.admin import AdminClient  # stays",
            "from confluent_kafka.admin import AdminClient  # stays",
            0,
        ),
        ("from elsewhere import Producer", "from elsewhere import Producer", 0),
        ("def f():\n    from confluent_kafka import Producer", "def f():\n    from stand_ins import Producer", 1),
    ],
)
def test_the_import_is_replaced_and_nothing_else(source: str, expected: str, count: int) -> None:
    """Of programs that we do not keep here."""
    text, found = rewritten(source)
    assert (text, found) == (expected, count)
    ast.parse(text)


def test_nothing_of_the_library_is_kept_here() -> None:
    """What runs its programs stands here, they do not."""
    assert {path.name for path in Path(UPSTREAM).iterdir() if path.is_file()} == {
        "differences.toml", "examples.py", "outcomes.py", "results.json", "rewriting.py", "run.py", "stand_ins.py",
    }  # fmt: skip
