"""`keyorder local up|down|status`: a real Kafka on this machine for trying things out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...partitioner.errors import ConfigError
from ..local.repository import state_dir
from ..local.state import ClusterState, broker_folder, load_state
from ..local.versions import DEFAULT_KAFKA_VERSION, known_versions
from .output import emit, emit_json, is_terminal, output_option

if TYPE_CHECKING:
    from ..local.jars import Progress

_COLUMNS = ("broker", "state", "address", "pid", "log")

_data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where the brokers keep their data. By default 'keyorder/local' in the user's state folder.",
)


@click.group()
def local() -> None:
    """Start, stop and inspect a real Kafka on this machine."""


@local.command()
@click.option("--brokers", type=click.Choice(["1", "3"]), default=None, help="How many brokers. [default: 1]")
@click.option(
    "--kafka-version",
    default=None,
    help=f"One of {', '.join(known_versions())}. [default: {DEFAULT_KAFKA_VERSION}]",
)
@_data_dir_option
@click.option(
    "--port",
    type=click.IntRange(1024, 65533),
    default=None,
    help="Port of the first broker, the others follow. By default that of the last time, else a free one.",
)
@click.option("--foreground", is_flag=True, help="Stay until interrupted, and stop the brokers then.")
@output_option
def up(
    brokers: str | None,
    kafka_version: str | None,
    data_dir: Path | None,
    port: int | None,
    foreground: bool,
    output: str,
) -> None:
    """Start the brokers and wait until they accept clients. Running it again changes nothing.

    The first run fetches Kafka, some 45 MB, into the user's cache folder.
    """
    from ..local.errors import AlreadyRunningError

    folder = _folder(data_dir)
    try:
        _start(folder, brokers, kafka_version, port, foreground, output)
    except AlreadyRunningError:
        state = load_state(folder)
        if state is None or foreground:
            raise
        _check_same(folder, state, brokers, kafka_version, port)
        document = _document(folder, state)
        _show(output, state, {**document, "already_running": True})


def _start(
    folder: Path,
    brokers: str | None,
    kafka_version: str | None,
    port: int | None,
    foreground: bool,
    output: str,
) -> None:
    # Here and not at the top: `status` and `down` do without the starting half.
    from ..local.cluster import LocalCluster
    from ..local.errors import AlreadyRunningError

    state = load_state(folder)
    if state is not None and state.running():
        # Known before Java is looked for and jars are verified.
        raise AlreadyRunningError(f"the cluster in {folder} is running already")
    # What is not said is as it was the last time in this folder.
    count = int(brokers) if brokers else len(state.nodes) if state else 1
    version = kafka_version or (state.version if state else DEFAULT_KAFKA_VERSION)
    with _progress(version) as progress:
        cluster = LocalCluster(folder, brokers=count, version=version, port=port, progress=progress)
        cluster.start()
    started = load_state(folder)
    assert started is not None
    document = {**_document(folder, started), "already_running": False}
    if not foreground:
        cluster.detach()
        _show(output, started, document)
        return
    try:
        _show(output, started, document)
        if sys.stdout is not None:  # closed when it began
            sys.stdout.flush()
        threading.Event().wait()
    except KeyboardInterrupt:
        pass  # the way to end a foreground cluster
    finally:
        cluster.stop()


@local.command()
@_data_dir_option
@click.option("--wipe", is_flag=True, help="Delete the data as well; other files in the folder stay.")
@output_option
def down(data_dir: Path | None, wipe: bool, output: str) -> None:
    """Stop the brokers. Their data stay unless --wipe is given."""
    from ..local.cluster import stop_cluster, wipe_folder

    folder = _folder(data_dir)
    stopped = stop_cluster(folder)
    wiped = wipe and wipe_folder(folder)
    if output == "json":
        emit_json({"data_dir": str(folder), "stopped": stopped, "wiped": wiped})
        return
    if stopped:
        click.echo(f"Stopped broker(s) {', '.join(map(str, stopped))} in {folder}")
    else:
        click.echo(f"Nothing was running in {folder}")
    if wipe and not wiped:
        click.echo(f"There is no cluster in {folder}: nothing was deleted")


@local.command()
@_data_dir_option
@output_option
def status(data_dir: Path | None, output: str) -> None:
    """Show which brokers run, as the operating system sees them."""
    folder = _folder(data_dir)
    state = load_state(folder)
    if state is None:
        if output == "json":
            emit_json({"state": "absent", "data_dir": str(folder), "brokers": []})
        else:
            click.echo(f"There is no cluster in {folder}: `keyorder local up` makes one")
        return
    _show(output, state, _document(folder, state))


def _folder(data_dir: Path | None) -> Path:
    try:
        return (data_dir or state_dir() / "local").expanduser().absolute()
    except RuntimeError as error:  # Python cannot tell where `~`, or `~somebody`, is
        raise ConfigError("--data-dir", "its home folder is not known here", "give an absolute path") from error


def _check_same(folder: Path, state: ClusterState, brokers: str | None, version: str | None, port: int | None) -> None:
    """ClusterStateError unless what runs is whole and is what is asked for."""
    from ..local.errors import ClusterStateError

    wrong = []
    if brokers is not None and int(brokers) != len(state.nodes):
        wrong.append(f"{len(state.nodes)} broker(s)")
    if version is not None and version != state.version:
        wrong.append(f"Kafka {state.version}")
    if port is not None and port != state.nodes[0].port:
        wrong.append(f"port {state.nodes[0].port}")
    if len(state.running()) < len(state.nodes):
        wrong.append(f"only broker(s) {', '.join(map(str, sorted(state.running())))} left")
    if wrong:
        raise ClusterStateError(
            f"a cluster with {' and '.join(wrong)} runs in {folder}: end it with `keyorder local down` first"
        )


def _show(output: str, state: ClusterState, document: dict[str, Any]) -> None:
    rows = [
        (each["id"], each["state"], f"{each['host']}:{each['port']}", each["pid"], each["log"])
        for each in document["brokers"]
    ]
    if output == "table":
        running = {"running": "is running", "stopped": "is stopped", "partial": "is running in part"}
        again = " already" if document.get("already_running") else ""
        click.echo(f"Kafka {state.version} {running[document['state']]}{again}: {document['bootstrap_servers']}")
    emit(output, document, _COLUMNS, rows)


def _document(folder: Path, state: ClusterState) -> dict[str, Any]:
    """The documented object of `up` and `status`."""
    from ..local.properties import HOST

    running = state.running()
    overall = "stopped" if not running else "running" if len(running) == len(state.nodes) else "partial"
    return {
        "state": overall,
        "bootstrap_servers": state.plan.bootstrap_servers,
        "data_dir": str(folder),
        "version": state.version,
        "brokers": [
            {
                "id": node.id,
                "state": "running" if node.id in running else "stopped",
                "host": HOST,
                "port": node.port,
                "pid": running[node.id].pid if node.id in running else None,
                "log": str(broker_folder(folder, node.id) / "server.log"),
            }
            for node in state.nodes
        ],
    }


@contextmanager
def _progress(version: str) -> Iterator[Progress | None]:
    """A bar on stderr while jars arrive; nothing where stderr is no terminal or nothing is missing."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"fetching Kafka {version}", total=None, visible=False)
        yield lambda there, needed: bar.update(task, completed=there, total=needed, visible=there < needed)
