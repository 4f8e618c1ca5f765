"""The REST against Kafka Connect's documented statuses and shapes, asked of the leader and of a follower."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.rest.security import listener_of
from keyorder.connector.connect.runtime.settings import worker_definition
from keyorder.partitioner.errors import ConfigError
from support.cluster import KafkaUnderTest
from support.connect_rig import MemorySink, RestClient, group_settings, until, worker_settings


@pytest.fixture(scope="module")
def group(kafka: KafkaUnderTest) -> Iterator[tuple[RestClient, RestClient]]:
    """(leader, follower) of two workers."""
    settings = group_settings(kafka, "rest-test")
    with WorkerProcess(settings, in_group=True) as one:
        until(lambda: one.operations.herder.leading, "the first worker leads")
        with WorkerProcess(settings, in_group=True) as two:
            # Whoever comes may take the lead; wait until both agree on one of them.
            def agreed() -> bool:
                herders = [w.operations.herder for w in (one, two)]
                leaders = [h for h in herders if h.leading]
                return (
                    len(leaders) == 1
                    and len(leaders[0].membership.members() or ()) == 2
                    and all(h.state.assignment.leader == leaders[0].membership.member for h in herders)
                )

            until(agreed, "one of them leads")
            leader, follower = (one, two) if one.operations.herder.leading else (two, one)
            yield RestClient(leader.url), RestClient(follower.url)


@pytest.fixture(params=["leader", "follower"])
def rest(request: pytest.FixtureRequest, group: tuple[RestClient, RestClient]) -> RestClient:
    """Each of the two: a follower forwards what only the leader can do."""
    return group[0] if request.param == "leader" else group[1]


@pytest.fixture
def topic(kafka: KafkaUnderTest, topic_name: str) -> str:
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    return topic_name


def sink(topic: str, **more: str) -> dict[str, str]:
    return {"connector.class": "MemorySink", "topics": topic, **more}


def test_the_life_of_a_connector(rest: RestClient, topic: str, kafka: KafkaUnderTest) -> None:
    """Every documented call with its documented status and shape."""
    c = f"/connectors/{topic}"
    root = rest.ok("GET", "/")
    assert set(root) == {"version", "commit", "kafka_cluster_id"}
    assert rest.ok("GET", "/health")["status"] == "healthy"

    made = rest("POST", "/connectors", {"name": topic, "config": sink(topic, **{"tasks.max": "2"})})
    assert made.status_code == 201
    assert made.headers["location"] == c
    assert made.json()["name"] == topic
    assert made.json()["type"] == "sink"
    assert rest("POST", "/connectors", {"name": topic, "config": sink(topic)}).status_code == 409
    rest.running(topic, 2)
    assert topic in rest.ok("GET", "/connectors")
    expanded = rest.ok("GET", "/connectors?expand=status&expand=info")[topic]
    assert set(expanded) == {"status", "info"}
    info = rest.ok("GET", c)
    assert info["tasks"] == [{"connector": topic, "task": 0}, {"connector": topic, "task": 1}]
    assert rest.ok("GET", f"{c}/config") == {"name": topic, **sink(topic, **{"tasks.max": "2"})}
    status = rest.ok("GET", f"{c}/status")
    assert (status["name"], status["type"]) == (topic, "sink")
    assert [set(task) for task in status["tasks"]] == [{"id", "state", "worker_id"}] * 2
    assert [task["id"] for task in rest.ok("GET", f"{c}/tasks")] == [{"connector": topic, "task": i} for i in range(2)]
    assert rest.ok("GET", f"{c}/tasks/1/status")["state"] == "RUNNING"
    assert rest.ok("GET", f"{c}/topics") == {topic: {"topics": []}}
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic, "1", "k")
    until(lambda: rest.ok("GET", f"{c}/topics") == {topic: {"topics": [topic]}}, "its topic is known")

    assert rest("PUT", f"{c}/config", sink(topic)).status_code == 200
    rest.running(topic, 1)
    patched = rest("PATCH", f"{c}/config", {"tasks.max": "2", "errors.log.enable": "true"})
    assert (patched.status_code, patched.json()["config"]["tasks.max"]) == (200, "2")
    assert "errors.log.enable" not in rest("PATCH", f"{c}/config", {"errors.log.enable": None}).json()["config"]
    rest.running(topic, 2)

    for call, code, state in (("pause", 202, "PAUSED"), ("pause", 202, "PAUSED"), ("resume", 202, "RUNNING")):
        assert rest("PUT", f"{c}/{call}").status_code == code
        until(lambda s=state: rest.states(topic) == (s, [s, s]), f"all are {state}")
    assert rest("POST", f"{c}/restart").status_code == 204
    restarted = rest("POST", f"{c}/restart?includeTasks=true")
    assert restarted.status_code == 202
    assert [task["state"] for task in restarted.json()["tasks"]] == ["RESTARTING"] * 2
    rest.running(topic, 2)
    assert rest("POST", f"{c}/tasks/0/restart").status_code == 204
    rest.running(topic, 2)
    assert rest("PUT", f"{c}/topics/reset").status_code == 202

    assert rest("PATCH", f"{c}/offsets", {"offsets": [offset(topic, 0, 0)]}).status_code == 400
    assert rest("PUT", f"{c}/stop").status_code == 204
    until(lambda: rest.states(topic) == ("STOPPED", []), "it is stopped")
    assert rest("DELETE", c).status_code == 204
    until(lambda: rest("GET", c).status_code == 404, "it is forgotten")
    assert rest("PUT", f"{c}/config", sink(topic)).status_code == 201
    assert rest("DELETE", c).status_code == 204


def offset(topic: str, partition: int, number: int) -> dict[str, Any]:
    return {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": {"kafka_offset": number}}


def test_offsets_change_only_while_stopped_and_only_in_order(
    rest: RestClient, topic: str, kafka: KafkaUnderTest
) -> None:
    """Read, set, reset in Connect's shape; a position behind a gate whose origin is not there is refused."""
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(40):
            producer.produce(topic, str(i), f"k{i % 20}")
    admin = TopicAdmin(kafka.client_config())
    admin.expand(topic, 3)
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(40, 80):
            producer.produce(topic, str(i), f"k{i % 20}")
    epoch = admin.timeline(topic).epochs[-1]
    origin, ends = next(iter(epoch.ends.items()))
    rest.ok("POST", "/connectors", {"name": topic, "config": sink(topic)})
    until(lambda: len(MemorySink.values(topic)) == 80, "all is delivered")
    until(
        lambda: (
            sum(o["offset"]["kafka_offset"] for o in rest.ok("GET", f"/connectors/{topic}/offsets")["offsets"]) == 80
        ),
        "all is committed",
    )
    read = rest.ok("GET", f"/connectors/{topic}/offsets")["offsets"]
    path = f"/connectors/{topic}/offsets"
    assert "STOPPED" in rest("DELETE", path).json()["message"]
    rest.ok("PUT", f"/connectors/{topic}/stop")
    until(lambda: rest.states(topic) == ("STOPPED", []), "it is stopped")
    until(lambda: rest("PATCH", path, {"offsets": [read[0]]}).status_code == 200, "the group is empty")

    refused = rest("PATCH", path, {"offsets": [offset(topic, origin, ends - 1)]})
    assert refused.status_code == 400
    assert "gate" in refused.json()["message"]
    assert rest.ok("GET", path)["offsets"] == read
    for wrong in ({}, {"offsets": []}, {"offsets": [{"partition": {}}]}, {"offsets": [offset("other", 0, 0)]}):
        assert rest("PATCH", path, wrong).status_code == 400, wrong
    assert rest("PATCH", path, {"offsets": [offset(topic, 0, 10**9)]}).status_code == 400
    assert rest("PATCH", path, {"offsets": [offset(topic, p, 0) for p in range(3)]}).status_code == 200
    assert rest("DELETE", path).status_code == 200
    assert rest.ok("GET", path) == {"offsets": []}
    rest.ok("PUT", f"/connectors/{topic}/resume")
    until(lambda: len(MemorySink.values(topic)) == 160, "all comes again")
    for k in range(20):
        assert MemorySink.values(topic, f"k{k}")[4:] == [str(i) for i in range(k, 80, 20)]
    rest.ok("DELETE", f"/connectors/{topic}")


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/connectors/none", None, 404),
        ("GET", "/connectors/none/status", None, 404),
        ("GET", "/connectors/none/config", None, 404),
        ("GET", "/connectors/none/offsets", None, 404),
        ("GET", "/connectors/none/topics", None, 404),
        ("GET", "/connectors/none/tasks/0/status", None, 404),
        ("PUT", "/connectors/none/pause", None, 404),
        ("PUT", "/connectors/none/stop", None, 404),
        ("POST", "/connectors/none/restart", None, 404),
        ("POST", "/connectors/none/tasks/0/restart", None, 404),
        ("DELETE", "/connectors/none", None, 404),
        ("PATCH", "/connectors/none/config", {"a": "b"}, 404),
        ("GET", "/nothing", None, 404),
        ("POST", "/connectors/none", None, 405),
        ("POST", "/connectors", None, 400),
        ("POST", "/connectors", [], 400),
        ("POST", "/connectors", {"name": "x"}, 400),
        ("POST", "/connectors", {"name": "x", "config": {}}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": "Nope"}}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": "os:system", "topics": "t"}}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": "MemorySink"}}, 400),
        ("POST", "/connectors", {"name": "a/b", "config": {"connector.class": "MemorySink", "topics": "t"}}, 400),
        (
            "POST",
            "/connectors",
            {"name": "x", "config": {"name": "y", "connector.class": "MemorySink", "topics": "t"}},
            400,
        ),
        (
            "POST",
            "/connectors",
            {"name": "x", "initial_state": "odd", "config": {"connector.class": "MemorySink"}},
            400,
        ),
        ("PUT", "/connector-plugins/Nope/config/validate", {}, 404),
        ("GET", "/connector-plugins/Nope/config", None, 404),
        ("PUT", "/connector-plugins/MemorySink/config/validate", {"connector.class": "FileStreamSink"}, 400),
        ("GET", "/admin/loggers/none", None, 404),
        ("PUT", "/admin/loggers/keyorder.connect", {"level": "LOUD"}, 400),
        ("PUT", "/admin/loggers/uvicorn", {"level": "INFO"}, 404),
    ],
)
def test_errors_have_connect_s_status_and_shape(rest: RestClient, method: str, path: str, body: Any, code: int) -> None:
    """{"error_code", "message"}, the code that of the status."""
    found = rest(method, path, body)
    assert found.status_code == code, found.text
    assert set(found.json()) == {"error_code", "message"}
    assert found.json()["error_code"] == code
    assert found.json()["message"]


def test_a_web_page_cannot_use_the_loopback(rest: RestClient) -> None:
    """A browser names the page's origin; without a token such requests are refused."""
    found = rest.http.post("/connectors", json={}, headers={"Origin": "http://evil.example"})
    assert (found.status_code, found.json()["error_code"]) == (403, 403)


def test_exactly_once_can_be_required(rest: RestClient) -> None:
    """This worker does not offer it, so a connector that needs it is not made."""
    config = {"connector.class": "FileStreamSource", "file": "x", "topic": "t", "exactly.once.support": "required"}
    found = rest("POST", "/connectors", {"name": "never", "config": config})
    assert found.status_code == 400
    assert "exactly.once" in found.json()["message"]


def test_a_body_that_is_no_json_is_refused(rest: RestClient) -> None:
    """And one that is too long."""
    assert rest.http.post("/connectors", content=b"{").status_code == 400
    assert rest.http.post("/connectors", content=b"x" * (2 << 20)).status_code == 413


def test_plugins_and_their_settings(rest: RestClient) -> None:
    """Connectors alone, or all; settings with Connect's names; validate collects all errors."""
    plugins = rest.ok("GET", "/connector-plugins")
    assert {"class": "FileStreamSinkConnector", "type": "sink", "version": "1"} in plugins
    kinds = {p["type"] for p in rest.ok("GET", "/connector-plugins?connectorsOnly=false")}
    assert kinds == {"sink", "source", "transformation", "predicate", "converter"}
    assert {s["name"] for s in rest.ok("GET", "/connector-plugins/FileStreamSource/config")} == {
        "file",
        "topic",
        "key.delimiter",
        "batch.size",
    }
    given = {"connector.class": "FileStreamSource", "name": "x", "batch.size": "0", "tasks.max": "many"}
    answer = rest.ok("PUT", "/connector-plugins/FileStreamSource/config/validate", given)
    wrong = {c["value"]["name"] for c in answer["configs"] if c["value"]["errors"]}
    assert wrong == {"file", "topic", "batch.size", "tasks.max"}
    assert answer["error_count"] == 4
    assert "Common" in answer["groups"]


def test_secrets_are_resolved_in_the_worker_alone(kafka: KafkaUnderTest, tmp_path: Path, topic: str) -> None:
    """A placeholder is stored and shown as it was given; what it stands for shows in no answer, not even in a trace."""
    (tmp_path / "secret.txt").write_text("bad-hunter2")
    settings = worker_settings(kafka, tmp_path) | {
        "listeners": "http://127.0.0.1:0",
        "config.providers": "dir",
        "config.providers.dir.class": "DirectoryConfigProvider",
    }
    placeholder = f"${{dir:{tmp_path}:secret.txt}}"
    config = sink(topic, **{"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "v"})
    config |= {
        "transforms": "c",
        "transforms.c.type": "Cast$Value",
        "transforms.c.spec": "int32",
        "db.password": placeholder,
    }
    config |= {"transforms.h.field": placeholder}
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic, "bad-hunter2", "k")
    with WorkerProcess(settings, in_group=False) as worker:
        rest = RestClient(worker.url)
        rest.ok("POST", "/connectors", {"name": topic, "config": config})
        until(lambda: rest.states(topic)[1] == ["FAILED"], "the record cannot be cast")
        answers = [
            rest(method, path, body).text
            for method, path, body in (
                ("GET", f"/connectors/{topic}", None),
                ("GET", f"/connectors/{topic}/config", None),
                ("GET", f"/connectors/{topic}/tasks", None),
                ("GET", f"/connectors/{topic}/status", None),
                ("GET", "/connectors?expand=info&expand=status", None),
                ("PUT", "/connector-plugins/MemorySink/config/validate", {"name": topic, **config}),
            )
        ]
        assert [a for a in answers if "hunter2" in a] == []
        assert rest.ok("GET", f"/connectors/{topic}/config")["db.password"] == placeholder
        assert "[hidden]" in rest.ok("GET", f"/connectors/{topic}/tasks/0/status")["trace"]


def test_metrics_and_loggers(group: tuple[RestClient, RestClient], topic: str, kafka: KafkaUnderTest) -> None:
    """Prometheus text that counts; a level that can be set."""
    rest = group[0]
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic, "1", "k")
    rest.ok("POST", "/connectors", {"name": topic, "config": sink(topic)})
    line = f'keyorder_connect_sink_record_send_total{{connector="{topic}",task="0"}} 1.0'
    until(lambda: any(line in r("GET", "/metrics").text for r in group), "it is counted")
    text = rest("GET", "/metrics").text
    assert "# TYPE keyorder_connect_task_status gauge" in text
    assert sum("keyorder_connect_worker_leader 1.0" in r("GET", "/metrics").text for r in group) == 1
    rest.ok("DELETE", f"/connectors/{topic}")
    assert "keyorder.connect.task" in rest.ok("PUT", "/admin/loggers/keyorder.connect", {"level": "debug"})
    assert rest.ok("GET", "/admin/loggers/keyorder.connect.task")["level"] == "DEBUG"
    assert rest.ok("GET", "/admin/loggers")["keyorder.connect"]["level"] == "DEBUG"


def test_a_token_guards_every_path(kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """Without it, or with another one: 401, and nothing is told."""
    settings = worker_settings(kafka, tmp_path) | {"listeners": "http://127.0.0.1:0", "rest.token": "0123456789abcdef"}
    with WorkerProcess(settings, in_group=False) as worker:
        for headers in ({}, {"Authorization": "Bearer 0123456789abcdeX"}):
            for path in ("/", "/connectors", "/metrics", "/health"):
                assert RestClient(worker.url, headers=headers)("GET", path).status_code == 401
        right = RestClient(worker.url, headers={"Authorization": "Bearer 0123456789abcdef"})
        assert right("GET", "/connectors").status_code == 200


def test_tls(kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """An https:// listener with a PEM certificate."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    settings = worker_settings(kafka, tmp_path) | {
        "listeners": "https://127.0.0.1:0",
        "rest.ssl.certificate.location": str(certificate),
        "rest.ssl.key.location": str(key),
    }
    with WorkerProcess(settings, in_group=False) as worker:
        import ssl

        trusting = ssl.create_default_context(cafile=str(certificate))
        assert worker.url.startswith("https://")
        assert RestClient(worker.url, verify=trusting)("GET", "/connectors").json() == []


@pytest.mark.parametrize(
    "address", ["http://0.0.0.0:0", "http://:8083", "http://[::]:0", "ftp://localhost:1", "http://localhost:x"]
)
def test_a_listener_that_is_open_to_anybody_is_refused(address: str) -> None:
    """Before anything is bound."""
    parsed = worker_definition().parse({"bootstrap.servers": "x", "listeners": address})
    with pytest.raises(ConfigError, match="listeners"):
        listener_of(parsed)


def test_a_port_that_is_taken_is_an_error_of_that_setting(kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """Named, with the fix."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = worker_settings(kafka, tmp_path) | {"listeners": f"http://127.0.0.1:{taken.getsockname()[1]}"}
        with pytest.raises(ConfigError, match="listeners"):
            WorkerProcess(settings, in_group=False)
