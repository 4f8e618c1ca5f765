"""The record of simulated histories: runs add up for the code that they drove."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from simulation.shipped import record


def a_run(code: str, first: int) -> dict[str, Any]:
    """Ten good histories."""
    return {"code": code, "first": first, "histories": 10, "bad": 0, "changes": 20, "records": 900, "faults": 70}


def test_runs_of_one_code_add_up(tmp_path: Path) -> None:
    """Another code has a line of its own, the newest one first; seeds that follow each other are one range."""
    kept, page = tmp_path / "histories.json", tmp_path / "page.md"
    page.write_text("before\n<!-- histories -->\nold\n<!-- end of histories -->\nafter\n")
    for run in (a_run("aaa", 0), a_run("bbb", 0), a_run("bbb", 10), a_run("bbb", 30)):
        record.add(kept, run)
    record.update_page(page, record.load(kept))

    before, *rows, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert rows[-3:-1] == [
        "| `bbb` | 0 to 19, 30 to 39 | 30 | 0 | 60 | 2700 | 210 |",
        "| `aaa` | 0 to 9 | 10 | 0 | 20 | 900 | 70 |",
    ]


def test_the_page_shows_the_record() -> None:
    """With the totals of every code."""
    assert record.page_of(record.load()) in record.PAGE.read_text()


_LOADED = """
import sys
sys.path.insert(0, sys.argv[1])
from simulation.shipped.install import install
install("")
from simulation.shipped.coverage import watch
watch()
from simulation.shipped.scenario import Scenario
assert Scenario(5, None).run().good
print(*(f for m in list(sys.modules.values()) if (f := getattr(m, "__file__", None))), sep="\\n")
"""


def test_the_digest_has_all_that_a_history_loads() -> None:
    """A change of any of it begins a new line."""
    command = [sys.executable, "-s", "-c", _LOADED, str(record.ROOT / "tests")]
    files = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": "0"}).stdout
    loaded = [Path(line).resolve() for line in files.splitlines()]
    own = [path for path in loaded if any(path.is_relative_to(record.ROOT / folder) for folder in record.DRIVEN)]
    assert len(own) > 100
    assert not [path for path in own if not record.is_driven(path)]
