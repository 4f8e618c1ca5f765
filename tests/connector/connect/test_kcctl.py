"""kcctl's requests, in the order in which its commands make them; its answers read as its classes read them.

kcctl is no Python package. With its command in KEYORDER_KCCTL (`kcctl`, or `java -jar .../quarkus-run.jar`) the
program itself runs, too.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from keyorder.connector.connect.rest.process import WorkerProcess
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, await_leader, group_settings, until

TOKEN = "0123456789abcdef"
# The records of kcctl's REST client: a class is a dict of its members, a list of one shape a List, {None: shape} a Map.
TEXTS = {None: str}
TASK_ID = {"connector": str, "task": int}
TASK_STATE = {"id": int, "state": str, "worker_id": str, "trace": str}
STATUS = {"name": str, "connector": {"state": str, "worker_id": str}, "type": str, "tasks": [TASK_STATE]}
INFO = {"name": str, "config": TEXTS, "tasks": [TASK_ID], "type": str}
CREATED = {"name": str, "type": str}  # it reads a new connector as a status, which lacks what is no status
WORKER_INFO = {"version": str, "commit": str, "kafka_cluster_id": str}
PLUGIN = {"class": str, "type": str, "version": str}
OFFSETS = {"offsets": [{"partition": {None: object}, "offset": {None: object}}]}
MESSAGE = {"message": str}
KEY = {
    "name": str,
    "type": str,
    "required": bool,
    "default_value": str,
    "importance": str,
    "documentation": str,
    "group": str,
    "width": str,
    "dependents": [str],
}
VALUE = {"name": str, "value": str, "errors": [str], "visible": bool}
CONFIGS = {"name": str, "error_count": int, "groups": [str], "configs": [{"definition": KEY, "value": VALUE}]}
ERROR = {"error_code": int, "message": str}
# null where the JVM has null, too
OPTIONAL = {"trace", "default_value", "group", "value"}


def read(shape: Any, document: Any, where: str = "$") -> Any:
    """The document, if Jackson makes that shape of it: further members are left out, types must be those."""
    if isinstance(shape, list):
        assert isinstance(document, list), (where, document)
        for number, each in enumerate(document):
            read(shape[0], each, f"{where}[{number}]")
    elif isinstance(shape, dict):
        assert isinstance(document, dict), (where, document)
        for name, inner in shape.items():
            if name is None:
                for key, value in document.items():
                    read(inner, value, f"{where}.{key}")
            elif name in OPTIONAL and document.get(name) is None:
                continue
            else:
                assert name in document, (where, name, document)
                read(inner, document[name], f"{where}.{name}")
    else:
        assert isinstance(document, shape), (where, document)
        assert not (shape is int and isinstance(document, bool)), (where, document)
    return document


@pytest.fixture(scope="module")
def url(kafka: KafkaUnderTest) -> Iterator[str]:
    """A worker that asks for a token."""
    with WorkerProcess(group_settings(kafka, "kcctl-test") | {"rest.token": TOKEN}, in_group=True) as one:
        await_leader(one.url, auth=("any", TOKEN))
        yield one.url


@pytest.fixture
def rest(url: str) -> RestClient:
    """Basic, as kcctl; no redirect is followed."""
    media = {"Accept": "application/json", "Content-Type": "application/json"}
    return RestClient(url, auth=("any", TOKEN), headers=media, follow_redirects=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of two lines."""
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\n")
    return path


def source(file: Path, topic: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(file),
        "topic": f"{topic}-lines",
        "topic.creation.default.partitions": "1",
    }


def test_apply_get_describe(rest: RestClient, file: Path, topic_name: str) -> None:
    """`apply` (new, changed, --dry-run, refused), `get connectors`, `get plugins`, `describe`."""
    config, c = source(file, topic_name), f"/connectors/{topic_name}"
    assert topic_name not in read([str], rest.ok("GET", "/connectors/"))
    created = rest.settled("POST", "/connectors/", {"name": topic_name, "config": config})
    assert created.status_code == 201
    read(CREATED, created.json())
    rest.running(topic_name, 1)
    read(CREATED, rest.ok("PUT", f"{c}/config", {**config, "batch.size": "10"}))
    valid = read(
        CONFIGS, rest.ok("PUT", "/connector-plugins/FileStreamSource/config/validate", {"name": "x", **config})
    )
    assert valid["error_count"] == 0
    refused = rest.settled("POST", "/connectors/", {"name": "x", "config": {"connector.class": "Nope"}})
    assert refused.status_code >= 400
    assert "Nope" in read(ERROR, refused.json())["message"]

    version = read(WORKER_INFO, rest.ok("GET", "/"))["version"]
    assert tuple(map(int, version.split("."))) >= (3, 6)  # what its commands ask for
    expanded = rest.ok("GET", "/connectors?expand=status&expand=info")
    read({None: {"status": STATUS, "info": INFO}}, expanded)
    assert expanded[topic_name]["info"]["config"]["batch.size"] == "10"
    assert {p["type"] for p in read([PLUGIN], rest.ok("GET", "/connector-plugins?connectorsOnly=false"))} >= {
        "source",
        "sink",
        "transformation",
        "predicate",
        "converter",
        "header_converter",
    }
    rest.running(topic_name, 1)
    until(lambda: rest.ok("GET", f"{c}/topics")[topic_name]["topics"], "its topic")
    assert read(INFO, rest.ok("GET", c))["type"] == "source"
    read(STATUS, rest.ok("GET", f"{c}/status"))
    read(TEXTS, rest.ok("GET", f"{c}/config"))
    read([{"id": TASK_ID, "config": TEXTS}], rest.ok("GET", f"{c}/tasks"))
    read({None: {"topics": [str]}}, rest.ok("GET", f"{c}/topics"))
    keys = read([KEY], rest.ok("GET", f"/connector-plugins/{config['connector.class']}/config"))
    assert {"file", "topic", "tasks.max"} <= {key["name"] for key in keys}
    read({None: {"level": str}}, rest.ok("GET", "/admin/loggers"))
    read([str], rest.ok("PUT", "/admin/loggers/org.apache.kafka.connect", {"level": "INFO"}))
    missing = rest("GET", "/connectors/nothing")
    assert (missing.status_code, read(ERROR, missing.json())["error_code"]) == (404, 404)
    assert rest.settled("DELETE", c).status_code == 204


def test_stop_and_offsets(rest: RestClient, file: Path, topic_name: str) -> None:
    """`stop`, `get offsets`, `patch offsets`, `delete offsets`, `pause`, `resume`, `restart`."""
    c, place = f"/connectors/{topic_name}", {"filename": str(file)}
    rest.ok("POST", "/connectors/", {"name": topic_name, "config": source(file, topic_name)})
    rest.running(topic_name, 1)
    until(lambda: read(OFFSETS, rest.ok("GET", f"{c}/offsets"))["offsets"], "offsets")
    for what, state in (("pause", "PAUSED"), ("resume", "RUNNING")):
        assert rest.settled("PUT", f"{c}/{what}").status_code == 202
        until(lambda state=state: rest.states(topic_name) == (state, [state]), state)
    assert rest.settled("POST", f"{c}/restart").status_code == 204
    assert rest.settled("POST", f"{c}/tasks/0/restart").status_code == 204
    rest.running(topic_name, 1)
    restarted = rest.settled("POST", f"{c}/restart?includeTasks=true&onlyFailed=false")
    assert restarted.status_code == 202
    read(STATUS, restarted.json())
    rest.running(topic_name, 1)
    assert rest.settled("PUT", f"{c}/stop").status_code == 204
    until(lambda: rest.states(topic_name) == ("STOPPED", []), "stopped")
    assert rest.ok("GET", f"{c}/offsets") == {"offsets": [{"partition": place, "offset": {"position": 8}}]}
    read(MESSAGE, rest.ok("DELETE", f"{c}/offsets"))
    changed = {"offsets": [{"partition": place, "offset": {"position": 4}}]}
    read(MESSAGE, rest.ok("PATCH", f"{c}/offsets", changed))
    assert rest.ok("GET", f"{c}/offsets") == changed
    assert rest.settled("PUT", f"{c}/resume").status_code == 202
    until(lambda: rest.ok("GET", f"{c}/offsets")["offsets"][0]["offset"] == {"position": 8}, "the second line again")
    assert rest.settled("DELETE", c).status_code == 204


@pytest.mark.skipif(
    "KEYORDER_KCCTL" not in os.environ, reason="KEYORDER_KCCTL names no command: kcctl is not installed"
)
@pytest.mark.timeout(900)
def test_kcctl_itself(url: str, file: Path, topic_name: str, tmp_path: Path) -> None:
    """Its commands end with 0 and show what is there; what is not there is an error."""
    env = {**os.environ, "JAVA_TOOL_OPTIONS": f"-Duser.home={tmp_path}", "HOME": str(tmp_path)}

    def run(*words: str, wrong: bool = False) -> str:
        command: Sequence[str] = [*shlex.split(os.environ["KEYORDER_KCCTL"]), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert (done.returncode != 0) == wrong, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    connector = tmp_path / "connector.json"
    connector.write_text(json.dumps({"name": topic_name, "config": source(file, topic_name)}))
    run("config", "set-context", "here", f"--cluster={url}", "--username=any", f"--password={TOKEN}")
    assert "4.1.2" in run("info")
    assert "valid" in run("apply", "-f", str(connector), "--dry-run")
    assert "Created" in run("apply", "-f", str(connector))
    assert "Updated" in run("apply", "-f", str(connector))
    until(lambda: run("get", "connectors").count("RUNNING") == 2, "it runs", 300)
    assert "FileStreamSinkConnector" in run("get", "plugins")
    assert "RegexRouter" in run("get", "plugins", "--types=transformation")
    assert f"{topic_name}-lines" in run("describe", "connector", topic_name)
    assert "batch.size" in run("describe", "plugin", "FileStreamSource")
    assert "keyorder" in run("get", "loggers")
    until(lambda: '"position" : 8' in run("get", "offsets", topic_name), "its offset", 300)
    run("restart", "connector", topic_name)
    assert "Stopped" in run("stop", "connector", topic_name)
    until(lambda: "STOPPED" in run("get", "connectors"), "it is stopped", 300)
    assert "reset" in run("delete", "offsets", topic_name)
    place, offset = json.dumps({"filename": str(file)}), json.dumps({"position": 4})
    run("patch", "offsets", topic_name, f"--source-partition={place}", f"--source-offset={offset}")
    assert '"position" : 4' in run("get", "offsets", topic_name)
    run("resume", "connector", topic_name)
    run("describe", "connector", "nothing", wrong=True)
    assert "Deleted" in run("delete", "connector", topic_name)
