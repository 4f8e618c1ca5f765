"""What tools of Kafka Connect expect of its REST around the calls themselves."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from keyorder import __version__
from keyorder.connector.connect.rest.process import WorkerProcess
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, worker_settings

JAVA = "org.apache.kafka.connect."


def test_a_slash_at_the_end_changes_nothing(rest: RestClient) -> None:
    """No redirect: a tool would not follow it with a body."""
    for path in ("/connectors/", "/connector-plugins/", "/admin/loggers/", "/connectors//"):
        assert rest("GET", path, follow_redirects=False).status_code == 200, path
    assert rest("GET", "/connectors/none/").status_code == 404
    assert rest.settled("DELETE", "/connectors/none/").status_code == 404
    assert rest.settled("POST", "/connectors/", {"name": "x", "config": {}}).status_code == 400


def test_the_version_is_one_that_tools_can_judge(rest: RestClient) -> None:
    """Kafka's, and keyorder's beside it."""
    found = rest.ok("GET", "/")
    assert found["version"] == "4.1.2"
    assert found["keyorder_version"] == __version__
    assert found["kafka_cluster_id"]


def test_plugins_have_their_full_names(rest: RestClient) -> None:
    """Kafka's own under Java's, both halves of a transform, each with a version."""
    found = {(p["type"], p["class"]): p["version"] for p in rest.ok("GET", "/connector-plugins?connectorsOnly=false")}
    for kind, name in (
        ("source", f"{JAVA}file.FileStreamSourceConnector"),
        ("transformation", f"{JAVA}transforms.Cast$Key"),
        ("transformation", f"{JAVA}transforms.RegexRouter"),
        ("predicate", f"{JAVA}transforms.predicates.TopicNameMatches"),
        ("converter", f"{JAVA}converters.IntegerConverter"),
        ("header_converter", f"{JAVA}storage.SimpleHeaderConverter"),
    ):
        assert found[kind, name] == "4.1.2"
    assert found["source", "keyorder.connector.connect.connectors.mirror.MirrorConnector"] == __version__
    for kind, name in found:
        if kind in ("source", "sink", "transformation", "predicate", "converter"):
            assert rest("GET", f"/connector-plugins/{name}/config").status_code == 200, name


def test_the_settings_of_a_connector_hold_those_of_all(rest: RestClient) -> None:
    """Its own first; validate blames the setting that is wrong."""
    names = [key["name"] for key in rest.ok("GET", "/connector-plugins/FileStreamSource/config")]
    assert names[0] == "file"
    assert {"name", "connector.class", "tasks.max", "errors.tolerance", "topic.creation.groups"} < set(names)
    config = {"name": "x", "connector.class": "FileStreamSource", "file": "f", "topic": "t"}
    config |= {"transforms": "a,b", "transforms.a.type": "Nope", "transforms.b.type": "HoistField$Value"}
    config |= {"header.converter": "NoConverter"}
    answer = rest.ok("PUT", "/connector-plugins/FileStreamSource/config/validate", config)
    assert answer["name"] == "FileStreamSource"
    wrong = {c["value"]["name"] for c in answer["configs"] if c["value"]["errors"]}
    assert wrong == {"transforms.a.type", "transforms.b.field", "header.converter"}


def test_media_types(rest: RestClient) -> None:
    """A body that is not said to be JSON is 415, a caller who takes no JSON 406."""
    for headers in ({"Content-Type": "text/plain"}, {}):
        found = rest.http.request("PUT", "/connectors/x/config", content=b"{}", headers=headers)
        assert (found.status_code, found.json()["error_code"]) == (415, 415)
    assert rest.http.get("/connectors", headers={"Accept": "text/html"}).status_code == 406
    assert rest.http.get("/connectors", headers={"Accept": "text/html,application/*;q=0.8"}).status_code == 200
    assert rest.http.get("/metrics", headers={"Accept": "text/plain"}).status_code == 200
    found = rest.http.request("PUT", "/connectors/none/pause")
    assert found.status_code == 404


def test_options_tell_the_methods(rest: RestClient) -> None:
    """Of each path."""
    found = rest("OPTIONS", "/connectors")
    assert (found.status_code, found.headers["allow"]) == (200, "GET,HEAD,OPTIONS,POST")


def test_loggers_bear_java_s_names_too(rest: RestClient) -> None:
    """root, and org.apache.kafka.connect for what lies below it."""
    found = rest.ok("GET", "/admin/loggers")
    assert {"root", "keyorder", "org.apache.kafka.connect"} <= set(found)
    changed = rest.ok("PUT", "/admin/loggers/org.apache.kafka.connect", {"level": "DEBUG"})
    assert {"org.apache.kafka.connect", "keyorder.connect"} <= set(changed)
    assert rest.ok("GET", "/admin/loggers/org.apache.kafka.connect.runtime.WorkerSinkTask")["level"] == "DEBUG"
    rest.ok("PUT", "/admin/loggers/org.apache.kafka.connect", {"level": "INFO"})
    assert rest("GET", "/admin/loggers/org.apache.zookeeper").status_code == 404


def test_pages_of_the_same_address_and_of_sites_that_are_named_may_come(kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """access.control.*; all others are refused where there is no token."""
    settings = worker_settings(kafka, tmp_path) | {
        "listeners": "http://127.0.0.1:0",
        "access.control.allow.origin": "https://console.example",
        "access.control.allow.methods": "GET,PUT",
    }
    with WorkerProcess(settings, in_group=False) as worker:
        rest = RestClient(worker.url)
        for origin, status, shown in (
            ("https://console.example", 200, "https://console.example"),
            (worker.url, 200, None),
            ("https://evil.example", 403, None),
        ):
            found = rest.http.get("/connectors", headers={"Origin": origin})
            assert (found.status_code, found.headers.get("access-control-allow-origin")) == (status, shown)
        asked = {"Origin": "https://console.example", "Access-Control-Request-Method": "PUT"}
        found = rest.http.options("/connectors", headers=asked)
        assert (found.status_code, found.headers["access-control-allow-methods"]) == (200, "GET,PUT")


@pytest.mark.parametrize("user", ["", "admin"])
def test_the_token_is_taken_as_a_password_too(kafka: KafkaUnderTest, tmp_path: Path, user: str) -> None:
    """Basic, of any user, which Python's clients of Kafka Connect offer; a wrong one is 401 and says what is asked for."""
    settings = worker_settings(kafka, tmp_path) | {"listeners": "http://127.0.0.1:0", "rest.token": "0123456789abcdef"}
    with WorkerProcess(settings, in_group=False) as worker:
        for password, status in (("0123456789abcdef", 200), ("0123456789abcdeX", 401)):
            word = base64.b64encode(f"{user}:{password}".encode()).decode()
            found = RestClient(worker.url, headers={"Authorization": f"Basic {word}"})("GET", "/connectors")
            assert found.status_code == status
        assert "Basic" in found.headers["www-authenticate"]
        assert RestClient(worker.url, headers={"Authorization": "Basic %%%"})("GET", "/connectors").status_code == 401
