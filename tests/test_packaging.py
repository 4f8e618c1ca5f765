"""The wheel holds what the checkout holds, and works outside it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.wheel import FOLDERS, ROOT, build_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once for all tests of this file."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_module_of_the_tree(wheel: Path) -> None:
    """A sub-package that is missing in pyproject.toml would import here and be missing there."""
    tree = {f"keyorder/{path.name}" for path in ROOT.glob("*.py")}
    for folder in FOLDERS:
        tree |= {f"keyorder/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / folder).rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if name.endswith(".py") and name.startswith("keyorder/")} == tree


LOOK = """
import io, sys
sys.path[:] = [sys.argv[1], *(path for path in sys.path if path)]
from pyspark.sql.worker import lookup_data_sources
found = io.BytesIO()
lookup_data_sources._main(io.BytesIO(), found)
assert b"keyorder" in found.getvalue()
import pyspark_keyorder
assert pyspark_keyorder.__file__.startswith(sys.argv[1])
"""


def test_spark_finds_the_source_by_itself(wheel: Path, tmp_path: Path) -> None:
    """From the wheel, and from the checkout: by the code with which PySpark looks for sources to register."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for place in (tmp_path, ROOT):
        ran = subprocess.run(
            [sys.executable, "-I", "-c", LOOK, str(place)], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert ran.returncode == 0, ran.stderr


def test_the_wheel_has_the_data_files(wheel: Path) -> None:
    """The marker for type checkers, and the lock files of the embedded brokers."""
    locks = {f"keyorder/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "connector/local").glob("*.lock.json")}
    with zipfile.ZipFile(wheel) as archive:
        assert {"keyorder/py.typed", *locks} <= set(archive.namelist())


def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, it is that one which is imported, with its public names, and without a Kafka client at once."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    check = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import keyorder\n"
        "assert keyorder.__file__.startswith(sys.argv[1]), keyorder.__file__\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        "assert keyorder.Layout(initial=3, count=5).home(b'abc') == 3\n"
        "assert issubclass(keyorder.KeyorderError, Exception)\n"
        "print(keyorder.__version__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", check, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == wheel.name.split("-")[1]
