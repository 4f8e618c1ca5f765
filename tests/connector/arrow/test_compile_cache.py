"""Compiled loops work where a package may be found on a cluster: in an archive, and without a home to write to."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from keyorder.partitioner.hashing import key_hash

ROOT = Path(__file__).parents[3]
CODE = """
import sys
sys.path.insert(0, sys.argv[1])
import pyarrow as pa
import keyorder
from keyorder.connector.arrow.hashing import hash_column
print(keyorder.__file__.startswith(sys.argv[1]), hash_column(pa.array([b"k"])).tolist())
"""


@pytest.mark.parametrize("home", ["there", "not there"])
@pytest.mark.slow
def test_a_module_in_an_archive_is_compiled(tmp_path: Path, home: str) -> None:
    """numba itself fails without a home: it makes the folder of its cache unasked."""
    archive = tmp_path / "keyorder.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for pattern in ("*.py", "partitioner/**/*.py", "connector/**/*.py"):
            for path in ROOT.glob(pattern):
                made.write(path, f"keyorder/{path.relative_to(ROOT).as_posix()}")
    place = str(tmp_path / "home") if home == "there" else "/proc/nowhere"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "NUMBA_"))}
    environment |= {"HOME": place, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-Ic", CODE, str(archive)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert told.stdout.split(" ", 1) == ["True", f"[{key_hash(b'k')}]\n"], told.stderr
    assert list(tmp_path.glob("keyorder-compiled-*")) == []
