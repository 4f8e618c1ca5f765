"""What a worker tells of itself: health, metrics, loggers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..api.errors import BadRequestError
from ..runtime.clients import worker_connection
from ..runtime.loggers import LEVELS, known
from ..runtime.metrics import prometheus
from ..runtime.operations.operations import Operations
from .http import first


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
            return _status(500, "unhealthy", "The worker has stopped.")
        if not herder.ready.is_set():
            return _status(503, "starting", "The worker is reading its topics.")
        operations.connectors()
        return {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."}

    def metrics(request: Request, body: Any) -> Response:
        herder = operations.herder
        worker = herder.worker
        states = operations.herder.call(
            lambda: [
                (key[0], key[1], status.state)
                for key, status in herder.known.tasks.items()
                if status.worker_id == herder.worker_id
            ]
        )
        facts = {
            "connector_count": float(len(herder.state.configs)),
            "task_count": float(worker.alive()),
            "task_startup_attempts": float(worker.startups["attempts"]),
            "task_startup_failure": float(worker.startups["failure"]),
            "task_startup_success": float(worker.startups["attempts"] - worker.startups["failure"]),
            "leader": float(herder.leading),
            "assignment_epoch": float(herder.state.assignment.epoch),
        }
        return PlainTextResponse(
            prometheus(worker.metrics(), states, facts, worker.moves, worker.kinds()),
            media_type="text/plain; version=0.0.4; charset=utf-8",
        )

    def loggers(request: Request, body: Any) -> Any:
        return operations.herder.loggers.all()

    def logger(request: Request, body: Any) -> Any:
        return operations.herder.loggers.one(request.path_params["logger"])

    def set_logger(request: Request, body: Any) -> Any:
        name = request.path_params["logger"]
        known(name)
        level = str(body.get("level", "")).upper() if isinstance(body, dict) else ""
        if level not in LEVELS:
            raise BadRequestError(f"Invalid or missing log level: use one of {', '.join(LEVELS)}")
        scope = (first(request, "scope") or "worker").lower()
        if scope == "cluster":
            operations.set_level(name, level)
            return Response(status_code=204)
        if scope != "worker":
            raise BadRequestError("scope must be worker or cluster")
        return operations.herder.loggers.set(name, level)

    return [
        ("GET", "/health", health),
        ("GET", "/metrics", metrics),
        ("GET", "/admin/loggers", loggers),
        ("GET", "/admin/loggers/{logger}", logger),
        ("PUT", "/admin/loggers/{logger}", set_logger),
    ]


def _status(code: int, status: str, message: str) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse({"status": status, "message": message}, code)
