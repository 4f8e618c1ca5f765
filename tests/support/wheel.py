"""The wheel of this checkout."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest
from support.unpacking import unpack

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("partitioner", "connector", "streaming", "compaction")


def copy_source(out: Path) -> Path:
    """What a build needs of the checkout, in a folder of its own: there, remains of an earlier build would come along."""
    source = out / "source"
    for folder in (*FOLDERS, "pyspark_keyorder"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for pattern in ("*.py", "pyproject.toml", "README.md", "LICENSE", "py.typed"):
        for path in ROOT.glob(pattern):
            shutil.copy(path, source)
    return source


def build_wheel(out: Path) -> Path:
    """Build it into `out`, from a copy."""
    return _built(copy_source(out), out)


def build_wheel_of(commit: str, out: Path) -> Path:
    """Build that of an earlier commit into `out`; skips the test in a checkout without history, and in none that has one."""
    shown = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False)
    if shown.returncode:
        look = ["git", "rev-parse", "--is-shallow-repository"]
        asked = subprocess.run(look, cwd=ROOT, capture_output=True, text=True, check=False)
        missing = f"commit {commit} is not in this checkout"
        if asked.stdout.strip() == "false":
            pytest.fail(f"{missing}, which has its history: name another earlier version")
        pytest.skip(missing)
    source = out / "source"
    source.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(shown.stdout)) as archive:
        unpack(archive, source)
    return _built(source, out)


def earlier_wheel(commit: str, out: Path) -> Path:
    """That which KEYORDER_EARLIER_WHEEL names, a release's say; without it, one that is built from an earlier commit."""
    named = os.environ.get("KEYORDER_EARLIER_WHEEL")
    return Path(named).resolve(strict=True) if named else build_wheel_of(commit, out)


def build_sdist(out: Path) -> Path:
    """Build the source distribution into `out`, from a copy."""
    isolation = ["--no-isolation"] if builds_here() else []
    command = ["build", "--sdist", *isolation, "--outdir", str(out), str(copy_source(out))]
    expect_built(
        subprocess.run([sys.executable, "-Im", *command], capture_output=True, text=True, check=False, cwd=out)
    )
    (made,) = out.glob("*.tar.gz")
    return made


def _built(source: Path, out: Path) -> Path:
    expect_built(_build(source, out))
    (made,) = out.glob("*.whl")
    return made


def expect_built(built: subprocess.CompletedProcess[str]) -> None:
    """Skips the test where there is nothing to build with."""
    if built.returncode and "Could not find a version that satisfies the requirement setuptools" in built.stderr:
        pytest.skip("no build backend in this environment, and no package index within reach")
    assert built.returncode == 0, built.stdout + built.stderr


def builds_here() -> bool:
    """Whether this environment's backend is new enough to build with; else one is fetched for each build."""
    return int(version("setuptools").split(".")[0]) >= 77


def _build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """With the backend of this environment if it is new enough, else with one that pip gets for the build."""
    if builds_here():
        command = ["build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    else:
        command = ["pip", "--disable-pip-version-check", "wheel", "--no-deps", "--wheel-dir", str(out), str(source)]
    return subprocess.run([sys.executable, "-Im", *command], capture_output=True, text=True, check=False, cwd=out)
