"""The status page over HTTP, for this machine alone: `/`, `/events` (each look as it comes), `/status.json`. It only reads."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import clock
from .http_server import HttpServer, text
from .status_page import body, page
from .watching import ClusterWatch, Look

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_HERE = ("localhost", "127.0.0.1")
# After so many seconds without a look a viewer is sent a comment: one that has gone shows by that.
_SILENCE = 15.0
_HEADERS = [
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]


class StatusServer(HttpServer):
    """Shows a watch's looks on http://127.0.0.1:port/. document: a look as JSON. every: seconds between two looks.

    Raises ConfigError when the port cannot be had. Streams of events end with the watch.
    """

    def __init__(
        self, watch: ClusterWatch, document: Callable[[Look], Mapping[str, Any]], every: float, port: int
    ) -> None:
        super().__init__(application(watch, document, every), _HERE[1], port, "--serve")
        self.url = f"http://localhost:{self.port}/"


def application(watch: ClusterWatch, document: Callable[[Look], Mapping[str, Any]], every: float) -> WSGIApplication:
    """The WSGI application behind the server."""

    def shown() -> str:
        return body(watch.last, watch.problem, clock.now())

    def events() -> Iterator[bytes]:
        turns = watch.wait(-1, 0)
        yield _event(shown())
        while not watch.closed:
            newest = watch.wait(turns, _SILENCE)
            yield _event(shown()) if newest > turns else b": still here\n\n"
            turns = newest

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if environ["REQUEST_METHOD"] != "GET":
            return text(start, "405 Method Not Allowed", "it is read only", [("Allow", "GET")])
        # A page of another site can give this address a name of its own, and would then be let read it.
        if environ.get("HTTP_HOST", "").partition(":")[0] not in _HERE:
            return text(start, "403 Forbidden", "use http://localhost and the port")
        if path == "/":
            nonce = secrets.token_urlsafe(16)
            policy = (
                f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            )
            start(
                "200 OK", [("Content-Type", "text/html; charset=utf-8"), ("Content-Security-Policy", policy), *_HEADERS]
            )
            return [page(shown(), nonce, every).encode()]
        if path == "/events":
            start("200 OK", [("Content-Type", "text/event-stream"), *_HEADERS])
            return events()
        if path == "/status.json":
            start("200 OK", [("Content-Type", "application/json"), *_HEADERS])
            found = {**document(watch.last), "problem": watch.problem or None}
            return [json.dumps(found, indent=2, default=str).encode()]
        return text(start, "404 Not Found", "there are /, /events, /status.json")

    return answer


def _event(data: str) -> bytes:
    return "".join(f"data: {line}\n" for line in data.splitlines()).encode() + b"\n"
