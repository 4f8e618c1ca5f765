"""Locks, broker properties and the files beside them: the parts that need no broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.local.errors import ClusterStateError, UnknownKafkaVersionError
from keyorder.connector.local.processes import ProcessId, free_ports, terminate
from keyorder.connector.local.properties import (
    ClusterPlan,
    Node,
    check_users,
    client_config,
    server_properties,
    to_properties,
)
from keyorder.connector.local.state import ClusterState, load_state, save_state
from keyorder.connector.local.storage import format_folder, new_id
from keyorder.connector.local.versions import DEFAULT_KAFKA_VERSION, known_versions, load_lock, parse_lock
from keyorder.partitioner.errors import UsageError

THREE = ClusterPlan("4.1.2", [Node(i, 20000 + i, 30000 + i) for i in (1, 2, 3)])
JAR = {"path": "g/a/1/a-1.jar", "sha256": "0" * 64, "size": 1}


@pytest.mark.parametrize("version", known_versions())
def test_each_lock_is_whole(version: str) -> None:
    """Every lock has Kafka's server, its clients and one SLF4J binding of the API's version."""
    lock = load_lock(version)
    names = [jar.name for jar in lock.jars]
    assert lock.version == version
    assert {f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar"} <= set(names)
    api = next(name.removeprefix("slf4j-api") for name in names if name.startswith("slf4j-api"))
    assert [name for name in names if name.startswith("slf4j-") and "api" not in name] == [f"slf4j-simple{api}"]
    assert not [name for name in names if name.startswith(("logback", "slf4j-reload4j"))]


def test_the_default_version_is_among_the_known() -> None:
    """The default can be had, and the versions are in order of number and not of spelling."""
    assert DEFAULT_KAFKA_VERSION in known_versions()
    assert list(known_versions()) == sorted(known_versions(), key=lambda v: [int(x) for x in v.split(".")])


@pytest.mark.parametrize("version", ["1.0.0", "", "../kafka-4.1.2", "4.1.2.lock.json"])
def test_an_unknown_version_lists_the_known(version: str) -> None:
    """What is not locked is refused with the list of what is, whatever its spelling."""
    with pytest.raises(UnknownKafkaVersionError, match=re.escape(", ".join(known_versions()))):
        load_lock(version)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kafka": "1", "jars": []},
        {"kafka": "1", "jars": ["a.jar"]},
        {"kafka": "1", "jars": [JAR, JAR]},
        {"kafka": "1", "jars": [JAR | {"path": "../../a.jar"}]},
        {"kafka": "1", "jars": [JAR | {"path": "/etc/a.jar"}]},
        {"kafka": "1", "jars": [JAR | {"path": "a.sh"}]},
        {"kafka": "1", "jars": [JAR | {"sha256": "abc"}]},
        {"kafka": "1", "jars": [JAR | {"size": 0}]},
    ],
)
def test_a_lock_that_is_not_safe_is_refused(document: dict[str, object]) -> None:
    """A lock without checksums, with paths that lead out, or with two jars of one name is no lock."""
    with pytest.raises(ValueError):
        parse_lock(document)


def test_three_brokers_copy_three_times_and_agree_on_the_voters() -> None:
    """With three brokers internal topics have three copies, two in sync, and all name the same quorum."""
    settings = [server_properties(THREE, node, Path("/x")) for node in THREE.nodes]
    assert {s["controller.quorum.voters"] for s in settings} == {
        "1@127.0.0.1:30001,2@127.0.0.1:30002,3@127.0.0.1:30003"
    }
    assert [s["node.id"] for s in settings] == ["1", "2", "3"]
    assert settings[0]["offsets.topic.replication.factor"] == "3"
    assert settings[0]["transaction.state.log.min.isr"] == "2"
    alone = server_properties(ClusterPlan("4.1.2", THREE.nodes[:1]), THREE.nodes[0], Path("/x"))
    assert alone["offsets.topic.replication.factor"] == alone["min.insync.replicas"] == "1"


def test_the_callers_properties_win() -> None:
    """A property of the caller replaces ours."""
    plan = ClusterPlan("4.1.2", THREE.nodes, properties={"num.io.threads": "9"})
    assert server_properties(plan, THREE.nodes[0], Path("/x"))["num.io.threads"] == "9"


def test_a_nodes_own_properties_win_over_all() -> None:
    """They are asked for with the whole plan, and are that node's alone."""
    plan = ClusterPlan(
        "4.1.2",
        THREE.nodes,
        properties={"num.io.threads": "9"},
        node_properties=lambda plan, node: {"num.io.threads": "2"} if node == plan.nodes[1] else {},
    )
    threads = [server_properties(plan, node, Path("/x"))["num.io.threads"] for node in THREE.nodes]
    assert threads == ["9", "2", "9"]


def test_nothing_listens_beyond_the_loopback_interface() -> None:
    """A cluster for trying out is not offered to the network."""
    listeners = server_properties(THREE, THREE.nodes[0], Path("/x"))["listeners"]
    assert {part.split("//")[1].split(":")[0] for part in listeners.split(",")} == {"127.0.0.1"}


def test_users_get_a_client_configuration_each() -> None:
    """The first user is the default and super user; a name that is not there is refused; no users, no SASL."""
    plan = ClusterPlan("4.1.2", THREE.nodes, users={"root": "a", "eve": "b"})
    assert client_config(plan)["sasl.username"] == "root"
    assert client_config(plan, "eve")["sasl.password"] == "b"
    assert server_properties(plan, plan.nodes[0], Path("/x"))["super.users"] == "User:root"
    with pytest.raises(UsageError, match="'bob'"):
        client_config(plan, "bob")
    assert client_config(THREE) == {"bootstrap.servers": THREE.bootstrap_servers}
    with pytest.raises(UsageError, match="no users"):
        client_config(THREE, "eve")
    with pytest.raises(UsageError, match="password") as caught:
        check_users({"eve": "secret\n"})
    assert "secret" not in str(caught.value)


def read_properties(text: str) -> dict[str, str]:
    """Java's rules for a properties file, as far as a writer may use them."""

    def plain(part: str) -> str:
        units = re.sub(r"\\u([0-9a-f]{4})", lambda m: chr(int(m[1], 16)), part)
        joined = units.encode("utf-16", "surrogatepass").decode("utf-16")
        return re.sub(r"\\(.)", r"\1", joined)

    found = {}
    for line in text.split("\n"):
        if line:
            match = re.fullmatch(r"((?:[^\\:= ]|\\.)*)=(.*)", line)
            assert match, line
            assert not match[2].startswith(" ")
            found[plain(match[1])] = plain(match[2])
    return found


@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
        # A backslash before u would need a reader that goes character by character.
        st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "\\" not in text),
    )
)
def test_properties_can_be_read_back(settings: dict[str, str]) -> None:
    """Whatever is in keys and values, Java reads what was written; the file is ASCII."""
    settings = {key: value for key, value in settings.items() if "\\" not in key}
    text = to_properties(settings)
    assert text.isascii()
    assert read_properties(text) == settings


def test_backslashes_and_quotes_of_a_password_survive() -> None:
    """Two levels of quoting, JAAS inside properties, each undone by its reader."""
    assert to_properties({"a": 'p="\\\\"'}) == 'a=p="\\\\\\\\"\n'


def test_a_folder_is_formatted_once(tmp_path: Path) -> None:
    """Each broker gets the template with an identity of its own; what is there is never formatted again."""
    template = tmp_path / "template"
    template.mkdir()
    (template / "bootstrap.checkpoint").write_bytes(b"features")
    format_folder(tmp_path / "logs", template, "cluster-1", 2)
    meta = (tmp_path / "logs" / "meta.properties").read_text()
    assert {"version=1", "cluster.id=cluster-1", "node.id=2"} < set(meta.split())
    assert (tmp_path / "logs" / "bootstrap.checkpoint").read_bytes() == b"features"
    format_folder(tmp_path / "logs", template, "cluster-2", 2)
    assert (tmp_path / "logs" / "meta.properties").read_text() == meta


def test_ids_look_like_kafkas() -> None:
    """22 characters of URL-safe base64 that no command line takes for an option."""
    for _ in range(200):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", new_id())


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    """State survives the file; no file is no cluster; a file of something else is refused by name."""
    assert load_state(tmp_path) is None
    state = ClusterState("id", "4.1.2", tuple(THREE.nodes), {1: ProcessId(1, 2.5)})
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state
    for wrong in ("", "[]", "{}", json.dumps({"cluster_id": 1, "version": 2, "nodes": 3})):
        (tmp_path / "cluster.json").write_text(wrong)
        with pytest.raises(ClusterStateError, match=r"cluster\.json"):
            load_state(tmp_path)


def test_a_number_that_is_another_process_now_is_not_touched() -> None:
    """A recorded process is its number and its time of birth: another process of that number lives on."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        true = ProcessId.of(process.pid)
        other = ProcessId(process.pid, true.created - 3600)
        assert other.find() is None
        terminate([other], grace=0)
        assert process.poll() is None
        terminate([true], grace=0)
        process.wait(120)
        assert true.find() is None
    finally:
        process.kill()
        process.communicate()


def test_a_process_is_found_when_the_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system computes times of birth from its boot time, and that from the clock."""
    boot = psutil.boot_time()
    this = ProcessId.of(os.getpid())
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot + 180)  # type: ignore[attr-defined]
    assert this.find() is not None


def test_free_ports_are_different_and_below_the_ephemeral_ones() -> None:
    """Ports for brokers: no two the same, none that an outgoing connection could be given on Linux."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32768
