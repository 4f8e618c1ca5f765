"""Formats the folders of brokers, as `kafka-storage format` does.

Kafka's own tool formats one folder per Kafka version, which is kept in the cache. What it writes
depends on the version alone, but for meta.properties; each broker gets a copy and a meta.properties of
its own. That saves a JVM's start, some 2 s, for each broker of each cluster.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import BrokerFailedError
from .properties import ClusterPlan, Node, server_properties, to_properties

_META = "meta.properties"
# Read by no client: the template is never started.
_NODE = Node(id=1, port=9092, controller_port=9093)

JavaRun = Callable[..., Sequence[str]]
"""Main class and arguments to a whole command line."""


def new_id() -> str:
    """A random id in Kafka's form: a UUID in 22 characters of URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        # Kafka avoids these as well: on a command line they look like an option.
        if not text.startswith("-"):
            return text


def ensure_template(version: str, cache: Path, java_run: JavaRun) -> Path:
    """The formatted folder for `version`, made if it is not there. Safe when two processes do it at once."""
    template = cache / "formatted"
    if template.is_dir():
        return template
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".formatted-", dir=cache) as scratch:
        folder = Path(scratch) / "logs"
        config = Path(scratch) / "server.properties"
        plan = ClusterPlan(version, [_NODE])
        config.write_text(to_properties(server_properties(plan, _NODE, folder)), "ascii")
        command = java_run("kafka.tools.StorageTool", "format", "-t", new_id(), "-c", str(config))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise BrokerFailedError(f"kafka-storage format failed:\n{(done.stdout + done.stderr)[-4000:]}")
        (folder / _META).unlink()
        try:
            folder.rename(template)
        except OSError:
            if not template.is_dir():
                raise
            # Another process was first; its template is as good.
    return template


def format_folder(log_dir: Path, template: Path, cluster_id: str, node_id: int) -> None:
    """Make `log_dir` an empty broker's folder. One that is formatted already is left alone."""
    if (log_dir / _META).exists():
        return
    shutil.copytree(template, log_dir, dirs_exist_ok=True)
    meta = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
    # Written last and renamed: a folder with this file is whole.
    temporary = log_dir / f".{_META}.tmp"
    temporary.write_text(to_properties(meta), "ascii")
    os.replace(temporary, log_dir / _META)
