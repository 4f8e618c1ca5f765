"""A Spark standalone cluster as processes of this machine, from the pip-installed pyspark: nothing else to install.

    python cluster.py package --out keyorder.zip             the installed keyorder, as an archive for --py-files
    python cluster.py start --workers 2 --folder DIR         prints {"master": "spark://127.0.0.1:PORT", ...}
    python cluster.py stop --folder DIR

Then, with the Python of the executors, which needs keyorder's dependencies and not keyorder:

    PYTHONPATH=keyorder.zip PYSPARK_PYTHON=/path/of/executors/python \\
        spark-submit --master spark://127.0.0.1:PORT --py-files keyorder.zip pipeline.py ...

PYTHONPATH is for the Python processes in which the driver plans a streaming read: Spark does not give them the archive.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import psutil
from keyorder.streaming.java import prepare_java

HOST = "127.0.0.1"
PACKAGES = ("keyorder", "pyspark_keyorder")
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
MASTER_IS_UP, WORKER_IS_UP = "I have been elected leader", "Successfully registered with master"


def package(wheel: Path | None, out: Path) -> Path:
    """What executors import, as one archive. wheel: keyorder's; by default what is installed here is taken.

    A wheel is a zip of importable files; Spark only wants another name for it.
    """
    if wheel is not None:
        out.write_bytes(wheel.read_bytes())
        return out
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in PACKAGES:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                raise SystemExit(f"{name} is not installed here: pip install 'keyorder[spark]'")
            folder = Path(spec.origin).parent
            if (folder / "pyproject.toml").exists() or (folder.parent / "pyproject.toml").exists():
                raise SystemExit(
                    f"{folder} is a checkout: build a wheel (python -m build --wheel), and give it as --wheel"
                )
            for path in sorted(folder.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, f"{name}/{path.relative_to(folder).as_posix()}")
    return out


def start(folder: Path, workers: int, cores: int, memory: str) -> dict[str, object]:
    """Start a master and its workers; returns when all workers are registered. State and logs are in `folder`."""
    state = folder / "cluster.json"
    if state.exists():
        raise SystemExit(f"{state} says that a cluster runs: stop it first")
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    address = f"spark://{HOST}:{port}"
    pids: list[int] = []
    try:
        pids.append(_launch(folder, "master", MASTER_IS_UP, MASTER, "--port", str(port)))
        for number in range(1, workers + 1):
            options = ("--cores", str(cores), "--memory", memory, "--work-dir", str(folder / f"work-{number}"))
            pids.append(_launch(folder, f"worker-{number}", WORKER_IS_UP, WORKER, *options, address))
    except BaseException:
        _end(pids)
        raise
    facts: dict[str, object] = {"master": address, "pids": pids, "folder": str(folder)}
    state.write_text(json.dumps(facts))
    return facts


def stop(folder: Path) -> None:
    """End the cluster that `start` made in `folder`; its executors end with their workers."""
    state = folder / "cluster.json"
    if not state.exists():
        raise SystemExit(f"no cluster runs in {folder}")
    _end(json.loads(state.read_text())["pids"])
    state.unlink()


def _launch(folder: Path, name: str, ready: str, *command: str) -> int:
    """A daemon of Spark; returns its process id once its log says `ready`."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    environment: Mapping[str, str] = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST}
    arguments = [str(home / "bin" / "spark-class"), command[0], "--host", HOST, "--webui-port", "0", *command[1:]]
    with log.open("wb") as out:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={"SPARK_DAEMON_MEMORY": "256m", **environment},
            start_new_session=True,
        )
    while ready not in log.read_text(errors="replace"):
        if process.poll() is not None:
            raise SystemExit(f"the {name} ended with {process.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    return process.pid


def _end(pids: list[int]) -> None:
    alive = []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if "org.apache.spark.deploy" in " ".join(process.cmdline()):  # the number may be another's by now
                alive += [process, *process.children(recursive=True)]
                process.terminate()
        except psutil.NoSuchProcess:
            continue
    for process in psutil.wait_procs(alive, timeout=20)[1]:
        process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="a Spark standalone cluster as processes of this machine")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("package", help="keyorder as an archive for --py-files")
    packing.add_argument("--wheel", type=Path, help="keyorder's wheel; by default what is installed here")
    packing.add_argument("--out", type=Path, default=Path("keyorder.zip"))
    starting = commands.add_parser("start", help="start a master and workers")
    starting.add_argument("--workers", type=int, default=2)
    starting.add_argument("--cores", type=int, default=1, help="of each worker")
    starting.add_argument("--memory", default="1g", help="of each worker")
    stopping = commands.add_parser("stop", help="end them")
    for each in (starting, stopping):
        each.add_argument("--folder", type=Path, default=Path("spark-cluster"), help="for logs and state (%(default)s)")
    given = parser.parse_args()
    if given.command == "package":
        print(package(given.wheel, given.out))
    elif given.command == "start":
        prepare_java()
        print(json.dumps(start(given.folder.resolve(), given.workers, given.cores, given.memory)))
    else:
        stop(given.folder.resolve())


if __name__ == "__main__":
    sys.exit(main())
