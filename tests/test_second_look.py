"""A second look at red tests is taken for a busy machine, and for nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.second_look import worth

BUSY = "assert 6 == 3"


@pytest.mark.parametrize(
    ("failed", "looked_at"),
    [
        ({}, False),
        ({"a": BUSY}, True),
        (dict.fromkeys("abcdefgh", BUSY), True),
        (dict.fromkeys("abcdefghi", BUSY), False),
        ({"a": BUSY, "b": "AssertionError: Verdict(reordered_keys=1, lost=0)"}, False),
        ({"a": "AssertionError: assert {'doubled': 0, 'lost': 2} == {'doubled': 0, 'lost': 0}"}, False),
        ({"a": "AssertionError: INVALID: 4680 records of 81 keys in the log, 25 keys moved"}, False),
        ({"a": "AssertionError: seed 116 (55 s): consumer, 3 -> 6\n  2960 records, 0 lost; stands still"}, False),
        ({"a": "AssertionError: no batch for 180 s:\nWARN TaskSetManager: Lost task 0.0 in stage 1.0"}, True),
        ({"a": "worker 'gw1' crashed while running 'test_lost'"}, True),
        ({"a": 'KafkaError{code=_ASSIGNMENT_LOST,val=-142,str="Group partition assignment lost"}'}, True),
        ({"a": "Failed: Timeout (>1200.0s) from pytest-timeout."}, True),
    ],
    ids=["green", "one", "eight", "nine", "order", "loss", "history", "application", "log", "crash", "error", "hang"],
)
def test_what_is_looked_at_again(failed: dict[str, str], looked_at: bool) -> None:
    assert worth(failed) is looked_at


CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from support.second_look import SecondLook

def pytest_configure(config):
    config.addinivalue_line("markers", "kafka: uses a broker")
    if config.getoption("-n") != 0:
        config.pluginmanager.register(SecondLook([], config.rootpath))
"""
TESTS = """
import pytest
from pathlib import Path

@pytest.mark.kafka
def test_once():
    ran = Path("ran")
    again = ran.exists()
    ran.touch()
    assert again and ALONE
"""


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False], ids=["passes-alone", "fails-alone"])
def test_the_second_run_decides(tmp_path: Path, alone: bool) -> None:
    """Green if it passes alone, and named; red otherwise."""
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_it.py").write_text(TESTS.replace("ALONE", str(alone)), encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-Im", "pytest"], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
    )
    assert run.returncode == (0 if alone else 1), run.stdout + run.stderr
    assert "==> failed beside other tests, now alone:\n  test_it.py::test_once: assert (False" in run.stdout
    assert ("has to be fixed" in run.stdout) is alone
