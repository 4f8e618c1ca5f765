"""HTTP for machines: /metrics, /healthz, /readyz. It reads, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, make_wsgi_app

from .http_server import HttpServer, text

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

Check = Callable[[], tuple[bool, str]]


class MonitoringServer(HttpServer):
    """Serves a registry and checks, by path. port 0: a free one; `port` tells which. Raises as HttpServer."""

    def __init__(
        self, registry: CollectorRegistry, checks: Mapping[str, Check], host: str, port: int, setting: str
    ) -> None:
        super().__init__(application(registry, checks), host, port, setting)


def process_registry() -> CollectorRegistry:
    """A registry of its own that shows this process: CPU, memory, descriptors, the Python version."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def application(registry: CollectorRegistry, checks: Mapping[str, Check]) -> WSGIApplication:
    """The WSGI application behind the server. checks: by path."""
    metrics: WSGIApplication = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return text(start, "405 Method Not Allowed", "it is read only", [("Allow", "GET, HEAD")])
        if path == "/metrics":
            return metrics(environ, start)
        if path in checks:
            good, said = checks[path]()
            return text(start, "200 OK" if good else "503 Service Unavailable", "ok" if good else said)
        return text(start, "404 Not Found", f"there are {', '.join(['/metrics', *checks])}")

    return answer
