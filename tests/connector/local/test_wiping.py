"""What wiping a local cluster deletes: what the cluster wrote, and nothing that is somebody else's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from keyorder.connector.cli.local import local
from keyorder.connector.local import cluster as module
from keyorder.connector.local.cluster import LocalCluster, wipe_folder
from keyorder.connector.local.java import Java
from keyorder.connector.local.properties import ClusterPlan, Node
from keyorder.connector.local.state import ClusterState, save_state
from keyorder.partitioner.errors import UsageError

FOREIGN = (
    "broker-1-backup/data", "broker-2.old/data", "broker-10/data", "broker-7-notes.txt", "notes.txt",
)  # fmt: skip


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def a_cluster(folder: Path, brokers: int) -> None:
    """What a stopped cluster leaves in its folder."""
    nodes = tuple(Node(number + 1, 20001 + number, 20101 + number) for number in range(brokers))
    write(folder, ".lock", *(f"broker-{node.id}/logs/meta.properties" for node in nodes))
    save_state(folder, ClusterState("id", "4.1.2", nodes))


def down(folder: Path, *words: str) -> dict[str, Any]:
    """The document of `keyorder local down`."""
    done = CliRunner().invoke(local, ["down", "--data-dir", str(folder), "--output", "json", *words])
    if done.exception is not None:
        raise done.exception
    found = json.loads(done.output)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("there", [(), (".lock", "broker-1/data", *FOREIGN)])
def test_a_folder_without_a_cluster_is_left_alone(tmp_path: Path, there: tuple[str, ...]) -> None:
    """`down --wipe` deletes nothing where no cluster was made, whatever the names are, and says so."""
    write(tmp_path, *there)
    assert down(tmp_path, "--wipe") == {"data_dir": str(tmp_path), "stopped": [], "wiped": False}
    assert (tmp_path.is_dir(), files(tmp_path)) == (True, set(there))
    said = CliRunner().invoke(local, ["down", "--data-dir", str(tmp_path), "--wipe"]).output
    assert said == f"Nothing was running in {tmp_path}\nThere is no cluster in {tmp_path}: nothing was deleted\n"


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_cluster_s_own_files_are_wiped(tmp_path: Path, brokers: int) -> None:
    """The folders of its brokers, its state and its lock go; names that only look alike stay."""
    a_cluster(tmp_path, brokers)
    write(tmp_path, *FOREIGN)
    assert down(tmp_path, "--wipe")["wiped"] is True
    assert files(tmp_path) == set(FOREIGN)
    assert down(tmp_path, "--wipe")["wiped"] is False


def test_a_folder_goes_with_the_last_file_in_it(tmp_path: Path) -> None:
    """A cluster's folder that held nothing else is deleted; a link to a broker's folder goes without what it leads to."""
    folder, elsewhere = tmp_path / "cluster", tmp_path / "elsewhere"
    a_cluster(folder, 3)
    (folder / "broker-2").rename(elsewhere)
    (folder / "broker-2").symlink_to(elsewhere)
    assert wipe_folder(folder) is True
    assert (folder.exists(), files(elsewhere)) == (False, {"logs/meta.properties"})


def test_without_wipe_the_data_stay(tmp_path: Path) -> None:
    """`down` alone deletes nothing."""
    a_cluster(tmp_path, 1)
    before = files(tmp_path)
    assert down(tmp_path)["wiped"] is False
    assert files(tmp_path) == before


def test_data_that_cannot_be_deleted_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file and the reason; the cluster is still known, so the same command deletes the rest."""
    a_cluster(tmp_path, 1)
    unlink = os.unlink

    def refuse(path: Any, **options: Any) -> None:
        if os.fspath(path).endswith("meta.properties"):
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        with pytest.raises(UsageError, match=r"broker-1 cannot be deleted: .*not permitted.*meta\.properties"):
            down(tmp_path, "--wipe")
    assert files(tmp_path) == {".lock", "cluster.json", "broker-1/logs/meta.properties"}
    assert down(tmp_path, "--wipe")["wiped"] is True
    assert not tmp_path.exists()


@pytest.mark.parametrize("named", [False, True])
def test_a_start_that_failed_early_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    """Before the state is written only the cluster itself knows its brokers' folders: `wipe` deletes these."""
    write(tmp_path, "template/bootstrap.checkpoint")
    monkeypatch.setattr(module, "find_java", lambda: Java(tmp_path / "java", "17", 17, "test"))
    monkeypatch.setattr(module, "ensure_jars", lambda *_, **__: [])
    monkeypatch.setattr(module, "ensure_template", lambda *_: tmp_path / "template")

    def fail(plan: ClusterPlan, node: Node) -> Mapping[str, str]:
        raise ValueError("no such broker")

    folder = tmp_path / "named" if named else None
    if folder is not None:
        write(folder, *FOREIGN)
    cluster = LocalCluster(folder, brokers=3, node_properties=fail)
    with pytest.raises(ValueError, match="no such broker"):
        cluster.start()
    there = files(cluster.data_dir)
    assert ("broker-3/logs/meta.properties" in there, "cluster.json" in there) == (True, False)
    cluster.wipe()
    assert (files(cluster.data_dir) if named else cluster.data_dir.exists()) == (set(FOREIGN) if named else False)


def test_a_cluster_that_was_never_started_wipes_its_temporary_folder_alone(tmp_path: Path) -> None:
    """Its own folder goes; of a folder that the caller named nothing is its own."""
    temporary = LocalCluster()
    temporary.wipe()
    write(tmp_path, ".lock", "broker-1/data", *FOREIGN)
    LocalCluster(tmp_path).wipe()
    assert not temporary.data_dir.exists()
    assert files(tmp_path) == {".lock", "broker-1/data", *FOREIGN}
