"""The wheel of this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("partitioner", "connector", "streaming", "compaction")


def build_wheel(out: Path) -> Path:
    """Build it into `out`, from a copy: in the checkout, remains of an earlier build would come along."""
    source = out / "source"
    for folder in (*FOLDERS, "pyspark_keyorder"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for pattern in ("*.py", "pyproject.toml", "README.md", "LICENSE", "py.typed"):
        for path in ROOT.glob(pattern):
            shutil.copy(path, source)
    built = _build(source, out)
    if built.returncode and "Could not find a version that satisfies the requirement setuptools" in built.stderr:
        pytest.skip("no build backend in this environment, and no package index within reach")
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = out.glob("*.whl")
    return made


def _build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """With the backend of this environment if it is new enough, else with one that pip gets for the build."""
    if int(version("setuptools").split(".")[0]) >= 77:
        command = ["build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    else:
        command = ["pip", "--disable-pip-version-check", "wheel", "--no-deps", "--wheel-dir", str(out), str(source)]
    return subprocess.run([sys.executable, "-Im", *command], capture_output=True, text=True, check=False, cwd=out)
