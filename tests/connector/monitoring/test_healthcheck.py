"""The image's health check: whom it asks, and what it takes for health."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import keyorder
import pytest
from keyorder.connector.local.processes import free_ports


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, in an environment that names nothing but a proxy that would swallow what it asks."""
    for name in ("KEYORDER_HEALTH_URL", "KEYORDER_METRICS_PORT", "KEYORDER_REST_TOKEN", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    (nobody,) = free_ports(1)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{nobody}")
    path = Path(keyorder.__path__[0]) / "docker/keyorder/healthcheck.py"
    spec = importlib.util.spec_from_file_location("healthcheck_of_the_image", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def answering(status: int, token: str | None = None) -> Iterator[int]:
    """A server that gives every request this status, and 401 without the token; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            refused = token is not None and self.headers.get("Authorization") != f"Bearer {token}"
            self.send_response(401 if refused else status)
            self.end_headers()
            self.wfile.write(b"what is wrong")

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1), (404, 1)])
def test_the_answer_decides(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, expected: int
) -> None:
    """And stands in what `docker inspect` shows."""
    with answering(status) as port:
        monkeypatch.setenv("KEYORDER_METRICS_PORT", str(port))
        assert check.main() == expected
    assert f"/healthz: {status} what is wrong" in capsys.readouterr().out


def test_a_worker_is_asked_where_no_controller_listens(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port is the REST's own; nobody at either is no health."""
    (free,) = free_ports(1)
    monkeypatch.setenv("KEYORDER_METRICS_PORT", str(free))
    assert check.places() == [f"http://127.0.0.1:{free}/healthz", "http://127.0.0.1:8083/health"]
    monkeypatch.setattr(check, "places", lambda: [f"http://127.0.0.1:{free}/healthz"] * 2)
    assert check.main() == 1
    with answering(200) as port:
        monkeypatch.setattr(check, "places", lambda: [f"http://127.0.0.1:{free}/", f"http://127.0.0.1:{port}/"])
        assert check.main() == 0


def test_a_worker_behind_its_token(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Healthy with the token alone."""
    with answering(200, "0123456789") as port:
        monkeypatch.setenv("KEYORDER_HEALTH_URL", f"http://127.0.0.1:{port}/health")
        assert check.main() == 1
        monkeypatch.setenv("KEYORDER_REST_TOKEN", "0123456789")
        assert check.main() == 0
