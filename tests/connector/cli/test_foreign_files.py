"""Files and answers that commands read: a value, or one error of ours, whatever somebody's editor has made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from keyorder.connector.cli.connect import _connector
from keyorder.connector.cli.connecting import from_java, read_properties
from keyorder.connector.connect.runtime.launch import Parts
from keyorder.connector.local.errors import ClusterStateError
from keyorder.connector.local.properties import to_properties
from keyorder.connector.local.state import load_state
from keyorder.connector.topology.scaling_policy import load_policies
from keyorder.partitioner.errors import ConfigError, KeyorderError
from support.mutations import DEEP, JSON, bytes_of, changed, mutated, refused, texts

pytestmark = pytest.mark.slow  # hundreds of examples for each reader

NEARLY = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
PROPERTIES = r"""# by hand
bootstrap.servers = localhost:9092
security.protocol: SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
   username="a" \
   password="p\\"b";
sasl.mechanism=PLAIN
note=\ud83d\ude00 \u00e4
"""
WORKER = {
    "bootstrap.servers": "localhost:9092",
    "offset.storage.file.filename": "/nonexistent/offsets",
    "listeners": "http://localhost:0",
    "tasks.max": "1",
    "plugin.path": "",
    "config.providers": "env,file,dir",
    "config.providers.env.class": "EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern": "HO.*",
    "config.providers.file.class": "FileConfigProvider",
    "config.providers.dir.class": "DirectoryConfigProvider",
    "rest.token": "${env:HOME}",
    "producer.linger.ms": "5",
    "offset.flush.interval.ms": "1000",
}
CONNECTOR = {"name": "c", "config": {"connector.class": "FileStreamSource", "file": "/x", "tasks.max": 1, "topic": "t"}}
STATE = {"cluster_id": "id", "version": "4.1.2", "nodes": [{"id": 1, "port": 2, "controller_port": 3}],
         "processes": {"1": {"pid": 1, "created": 2.5}}}  # fmt: skip
POLICIES = """max_partitions = 64
groups = ["g"]
[topics.orders]
max_bytes_per_s = "none"
"""
ODD_TEXTS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        ["(", "\0", "9" * 5000, "${file:\0:k}", "${dir:\0:k}", "${dir:/:\0}", "${env:\0}", "${file:/:k}", "${env:"]
    ),
)


@pytest.mark.slow
@NEARLY
@given(changed(PROPERTIES) | st.text(max_size=30))
@example("a=\\ud83d")
@example("a=\\")
@example("\\")
@example("a=\\u12")
@example("a=b\\\n" * 5_000)
@example("sasl.jaas.config=" + '"' * 5_000)
@example("sasl.jaas.config=x " + 'a="' * 3_000)
def test_a_properties_file(text: str) -> None:
    """Text that any client can have, or ConfigError."""
    found: dict[str, str] = {}
    if not refused(lambda: found.update(from_java(read_properties(text))), ConfigError):
        "".join([*found, *found.values()]).encode()


@given(st.dictionaries(st.text(min_size=1), st.text()))
@example({"a": "\U0001f600"})
@example({"p": "a\u2028b\x0bc\x85d"})
def test_properties_are_read_as_they_were_written(settings: dict[str, str]) -> None:
    """Whatever a password holds, in the words of Java's files."""
    kept = {name: value for name, value in settings.items() if value == value.rstrip()}
    assert read_properties(to_properties(kept)) == kept


@NEARLY
@given(st.dictionaries(st.sampled_from(sorted(WORKER.keys() - {"plugin.path"})), ODD_TEXTS, max_size=3), st.booleans())
@example({"config.providers.env.param.allowlist.pattern": "("}, False)
@example({"rest.token": "${file:\0:k}"}, False)
@example({"rest.token": "${dir:/:\0}"}, False)
@example({"plugin.path": "\0"}, False)
@example({"plugin.path": "9" * 5000}, False)
@example({"offset.flush.interval.ms": "9" * 5000}, False)
def test_a_worker_s_file(odd: dict[str, str], distributed: bool) -> None:
    """The settings of a worker, or an error of ours before anything runs."""
    refused(lambda: Parts.of({**WORKER, **odd}, distributed), KeyorderError)


@NEARLY
@given(bytes_of(texts(mutated(CONNECTOR, CONNECTOR["config"]) | JSON)))
@example(DEEP.encode())
@example(b'"config"')
@example(b"5")
@example(b'{"name":"a","config":[1]}')
@example(b'{"name":"\\ud800"}')
def test_a_connector_s_file(tmp_path: Path, data: bytes) -> None:
    """What POST /connectors takes: names and texts."""
    path = tmp_path / "c.json"
    path.write_bytes(data)
    found: dict[str, str] = {}
    if not refused(lambda: found.update(_connector(path)), ConfigError):
        assert found["name"]
        "".join([*found, *found.values()]).encode()


@NEARLY
@given(bytes_of(texts(mutated(STATE) | JSON)))
@example(DEEP.encode())
@example(json.dumps({**STATE, "nodes": [{"id": float("inf"), "port": 1, "controller_port": 1}]}).encode())
def test_a_local_cluster_s_file(tmp_path: Path, data: bytes) -> None:
    """The state of the brokers, or ClusterStateError."""
    (tmp_path / "cluster.json").write_bytes(data)
    refused(lambda: load_state(tmp_path), ClusterStateError)


@NEARLY
@given(bytes_of(changed(POLICIES)))
@example(b"max_partitions = " + b"9" * 5000)
@example(b"a = " + DEEP.encode())
@example(b"max_partitions = inf")
@example(b"max_partitions = 1979-05-27")
@example(b"groups = [1]")
def test_a_policy_file(tmp_path: Path, data: bytes) -> None:
    """The policies of a controller, or ConfigError."""
    path = tmp_path / "policy.toml"
    path.write_bytes(data)
    refused(lambda: load_policies(path), ConfigError)


def test_what_is_right_is_read(tmp_path: Path) -> None:
    """The tests above would hold of readers that refuse everything."""
    found = from_java(read_properties(PROPERTIES))
    assert (found["sasl.password"], found["note"]) == ('p"b', "\U0001f600 ä")
    assert Parts.of(WORKER, False).settings["producer.linger.ms"] == "5"
    (tmp_path / "c.json").write_text(json.dumps(CONNECTOR))
    assert _connector(tmp_path / "c.json")["tasks.max"] == "1"
    (tmp_path / "p.toml").write_text(POLICIES)
    assert load_policies(tmp_path / "p.toml").of("orders").max_bytes_per_s is None


@pytest.mark.parametrize("text", ["a\nb", "\u20ac", "\udcff"])
def test_a_token_is_one_line(tmp_path: Path, text: str) -> None:
    """Another one cannot travel in a header; its text is told nobody."""
    from keyorder.connector.cli.connect import _token

    path = tmp_path / "token"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match="--token-file") as caught:
        _token(path)
    assert text not in str(caught.value)
