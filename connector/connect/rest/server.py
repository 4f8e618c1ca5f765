"""The HTTP server of a worker, on a thread of its own."""

from __future__ import annotations

import socket
import threading

import uvicorn
from starlette.applications import Starlette

from ....partitioner.errors import ConfigError
from .security import Listener


def bind(listener: Listener) -> socket.socket:
    """The listening socket: taken first, so that the worker knows its port. Raises ConfigError if it is not free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        raise ConfigError(
            "listeners",
            f"{listener.host}:{listener.port} cannot be had ({error.strerror})",
            "use another port, 0 for any",
        ) from error
    return made


class RestServer:
    """Serves an application on a socket until `stop`."""

    def __init__(self, application: Starlette, listener: Listener, bound: socket.socket) -> None:
        self._socket = bound
        self._server = uvicorn.Server(
            uvicorn.Config(
                application,
                ssl_certfile=listener.certificate,
                ssl_keyfile=listener.key,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=5,
            )
        )
        self._thread = threading.Thread(target=self._run, name="connect-rest", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._socket.listen(128)
        self._thread.start()

    def stop(self) -> None:
        """Finish requests under way, then end."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(10)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
