"""Who may use a worker's REST, and what it never tells."""

from __future__ import annotations

import json
import socket
import subprocess
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from keyorder import OrderedProducer
from keyorder.connector.connect.config.providers import Resolver
from keyorder.connector.connect.rest.app import RestApp
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.rest.security import Listener, listener_of
from keyorder.connector.connect.rest.server import RestServer, bind
from keyorder.connector.connect.runtime.settings import standalone_definition, worker_definition
from keyorder.partitioner.errors import ConfigError, KeyorderError, PeerError
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, sink, until, worker_settings
from support.tls import Authority


def test_a_web_page_cannot_use_the_loopback(rest: RestClient) -> None:
    """A browser names the page's origin; without a token such requests are refused."""
    found = rest.http.post("/connectors", json={}, headers={"Origin": "http://evil.example"})
    assert (found.status_code, found.json()["error_code"]) == (403, 403)


def test_a_name_that_a_web_page_has_pointed_at_the_loopback_is_refused(rest: RestClient) -> None:
    """DNS rebinding: the page asks its own origin. Plain http to such a name tells no more than Host, nor a GET Origin."""
    host = f"evil.example:{rest.http.base_url.port}"
    for headers in ({"Host": host}, {"Host": host, "Origin": f"http://{host}"}):
        for method, path in (("GET", "/connectors"), ("GET", "/metrics"), ("POST", "/connectors")):
            found = rest.http.request(method, path, json={}, headers=headers)
            assert (found.status_code, found.json()["error_code"]) == (403, 403)
            assert f"http://{host} in access.control.allow.origin" in found.json()["message"]
            assert "rest.token" in found.json()["message"]


LOCAL = Listener("localhost", 0)


@contextmanager
def served(given: Mapping[str, str], listener: Listener = LOCAL) -> Iterator[httpx.Client]:
    """The REST of a worker of these settings that has nothing to run, on the loopback."""
    parsed = standalone_definition().parse(
        {"bootstrap.servers": "x", "offset.storage.file.filename": "x", "listeners": "http://localhost:0", **given}
    )
    operations: Any = SimpleNamespace(herder=SimpleNamespace(parsed=parsed), connectors=list)
    bound = bind(Listener("127.0.0.1", 0))
    server = RestServer(RestApp(operations, listener, None).application(), Listener("127.0.0.1", 0), bound)
    server.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}") as client:
            yield client
    finally:
        server.stop()


HERE = socket.gethostname().upper()


@pytest.mark.parametrize(
    ("given", "listener", "hosts", "status"),
    [
        ({}, "localhost", ["localhost", "LocalHost.:99", "a.localhost", "127.0.0.1:1", "127.1", "[::1]:8083", HERE], 200),
        ({}, "localhost", ["localhost.localdomain:8083", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"], 200),
        ({}, "localhost", ["203.0.113.5", "[fe80::1%25eth0]:1", "[2001:db8::1]"], 200),
        ({}, "localhost", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost"], 403),
        ({}, "localhost", ["[evil]", "[::1", "localhost@evil.example", "1.2.3.4.5", ".", ":8083"], 403),
        ({}, "connect.test", ["connect.test:8083", "CONNECT.test."], 200),
        ({"rest.advertised.url": "http://connect-1.Lan:8083/"}, "localhost", ["connect-1.lan:8083", "connect-1.lan"], 200),
        ({"rest.advertised.url": "http://[connect"}, "localhost", ["localhost"], 200),
        ({"rest.advertised.url": "http://[connect"}, "localhost", ["evil.example"], 403),
        ({"access.control.allow.origin": "http://lan:8083,https://a.test"}, "localhost", ["lan:8083"], 200),
        ({"access.control.allow.origin": "http://lan:8083,https://a.test"}, "localhost", ["lan:8084", "a.test"], 403),
        ({"access.control.allow.origin": "*"}, "localhost", ["any.example"], 200),
    ],
)  # fmt: skip
def test_without_a_token_a_request_bears_a_name_of_the_worker(
    given: Mapping[str, str], listener: str, hosts: list[str], status: int
) -> None:
    """An address, localhost, the machine's name, the listener's, the advertised one, or one that is an allowed origin."""
    with served(given, Listener(listener, 0)) as client:
        for host in hosts:
            found = client.get("/connectors", headers={"Host": host})
            assert (host, found.status_code) == (host, status)


def test_a_request_without_a_name_is_answered() -> None:
    """No browser sends one; probes of load balancers do."""
    with served({}) as client, socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as raw:
        raw.sendall(b"GET /connectors HTTP/1.0\r\n\r\n")
        assert b" 200 " in raw.makefile("rb").readline()


@pytest.mark.parametrize(
    "listener", [Listener("0.0.0.0", 0, token="0123456789abcdef"), Listener("0.0.0.0", 0, "cert.pem", "key.pem")]
)
def test_a_worker_that_others_reach_may_have_any_name(listener: Listener) -> None:
    """A service's, for one. A page knows no token, and no certificate fits its name."""
    with served({}, listener) as client:
        headers = {"Host": "keyorder-connect.team.svc:8083", "Authorization": "Bearer 0123456789abcdef"}
        assert client.get("/connectors", headers=headers).json() == []


@pytest.mark.parametrize("secret", ["bad-hunter2", 'bad "hunter2", isn\'t \\it'], ids=["plain", "quoted"])
def test_secrets_are_resolved_in_the_worker_alone(
    kafka: KafkaUnderTest, tmp_path: Path, topic: str, secret: str
) -> None:
    """A placeholder is stored and shown as it was given; what it stands for shows in no answer, not even in a trace."""
    (tmp_path / "secret.txt").write_text(secret)
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
        producer.produce(topic, secret, "k")
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
    app = RestApp(operations, LOCAL, None)
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


def test_a_token_is_trimmed_as_every_setting(kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """A file that is mounted often ends with a newline, which no header can hold."""
    (tmp_path / "token").write_text(" 0123456789abcdef\n")
    settings = worker_settings(kafka, tmp_path) | {
        "listeners": "http://127.0.0.1:0",
        "config.providers": "dir",
        "config.providers.dir.class": "DirectoryConfigProvider",
        "rest.token": f"${{dir:{tmp_path}:token}}",
    }
    with WorkerProcess(settings, in_group=False) as worker:
        given = {"Authorization": "Bearer 0123456789abcdef"}
        assert RestClient(worker.url, headers=given)("GET", "/connectors").status_code == 200


@pytest.mark.parametrize(
    ("failure", "told", "text"),
    [
        (ValueError("no 0123456789abcdef here"), PeerError, "the worker ended: no [hidden] here"),
        (ConfigError("x", "no 0123456789abcdef", "do"), PeerError, r"the worker ended: x: no [hidden]"),
        (ConfigError("x", "nothing", "do"), ConfigError, "x: nothing"),
    ],
)
def test_what_a_worker_has_ended_with_hides_secrets(
    kafka: KafkaUnderTest, tmp_path: Path, failure: Exception, told: type[KeyorderError], text: str
) -> None:
    """In what its process raises, and in what that came from."""
    failure.__cause__ = OSError("of 0123456789abcdef")
    settings = worker_settings(kafka, tmp_path) | {"rest.token": "0123456789abcdef"}
    with WorkerProcess(settings, in_group=False) as worker:
        herder: Any = worker.operations.herder

        def fails() -> None:
            raise failure

        herder.configs.poll = fails
        until(lambda: herder.failure, "the worker has ended")
        with pytest.raises(told) as raised:
            worker.check()
    assert str(raised.value).startswith(text)
    assert "0123456789abcdef" not in "".join(traceback.format_exception(raised.value))


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
