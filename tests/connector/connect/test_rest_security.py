"""Who may use a worker's REST, and what it never tells."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from keyorder import OrderedProducer
from keyorder.connector.connect.config.providers import Resolver
from keyorder.connector.connect.rest.app import RestApp
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.rest.security import listener_of
from keyorder.connector.connect.runtime.settings import standalone_definition, worker_definition
from keyorder.partitioner.errors import ConfigError
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, sink, until, worker_settings
from support.tls import Authority


def test_a_web_page_cannot_use_the_loopback(rest: RestClient) -> None:
    """A browser names the page's origin; without a token such requests are refused."""
    found = rest.http.post("/connectors", json={}, headers={"Origin": "http://evil.example"})
    assert (found.status_code, found.json()["error_code"]) == (403, 403)


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


def test_the_log_of_a_failed_request_hides_what_came_from_a_placeholder(caplog: pytest.LogCaptureFixture) -> None:
    """In the trace too, which the answer does not have."""
    resolver = Resolver({})
    resolver.keep_secret({"db.password": "hunter2"})
    parsed = standalone_definition().parse({"bootstrap.servers": "x", "offset.storage.file.filename": "x"})
    herder = SimpleNamespace(parsed=parsed, worker=SimpleNamespace(resolver=resolver))

    def fails() -> None:
        raise ValueError("cannot parse hunter2")

    operations: Any = SimpleNamespace(herder=herder, connectors=fails)
    request: Any = SimpleNamespace(method="GET", url=SimpleNamespace(path="/connectors"))
    app = RestApp(operations, None, None)
    answer = app._answer(request, app._list, b"")
    assert json.loads(bytes(answer.body)) == {"error_code": 500, "message": "cannot parse [hidden]"}
    assert "hunter2" not in caplog.text
    assert "in fails" in caplog.text
    assert "ValueError: cannot parse [hidden]" in caplog.text


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


SERVER, OTHER = (Authority("a CA").issue("localhost") for _ in range(2))


@pytest.mark.parametrize(
    ("certificate", "key", "named"),
    [
        ("no PEM", SERVER.private(), "certificate"),
        (SERVER.certificate, "no PEM", "key"),
        (SERVER.certificate, OTHER.private(), "key"),
        (SERVER.certificate, SERVER.private("a password"), "key"),
    ],
    ids=["no certificate", "no key", "the key of another certificate", "an encrypted key"],
)
def test_an_https_listener_whose_files_cannot_be_used_is_refused(
    tmp_path: Path, certificate: str, key: str, named: str
) -> None:
    """Before anything is bound, by the setting's name: the REST would take connections and answer none."""
    (tmp_path / "cert.pem").write_text(certificate)
    (tmp_path / "key.pem").write_text(key)
    parsed = worker_definition().parse(
        {
            "bootstrap.servers": "x",
            "listeners": "https://localhost:0",
            "rest.ssl.certificate.location": str(tmp_path / "cert.pem"),
            "rest.ssl.key.location": str(tmp_path / "key.pem"),
        }
    )
    with pytest.raises(ConfigError, match=rf"rest\.ssl\.{named}\.location"):
        listener_of(parsed)


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
