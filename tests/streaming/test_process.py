"""Spark's Python processes start with the PySpark that is installed, not with the archive that Spark puts in front."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
from keyorder.streaming.process import prepare_python

ARCHIVES = sorted(str(path) for path in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))
CODE = "import json, os, pyspark, sys; print(json.dumps([pyspark.__file__, sys.argv[1:], os.environ['PYTHONPATH']]))"


def test_the_script_leaves_out_sparks_archives_and_nothing_else(tmp_path: Path) -> None:
    """Other entries of PYTHONPATH stay as they are, also with blanks and stars; so do the arguments."""
    environment: dict[str, str] = {}
    script = prepare_python(environment, tmp_path / "a folder")
    mine = [str(tmp_path / "with blank"), str(tmp_path / "*")]
    given = {**os.environ, "PYTHONPATH": ":".join([*ARCHIVES, *mine])}
    run = subprocess.run([script, "-c", CODE, "a b", "*"], env=given, cwd=tmp_path, capture_output=True, text=True)

    assert len(ARCHIVES) == 2
    assert environment == {"PYSPARK_PYTHON": str(script)}
    assert json.loads(run.stdout) == [pyspark.__file__, ["a b", "*"], ":".join(mine)], run.stderr
    assert prepare_python(environment, tmp_path / "a folder") == script


def test_without_the_script_spark_imports_from_the_archive(tmp_path: Path) -> None:
    """Or there would be nothing to gain."""
    given = {**os.environ, "PYTHONPATH": ":".join(ARCHIVES)}
    run = subprocess.run([sys.executable, "-c", CODE], env=given, cwd=tmp_path, capture_output=True, text=True)

    assert ".zip" in json.loads(run.stdout)[0], run.stderr
