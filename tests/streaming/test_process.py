"""Spark's Python processes start with the PySpark that is installed, not with the archive that Spark puts in front."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pyspark
import pytest
from keyorder.streaming import process
from keyorder.streaming.process import answer_at_once, prepare_python

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


@pytest.mark.slow
def test_without_the_script_spark_imports_from_the_archive(tmp_path: Path) -> None:
    """Or there would be nothing to gain."""
    given = {**os.environ, "PYTHONPATH": ":".join(ARCHIVES)}
    run = subprocess.run([sys.executable, "-c", CODE], env=given, cwd=tmp_path, capture_output=True, text=True)

    assert ".zip" in json.loads(run.stdout)[0], run.stderr


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="a setting of Linux")
@pytest.mark.parametrize(("main", "hurried"), [("pyspark.daemon", True), ("pytest", False)])
def test_a_workers_connections_to_its_executor_are_hurried_and_no_others(
    monkeypatch: pytest.MonkeyPatch, main: str, hurried: bool
) -> None:
    """Only in a worker of Spark's, and only what is connected: a listening socket and a pair of this machine stay as they are."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(main, None))
    process._executor_lines.cache_clear()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as line:
        pair = socket.socketpair()
        answer_at_once()
        line_has = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        server_has = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        line.sendall(b"still open")
        for end in pair:
            end.close()
    process._executor_lines.cache_clear()

    assert (bool(line_has), bool(server_has)) == (hurried, False)
