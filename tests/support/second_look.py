"""A second look at a few red tests, alone: whether it was the machine, which other tests kept busy, or the code.

For at most eight of a run, and never for what a judge of histories found: records lost or out of order. A test that passes
then is named at the end as one to be fixed, with what it failed by, and the run is green.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

MOST = 8
# What the judges say. They say it first; a log that follows may hold any word.
FINDING = re.compile(
    r"^assert.*(reorder|out of order|\blost\b|illegal|skipped|verdict|\binvalid:|: seed \d+ \()", re.IGNORECASE
)


def found(why: str) -> bool:
    """Whether a judge of histories says so. why: the text of a failure."""
    return FINDING.match(first_line(why)) is not None


def first_line(why: str) -> str:
    """What a failure begins with."""
    return why.split("\n", 1)[0][:300]


def worth(failed: Mapping[str, str]) -> bool:
    """Whether a second look may be taken. failed: by test, what it failed by."""
    return 0 < len(failed) <= MOST and not any(found(why) for why in failed.values())


class SecondLook:
    """The plugin of the process that hands out the tests."""

    def __init__(self, options: list[str], root: Path) -> None:
        self._options, self._root = options, root
        self._failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what fails, and by what."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = str(report.longrepr if crash is None else crash.message)
            before = self._failed.get(report.nodeid)
            # A test may fail in its set-up, its body and its clean-up: a finding among them is what counts.
            if before is None or found(why):
                self._failed[report.nodeid] = why

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Behind the summary of the run."""
        yield
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not worth(self._failed):
            return
        names = "\n  ".join(f"{name}: {first_line(why)}" for name, why in self._failed.items())
        print(f"\n==> failed beside other tests, now alone:\n  {names}", flush=True)
        again = [sys.executable, "-Im", "pytest", *self._options, "-n", "0", "-p", "no:cacheprovider", *self._failed]
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        if subprocess.run(again, cwd=self._root, env=own, check=False).returncode == 0:
            print(f"==> passed alone; each of these depends on how busy the machine is and has to be fixed:\n  {names}")
            session.exitstatus = pytest.ExitCode.OK
