"""A second look at a few red tests, alone: whether it was the machine, which other tests kept busy, or the code.

For tests on brokers only, at most three of a run, and never for a finding: records lost or out of order, a process that
crashed. A test that passes then is named at the end as one to be mended, and the run is green.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

MOST = 3
# What one of the judges says, a process that ended by itself, or pytest's own limit for a test that hangs.
FINDING = re.compile(r"reorder|out of order|lost|illegal|skipped|verdict|crashed|Timeout \(>", re.IGNORECASE)


def worth(failed: dict[str, tuple[str, bool]]) -> bool:
    """Whether a second look may be taken. failed: by test, (what it failed by, whether it uses brokers)."""
    return 0 < len(failed) <= MOST and all(brokers and not FINDING.search(why) for why, brokers in failed.values())


class SecondLook:
    """The plugin of the process that hands out the tests."""

    def __init__(self, options: list[str], root: Path) -> None:
        self._options, self._root = options, root
        self._failed: dict[str, tuple[str, bool]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what fails, and by what."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            before = self._failed.get(report.nodeid, ("", True))[0]
            why = before + str(report.longrepr if crash is None else crash.message)
            self._failed[report.nodeid] = why, "kafka" in report.keywords

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Behind the summary of the run."""
        yield
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not worth(self._failed):
            return
        names = "\n  ".join(self._failed)
        print(f"\n==> failed beside other tests, now alone:\n  {names}", flush=True)
        again = [sys.executable, "-Im", "pytest", *self._options, "-n", "0", "-p", "no:cacheprovider", *self._failed]
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        if subprocess.run(again, cwd=self._root, env=own, check=False).returncode == 0:
            print(f"==> passed alone; each of these depends on how busy the machine is and wants mending:\n  {names}")
            session.exitstatus = pytest.ExitCode.OK
