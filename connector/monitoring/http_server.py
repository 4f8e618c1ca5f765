"""A WSGI application behind a port, on a thread of its own. Each request has a thread: one that lasts holds up nobody."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from ...partitioner.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _ServerOverIPv6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """A scrape is no news."""


class HttpServer:
    """Serves from a thread of its own until `close`. port 0: a free one; `port` tells which.

    setting: that which names the port, for the error. Raises ConfigError when the address cannot be had.
    """

    def __init__(self, application: WSGIApplication, host: str, port: int, setting: str) -> None:
        kind = _ServerOverIPv6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, application, kind, _Quiet)
        except OSError as raised:
            raise ConfigError(
                setting, f"{host}:{port} cannot be had: {raised.strerror or raised}", "name a free one"
            ) from raised
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="keyorder-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def text(start: StartResponse, status: str, said: str, headers: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    """A plain answer."""
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{said}\n".encode()]
