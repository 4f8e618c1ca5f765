"""The workflow of continuous integration does what a checkout can do: targets of the Makefile, versions that are supported."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from keyorder.connector.local.versions import DEFAULT_KAFKA_VERSION, known_versions

ROOT = Path(__file__).parents[1]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
JOBS: dict[str, Any] = WORKFLOW["jobs"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
_EXPRESSION = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")


def matrix(job: dict[str, Any]) -> dict[str, list[str]]:
    """The values of each name of a job's matrix; a bare 3.10 would be the number 3.1."""
    found = job.get("strategy", {}).get("matrix", {})
    assert all(isinstance(value, str) for values in found.values() for value in values)
    return dict(found)


def commands(job: dict[str, Any]) -> list[str]:
    """What a job runs, for each entry of its matrix."""
    names, values = list(matrix(job)), list(matrix(job).values())
    entries = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]
    runs = [step["run"] for step in job["steps"] if "run" in step]
    return [filled(run, entry) for run in runs for entry in entries]


def filled(run: str, entry: dict[str, str]) -> str:
    """A command with the values of one entry of the matrix."""
    return _EXPRESSION.sub(lambda match: entry[match[1]], run)


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_runs_targets_of_the_makefile_and_nothing_else(name: str) -> None:
    """`make TARGET`, with variables that the Makefile knows."""
    assert commands(JOBS[name])
    for command in commands(JOBS[name]):
        make, target, *variables = command.split()
        assert make == "make"
        assert target in TARGETS
        assert all(re.search(rf"\$[({{]+{variable.split('=')[0]}\b", MAKEFILE) for variable in variables), command


def test_the_workflow_runs_what_a_change_has_to_pass() -> None:
    """`make check` and `make test`, as CONTRIBUTING.md asks, on every push and pull request."""
    always = [command for job in JOBS.values() if "if" not in job for command in commands(job)]
    assert {"make check", "make test", "make docs"} <= set(always)
    assert {"push", "pull_request"} <= set(WORKFLOW[True])  # YAML's word for `on`


def test_dependencies_are_audited_and_listed() -> None:
    """On every push, with all that a user can install; the list is kept even where the audit fails, so it comes first."""
    job = JOBS["dependencies"]
    assert "if" not in job
    assert commands(job) == ["make sbom", "make audit"]
    kept = [step["with"]["path"] for step in job["steps"] if step.get("uses", "").startswith("actions/upload-artifact")]
    assert kept == ["build/sbom.json"]
    assert "build/sbom.json" in MAKEFILE
    extras = re.search(r"^EXTRAS \?= (.*)$", MAKEFILE, re.MULTILINE)
    known = re.search(
        r"^\[project\.optional-dependencies\]\n(.*?)^\[", (ROOT / "pyproject.toml").read_text(), re.M | re.S
    )
    assert extras is not None
    assert known is not None
    tools = {"docs", "parity", "dev"}
    assert set(extras[1].split(",")) == set(re.findall(r"^([a-z]+) = ", known[1], re.MULTILINE)) - tools


def test_the_workflow_has_every_python_and_kafka() -> None:
    """The lowest Python that pyproject.toml allows and all after it; every Kafka that local clusters know, once."""
    pythons = matrix(JOBS["check"])["python"]
    lowest = re.search(r'^requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert lowest is not None
    minors = [int(version.removeprefix("3.")) for version in pythons]
    assert pythons[0] == lowest[1]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert sorted([*matrix(JOBS["compatibility"])["kafka"], DEFAULT_KAFKA_VERSION]) == sorted(known_versions())


def test_a_job_reads_the_checkout_and_writes_nothing() -> None:
    """No job has more rights than that, and each has a limit in time."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and job["timeout-minutes"] <= 240 for job in JOBS.values())


@pytest.mark.parametrize(
    ("parts", "made"),
    [
        ((), ["lint", "test", "test-long"]),
        (("check", "compatibility"), ["check", "compatibility"]),
        (("test-docker",), []),
    ],
)
def test_the_checks_run_by_parts(tmp_path: Path, parts: tuple[str, ...], made: list[str]) -> None:
    """`.ci/run` without words does what a change has to pass; with words those targets alone. No engine: no container."""
    for name, text in (("make", 'echo "made $1"'), ("docker", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KEYORDER_DOCKER_ENGINE": "/nowhere"}
    done = subprocess.run([ROOT / ".ci" / "run", *parts], env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.removeprefix("made ") for line in lines if line.startswith("made ")] == made
    assert any("container suite was not run" in line for line in lines) == (parts in ((), ("test-docker",)))
