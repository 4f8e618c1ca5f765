"""What a worker tells of itself: health, metrics, loggers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..api.errors import BadRequestError, NotFoundError
from ..runtime.clients import worker_connection
from ..runtime.metrics import prometheus
from ..runtime.operations import Operations

# Java's words for levels, and Python's.
_LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_ROOT = "keyorder"


def worker_facts(operations: Operations) -> dict[str, Any]:
    """The cluster's id, asked once."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(worker_connection(operations.herder.settings))
    return {"kafka_cluster_id": str(admin.list_topics(timeout=10).cluster_id)}


def admin_routes(operations: Operations) -> list[tuple[str, str, Callable[[Request, Any], Any]]]:
    """(method, path, handler) of /health, /metrics and /admin/loggers."""

    def health(request: Request, body: Any) -> Any:
        herder = operations.herder
        if herder.failure is not None or not herder.is_alive():
            return _status(503, "unhealthy", "The worker has stopped.")
        if not herder.ready.is_set():
            return _status(503, "starting", "The worker is reading its topics.")
        operations.connectors()
        return {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."}

    def metrics(request: Request, body: Any) -> Response:
        herder = operations.herder
        states = operations.herder.call(
            lambda: [
                (key[0], key[1], status.state)
                for key, status in herder.known.tasks.items()
                if status.worker_id == herder.worker_id
            ]
        )
        facts = {
            "connector_count": float(len(herder.state.configs)),
            "task_count": float(herder.worker.alive()),
            "leader": float(herder.leading),
            "assignment_epoch": float(herder.state.assignment.epoch),
        }
        return PlainTextResponse(
            prometheus(herder.worker.metrics(), states, facts), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    def loggers(request: Request, body: Any) -> Any:
        names = [n for n in logging.Logger.manager.loggerDict if n == _ROOT or n.startswith(f"{_ROOT}.")]
        return {name: _level(name) for name in sorted({_ROOT, *names})}

    def logger(request: Request, body: Any) -> Any:
        return _level(_known(request.path_params["logger"]))

    def set_logger(request: Request, body: Any) -> Any:
        name = _known(request.path_params["logger"], exists=False)
        level = str(body.get("level", "")).upper() if isinstance(body, dict) else ""
        if level not in _LEVELS:
            raise BadRequestError(f"Invalid or missing log level: use one of {', '.join(_LEVELS)}")
        scope = request.query_params.get("scope", "worker")
        if scope != "worker":
            raise BadRequestError("scope must be worker: ask each worker of the group")
        logging.getLogger(name).setLevel(_LEVELS[level])
        return [n for n in loggers(request, None) if n == name or n.startswith(f"{name}.")] or [name]

    return [
        ("GET", "/health", health),
        ("GET", "/metrics", metrics),
        ("GET", "/admin/loggers", loggers),
        ("GET", "/admin/loggers/{logger}", logger),
        ("PUT", "/admin/loggers/{logger}", set_logger),
    ]


def _known(name: str, exists: bool = True) -> str:
    """A logger of keyorder's: those of other libraries in the process are not the REST's to touch."""
    full = _ROOT if name == "root" else name
    if not (full == _ROOT or full.startswith(f"{_ROOT}.")) or (
        exists and full not in (_ROOT, *logging.Logger.manager.loggerDict)
    ):
        raise NotFoundError(f"Logger {name} not found.")
    return full


def _level(name: str) -> dict[str, Any]:
    number = logging.getLogger(name).getEffectiveLevel()
    word = min(_LEVELS, key=lambda w: abs(_LEVELS[w] - number))
    return {"level": word, "last_modified": None}


def _status(code: int, status: str, message: str) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse({"status": status, "message": message}, code)
