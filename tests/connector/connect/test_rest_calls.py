"""Kafka Connect's documented calls, row by row: statuses and shapes, asked of the leader and of a follower."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support.connect_rig import RestClient, sink, until

INFO, STATUS = {"name", "config", "tasks", "type"}, {"name", "connector", "tasks", "type"}
PLUGIN = {"class", "type", "version"}
# In this order, on a connector of two running tasks: method, path, body, status, and the keys of the answer's object, or of
# the objects in its list, None for no body. C stands for the connector, N for its name.
CALLS: list[tuple[str, str, Any, int, Any]] = [
    ("GET", "/", None, 200, {"version", "commit", "kafka_cluster_id", "keyorder_version"}),
    ("GET", "/health", None, 200, {"status", "message"}),
    ("GET", "/connectors", None, 200, [str]),
    ("GET", "/connectors?expand=status", None, 200, {"N": {"status"}}),
    ("GET", "/connectors?expand=info&expand=status", None, 200, {"N": {"info", "status"}}),
    ("GET", "C", None, 200, INFO),
    ("GET", "C/config", None, 200, {"connector.class", "name", "tasks.max", "topics"}),
    ("GET", "C/status", None, 200, STATUS),
    ("GET", "C/tasks", None, 200, [{"id", "config"}]),
    ("GET", "C/tasks/1/status", None, 200, {"id", "state", "worker_id", "version"}),
    ("GET", "C/topics", None, 200, {"N": {"topics"}}),
    ("PUT", "C/topics/reset", None, 202, None),
    ("GET", "C/offsets", None, 200, {"offsets"}),
    ("PUT", "C/config", {"connector.class": "MemorySink", "topics": "N", "tasks.max": "2"}, 200, INFO),
    ("PATCH", "C/config", {"tasks.max": "2", "errors.log.enable": None}, 200, INFO),
    ("POST", "C/restart", None, 204, None),
    ("POST", "C/restart?onlyFailed=true", None, 202, STATUS),
    ("POST", "C/restart?includeTasks=true&onlyFailed=false", None, 202, STATUS),
    ("POST", "C/restart?includeTasks=true&onlyFailed=true", None, 202, STATUS),
    ("POST", "C/tasks/0/restart", None, 204, None),
    ("GET", "/connector-plugins", None, 200, [PLUGIN]),
    ("GET", "/connector-plugins?connectorsOnly=false", None, 200, [PLUGIN]),
    ("GET", "/connector-plugins/SimpleHeaderConverter/config", None, 200, []),
    ("PUT", "/connector-plugins/MemorySink/config/validate", {"name": "x", "topics": "N"}, 200,
     {"name", "error_count", "groups", "configs"}),
    ("GET", "/admin/loggers/keyorder.connect", None, 200, {"level", "last_modified"}),
    ("PUT", "/admin/loggers/keyorder.connect", {"level": "INFO"}, 200, [str]),
    ("PUT", "/admin/loggers/keyorder.connect?scope=worker", {"level": "INFO"}, 200, [str]),
    ("PUT", "/admin/loggers/org.reflections", {"level": "ERROR"}, 200, [str]),
    ("GET", "/admin/loggers/org.reflections", None, 200, {"level", "last_modified"}),
    ("PUT", "/admin/loggers/keyorder.connect?scope=cluster", {"level": "info"}, 204, None),
    ("PUT", "C/pause", None, 202, None),
    ("PUT", "C/resume", None, 202, None),
    ("PUT", "C/stop", None, 204, None),
    ("PATCH", "C/offsets", {"offsets": [{"partition": {"kafka_topic": "N", "kafka_partition": 0},
                                         "offset": {"kafka_offset": 0}}]}, 200, {"message"}),
    ("DELETE", "C/offsets", None, 200, {"message"}),
    ("DELETE", "C", None, 204, None),
    ("POST", "/connectors", {"name": "N", "config": {"connector.class": "MemorySink", "topics": "N"},
                             "initial_state": "STOPPED"}, 201, INFO),
    ("DELETE", "C", None, 204, None),
    ("PUT", "C/config", {"connector.class": "MemorySink", "topics": "N"}, 201, INFO),
    ("DELETE", "C", None, 204, None),
]  # fmt: skip


def test_every_documented_call(rest: RestClient, topic: str) -> None:
    """Row by row of CALLS. A call that has to wait for a rebalance, or for tasks that are leaving, is asked again."""

    def named(thing: Any) -> Any:
        if isinstance(thing, str):
            return topic if thing == "N" else f"/connectors/{topic}{thing[1:]}" if thing[:1] == "C" else thing
        if isinstance(thing, dict):
            return {named(k): named(v) for k, v in thing.items()}
        return [named(each) for each in thing] if isinstance(thing, list) else thing

    rest.ok("POST", "/connectors", {"name": topic, "config": sink(topic, **{"tasks.max": "2"})})
    rest.running(topic, 2)
    for method, path, body, status, like in CALLS:
        found = asked(rest, method, named(path), named(body), status)
        answer = found.json() if found.content else None
        if isinstance(like, list) and isinstance(answer, list):
            kinds = {frozenset(each) if isinstance(each, dict) else type(each) for each in answer}
            assert kinds == {frozenset(each) if isinstance(each, set) else each for each in like}, (method, path)
        elif isinstance(like, dict):
            assert {k: set(answer[k]) for k in named(like)} == named(like), (method, path)
        else:
            assert (set(answer) if isinstance(answer, dict) else answer) == like, (method, path)


def asked(rest: RestClient, method: str, path: str, body: Any, status: int) -> httpx.Response:
    """The answer with that status; what says "not yet" before it is asked again."""
    answers: list[httpx.Response] = []

    def right() -> bool:
        answers.append(rest(method, path, body))
        assert answers[-1].status_code in (status, 400, 409), (method, path, answers[-1].text)
        return answers[-1].status_code == status

    until(right, lambda: f"{method} {path}: {answers[-1].status_code} {answers[-1].text}", 30)
    return answers[-1]


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


def test_a_body_that_is_no_json_is_refused(rest: RestClient) -> None:
    """And one that is too long."""
    said = {"Content-Type": "application/json"}
    assert rest.http.post("/connectors", content=b"{", headers=said).status_code == 400
    assert rest.http.post("/connectors", content=b"x" * (2 << 20)).status_code == 413
