"""Kafka Connect's REST as a starlette application: its paths, statuses and shapes; errors are {"error_code", "message"}."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import requests
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...._version import __version__
from ....partitioner.errors import KeyorderError, OrderError, UsageError
from ..api.errors import BadRequestError, ConnectorExistsError, NotFoundError, RebalanceInProgressError
from ..runtime.group.herder import NotLeaderError
from ..runtime.group.state import Target
from ..runtime.operations.operations import Operations
from ..runtime.plugins import KAFKA_VERSION
from .extras import admin_routes, worker_facts
from .http import Origins, WithoutSlash, first, is_json, same_origin, takes_json, well_formed
from .security import Listener, allowed, is_own, own_names

_LOG = logging.getLogger("keyorder.connect.rest")
_MOST = 1 << 20
_FORWARDED = "X-Keyorder-Forwarded"
Handler = Callable[[Request, Any], Any]


class RestApp:
    """The routes of one worker. listener: where it listens. trust: PEM file for forwarding to an https leader."""

    def __init__(self, operations: Operations, listener: Listener, trust: str | None) -> None:
        self.operations, self._token, self._trust = operations, listener.token, trust
        self._origins = Origins.of(operations.herder.parsed)
        self._names = own_names(listener, operations.herder.parsed["rest.advertised.url"])
        self._facts: dict[str, Any] | None = None

    def application(self) -> Starlette:
        """The ASGI application."""
        c = "/connectors/{name}"
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/", self._root),
            ("GET", "/connectors", self._list),
            ("POST", "/connectors", self._create),
            ("GET", c, lambda r, b: self.operations.info(_name(r))),
            ("DELETE", c, self._delete),
            ("GET", f"{c}/config", lambda r, b: self.operations.config(_name(r))),
            ("PUT", f"{c}/config", self._put_config),
            ("PATCH", f"{c}/config", lambda r, b: self.operations.patch_config(_name(r), _object(b))),
            ("GET", f"{c}/status", lambda r, b: self.operations.status(_name(r))),
            ("GET", f"{c}/tasks", lambda r, b: self.operations.tasks(_name(r))),
            ("GET", f"{c}/tasks/{{task:int}}/status", self._task_status),
            ("POST", f"{c}/tasks/{{task:int}}/restart", self._restart_task),
            ("PUT", f"{c}/pause", self._targets(Target.PAUSED, 202)),
            ("PUT", f"{c}/resume", self._targets(Target.STARTED, 202)),
            ("PUT", f"{c}/stop", self._targets(Target.STOPPED, 204)),
            ("POST", f"{c}/restart", self._restart),
            ("GET", f"{c}/topics", lambda r, b: self.operations.topics(_name(r))),
            ("PUT", f"{c}/topics/reset", self._reset_topics),
            ("GET", f"{c}/offsets", lambda r, b: self.operations.offsets(_name(r))),
            ("PATCH", f"{c}/offsets", self._alter_offsets),
            ("DELETE", f"{c}/offsets", lambda r, b: self.operations.reset_offsets(_name(r))),
            ("GET", f"{c}/parked", self._parked),
            ("POST", f"{c}/parked/release", self._release),
            ("GET", "/connector-plugins", self._plugins),
            (
                "GET",
                "/connector-plugins/{plugin}/config",
                self._plugin_config,
            ),
            ("PUT", "/connector-plugins/{plugin}/config/validate", self._validate),
            *admin_routes(self.operations),
        ]
        routes: dict[str, dict[str, Handler]] = {}
        for method, path, handler in table:
            routes.setdefault(path, {})[method] = handler
        made = [
            Route(path, self._endpoint(handlers), methods=[*handlers, "OPTIONS"]) for path, handlers in routes.items()
        ]
        found = Starlette(
            routes=made, exception_handlers={HTTPException: self._http_error}, middleware=[Middleware(WithoutSlash)]
        )
        found.router.redirect_slashes = False  # a tool does not follow 307 with a body
        return found

    # -- plumbing ------------------------------------------------------------------------------------------------

    def _endpoint(self, handlers: dict[str, Handler]) -> Any:
        async def endpoint(request: Request) -> Response:
            answer = await answered(request)
            answer.headers.update(
                self._origins.headers(request.headers.get("origin"))
            )  # of errors, too: a page reads them
            return answer

        async def answered(request: Request) -> Response:
            origin = request.headers.get("origin")
            if request.method == "OPTIONS":
                methods = sorted({*handlers, "OPTIONS", *(["HEAD"] if "GET" in handlers else [])})
                given = {"Allow": ",".join(methods), **self._origins.preflight(origin)}
                return Response(", ".join(methods), media_type="text/plain", headers=given)
            if not allowed(request.headers.get("authorization"), self._token):
                answer = error(
                    401, "This worker's REST needs its token: Authorization: Bearer, or Basic with it as the password"
                )
                answer.headers["WWW-Authenticate"] = 'Bearer, Basic realm="keyorder connect"'
                return answer
            host = request.headers.get("host")
            if (
                host  # every browser sends one
                and self._names is not None
                and not is_own(host, self._names)
                and not self._origins.headers(f"http://{host}")
            ):
                return error(
                    403,
                    f"This worker is not known as {host}: set http://{host} in access.control.allow.origin, or rest.token",
                )
            if (
                origin is not None
                and self._token is None
                and not self._origins.headers(origin)
                and not same_origin(origin, host)
            ):
                # Without a token, whatever page is open in a browser of this machine could reach the loopback.
                return error(
                    403, "Requests that come from other sites' pages need access.control.allow.origin, or rest.token"
                )
            try:
                declared = int(request.headers.get("content-length") or 0)
            except ValueError:
                return error(400, "Content-Length is no number")
            if declared > _MOST:
                return error(413, f"a body may have {_MOST} bytes at most")
            body = await request.body()
            if len(body) > _MOST:
                return error(413, f"a body may have {_MOST} bytes at most")
            handler = handlers["GET" if request.method == "HEAD" else request.method]
            kind = request.headers.get("content-type")
            if kind is None and not _takes_body(request):
                body = b""  # as the JVM: what is sent along without a need is not looked at
            if (body or kind) and request.method not in ("GET", "HEAD") and not is_json(kind):
                return error(415, "HTTP 415 Unsupported Media Type: send application/json")
            if not well_formed(request.headers.get("accept")):
                return error(400, "HTTP 400 Bad Request: Accept is malformed; send application/json")
            if request.url.path != "/metrics" and not takes_json(request.headers.get("accept")):
                return error(406, "HTTP 406 Not Acceptable: answers are application/json")
            return await run_in_threadpool(self._answer, request, handler, body)

        return endpoint

    def _answer(self, request: Request, handler: Handler, body: bytes) -> Response:
        try:
            result = handler(request, _parsed(body) if _takes_body(request) else None)
        except NotLeaderError as not_here:
            return self._forward(request, body, not_here.url)
        except Exception as failure:
            return self._failed(failure)
        if isinstance(result, Response):
            return result
        return JSONResponse(result)

    def _failed(self, failure: Exception) -> Response:
        resolver = self.operations.herder.worker.resolver
        message = resolver.redact(str(failure))
        if isinstance(failure, NotFoundError):
            return error(404, message)
        if isinstance(failure, (ConnectorExistsError, RebalanceInProgressError)):
            return error(409, message)
        if isinstance(failure, (BadRequestError, OrderError, UsageError)):
            return error(400, message)
        if not isinstance(failure, KeyorderError):
            _LOG.error("a request failed: %s", resolver.trace(failure))  # not `exception`, which shows everything
        return error(500, message or type(failure).__name__)

    async def _http_error(self, request: Request, failure: Exception) -> Response:
        assert isinstance(failure, HTTPException)
        answer = error(failure.status_code, f"HTTP {failure.status_code} {failure.detail}")
        origin = request.headers.get("origin")
        shown = self._origins.preflight if request.method == "OPTIONS" else self._origins.headers
        answer.headers.update(shown(origin))
        return answer

    def _forward(self, request: Request, body: bytes, url: str) -> Response:
        """Give the request to the leader, once: two workers that each take the other for it must not play ball."""
        if not url or _FORWARDED in request.headers:
            return error(
                409,
                "Cannot complete request momentarily due to no known leader, likely because a rebalance was underway.",
            )
        headers = {_FORWARDED: "true"}
        for name in ("authorization", "content-type"):
            if name in request.headers:
                headers[name] = request.headers[name]
        # As it came: a name may hold what looks like an encoding.
        target = (
            url.rstrip("/")
            + request.scope["raw_path"].decode("ascii")
            + (f"?{request.url.query}" if request.url.query else "")
        )
        try:
            answer = requests.request(
                request.method, target, data=body, headers=headers, timeout=100, verify=self._trust or True
            )
        except requests.RequestException as failure:
            _LOG.warning("the leader at %s does not answer: %s", url, type(failure).__name__)
            return error(409, "Cannot complete request momentarily: the leader does not answer, a rebalance is likely.")
        if answer.ok:
            self._catch_up()
        kept = {k: v for k, v in answer.headers.items() if k.lower() in ("location", "content-type")}
        return Response(answer.content, answer.status_code, kept)

    def _catch_up(self) -> None:
        """Know what the leader has just written: who has changed something asks for it next, and here."""
        try:
            self.operations.catch_up()
        except KeyorderError as failure:
            _LOG.warning("answers of this worker may be behind: %s", failure)

    # -- handlers ------------------------------------------------------------------------------------------------

    def _root(self, request: Request, body: Any) -> Any:
        if self._facts is None:
            self._facts = worker_facts(self.operations)
        # Tools tell by the version what they may ask for: it is that of the Kafka Connect whose REST this is.
        return {"version": KAFKA_VERSION, "commit": "", **self._facts, "keyorder_version": __version__}

    def _list(self, request: Request, body: Any) -> Any:
        names = self.operations.connectors()
        expand = request.query_params.getlist("expand")
        if not expand:
            return names
        result: dict[str, Any] = {}
        for name in names:
            try:
                result[name] = {
                    word: self.operations.status(name) if word == "status" else self.operations.info(name)
                    for word in expand
                    if word in ("status", "info")
                }
            except NotFoundError:
                continue  # deleted meanwhile
        return result

    def _create(self, request: Request, body: Any) -> Response:
        document = _object(body)
        _only(document, "name", "config", "initial_state", "initial_offsets")
        config = _object(document.get("config"))
        name = document.get("name", config.get("name"))
        if not isinstance(name, str):
            raise BadRequestError('"name" is missing')
        info = self.operations.create(name, config, document.get("initial_state"), document.get("initial_offsets"))
        return JSONResponse(info, 201, {"Location": _place(info)})

    def _put_config(self, request: Request, body: Any) -> Response:
        name = _name(request)
        created, info = self.operations.put_config(name, _object(body))
        if created:
            return JSONResponse(info, 201, {"Location": _place(info)})
        return JSONResponse(info)

    def _delete(self, request: Request, body: Any) -> Response:
        self.operations.delete(_name(request))
        return Response(status_code=204)

    def _task_status(self, request: Request, body: Any) -> Any:
        return self.operations.task_status(_name(request), request.path_params["task"])

    def _restart_task(self, request: Request, body: Any) -> Response:
        self.operations.restart_task(_name(request), request.path_params["task"])
        return Response(status_code=204)

    def _targets(self, target: Target, status: int) -> Handler:
        def change(request: Request, body: Any) -> Response:
            self.operations.set_target(_name(request), target)
            return Response(status_code=status)

        return change

    def _restart(self, request: Request, body: Any) -> Response:
        flags = [_flag(request, name) for name in ("includeTasks", "onlyFailed")]
        shown = self.operations.restart(_name(request), *flags)
        return Response(status_code=204) if shown is None else JSONResponse(shown, 202)

    def _reset_topics(self, request: Request, body: Any) -> Response:
        self.operations.reset_topics(_name(request))
        return Response(status_code=202)

    def _alter_offsets(self, request: Request, body: Any) -> Any:
        document = _object(body)
        _only(document, "offsets")
        return self.operations.alter_offsets(_name(request), document.get("offsets"))

    def _parked(self, request: Request, body: Any) -> Any:
        return {"parked": [entry.json() for entry in self.operations.parked(_name(request))]}

    def _release(self, request: Request, body: Any) -> Response:
        document = _object(body)
        topic, key = document.get("topic"), document.get("key")
        if not isinstance(topic, str) or not isinstance(key, str):
            raise BadRequestError('"topic" and "key" (text, or base64 with "encoding": "base64") are needed')
        data = _key_bytes(key, document.get("encoding"))
        entry = self.operations.release(_name(request), topic, data, str(document.get("mode", "replay")))
        return JSONResponse(entry.json(), 202)

    def _plugins(self, request: Request, body: Any) -> Any:
        return self.operations.plugins(_flag(request, "connectorsOnly", True))

    def _plugin_config(self, request: Request, body: Any) -> Any:
        return self.operations.plugin_config(request.path_params["plugin"], first(request, "version"))

    def _validate(self, request: Request, body: Any) -> Any:
        return self.operations.validate(request.path_params["plugin"], _texts(_object(body)))


def error(code: int, message: str) -> Response:
    """Connect's error body."""
    return JSONResponse({"error_code": code, "message": message}, code)


def _takes_body(request: Request) -> bool:
    """Whether a request has a body that is looked at."""
    path = request.url.path.rstrip("/")
    if request.method == "PUT":
        return path.endswith(("/config", "/validate")) or "/admin/loggers/" in path
    return request.method == "PATCH" or (request.method == "POST" and path.endswith(("/connectors", "/release")))


def _place(info: Mapping[str, Any]) -> str:
    return f"/connectors/{quote(info['name'], safe='')}"


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _parsed(body: bytes) -> Any:
    if not body:
        return None
    try:
        parsed = json.loads(body)
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadRequestError("the body has half of a surrogate pair, which is no text") from None
    except RecursionError:
        raise BadRequestError("the body is nested too deeply") from None
    except ValueError as failure:
        raise BadRequestError(f"the body is no JSON: {failure}") from None
    return parsed


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise BadRequestError("a JSON object is needed here")
    return body


def _only(document: Mapping[str, Any], *names: str) -> None:
    unknown = document.keys() - set(names)
    if unknown:
        raise BadRequestError(f"unknown fields: {', '.join(sorted(unknown))}")


def _texts(document: dict[str, Any]) -> dict[str, str | None]:
    return {k: v if v is None or isinstance(v, str) else json.dumps(v) for k, v in document.items()}


def _flag(request: Request, name: str, default: bool = False) -> bool:
    word = first(request, name)
    if word is None:
        return default
    if word.lower() not in ("true", "false", ""):
        raise BadRequestError(f"{name} must be true or false")
    return word.lower() != "false"


def _key_bytes(key: str, encoding: Any) -> bytes:
    if encoding is None:
        return key.encode()
    try:
        if encoding != "base64":
            raise ValueError
        return base64.b64decode(key, validate=True)
    except ValueError:
        raise BadRequestError('"encoding" may be base64, and the key must then be that') from None
