"""What a request says of itself beside its path: media types, the page that it comes from, a slash at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

_QUALITY = re.compile(r"(?:0?\.\d{1,3}|0\.?|1(?:\.0{0,3})?)")


class WithoutSlash:
    """Takes a slash at the end of a path away, as the JVM's REST does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if scope["type"] == "http" and len(scope["path"]) > 1 and scope["path"].endswith("/"):
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)


def is_json(content_type: str | None) -> bool:
    """Whether a body is said to be JSON."""
    return (content_type or "").partition(";")[0].strip().lower() == "application/json"


def takes_json(accept: str | None) -> bool:
    """Whether the caller takes JSON for an answer."""
    words = [part.partition(";")[0].strip().lower() for part in (accept or "*/*").split(",")]
    return any(word in ("*/*", "*", "*/json", "application/*", "application/json", "") for word in words)


def well_formed(accept: str | None) -> bool:
    """Whether each parameter of an Accept header has a name and a value, and each quality is a number from 0 to 1."""
    for part in (accept or "").split(","):
        for parameter in (word for word in part.split(";")[1:] if word.strip()):
            name, equals, value = parameter.lstrip().partition("=")
            if not equals or name != name.strip():
                return False
            if name.lower() == "q" and not _QUALITY.fullmatch(value.strip().strip('"')):
                return False
    return True


def first(request: Request, name: str) -> str | None:
    """A parameter of the query; of several the first, as the JVM's REST takes it."""
    found: list[str] = request.query_params.getlist(name)
    return found[0] if found else None


def same_origin(origin: str, host: str | None) -> bool:
    """Whether a page comes from the very address that it asks."""
    return host is not None and urlsplit(origin).netloc.lower() == host.lower()


@dataclass(frozen=True)
class Origins:
    """Which other sites' pages may use the REST (CORS). origins: * for all. methods: those of a preflight, all if empty."""

    origins: tuple[str, ...]
    methods: tuple[str, ...]

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> Origins:
        """From a worker's settings."""
        origins = parsed["access.control.allow.origin"].split(",")
        methods = parsed["access.control.allow.methods"].split(",")
        return cls(
            tuple(o.strip().lower() for o in origins if o.strip()), tuple(m.strip() for m in methods if m.strip())
        )

    def headers(self, origin: str | None) -> dict[str, str]:
        """The headers of an answer to a page of that origin; none if it is not among them."""
        if origin is None or not ("*" in self.origins or origin.lower() in self.origins):
            return {}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}

    def preflight(self, origin: str | None) -> dict[str, str]:
        """The headers of an answer to a browser's question before a request."""
        shown = self.headers(origin)
        if not shown:
            return {}
        methods = self.methods or ("GET", "POST", "HEAD")
        return {
            **shown,
            "Access-Control-Allow-Methods": ",".join(methods),
            "Access-Control-Allow-Headers": "X-Requested-With,Content-Type,Accept,Origin,Authorization",
        }
