"""A whole worker: herder and REST together, started and ended in the right order."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import TracebackType

from ....partitioner.errors import KeyorderError, PeerError
from ..runtime.launch import Parts, distributed, standalone
from ..runtime.operations.operations import Operations
from .app import RestApp
from .security import Listener, listener_of
from .server import RestServer, bind


class WorkerProcess:
    """Use as a context manager. url: where the REST answers, "" without one.

    Raises ConfigError for wrong settings and for a listener that would be open to anybody, before anything starts.
    """

    def __init__(self, settings: Mapping[str, str], in_group: bool) -> None:
        parts = Parts.of(settings, in_group)
        listener = listener_of(parts.parsed)
        self.url = ""
        bound: socket.socket | None = None
        if listener is not None:
            bound = bind(listener)
            self.url = parts.parsed["rest.advertised.url"] or _url(listener, bound)
        try:
            self.operations: Operations = (distributed if in_group else standalone)(parts, self.url)
        except BaseException:
            if bound is not None:
                bound.close()
            raise
        self._server: RestServer | None = None
        if listener is not None and bound is not None:
            try:
                app = RestApp(self.operations, listener, parts.parsed["rest.ssl.ca.location"])
                self._server = RestServer(app.application(), listener, bound)
            except BaseException:
                bound.close()
                self.operations.herder.stop()
                raise

    def start(self) -> None:
        """Return when the worker has read its topics and its REST answers. Raises what it failed with."""
        self.operations.herder.start()
        self.operations.herder.ready.wait()
        self.check()
        if self._server is not None:
            self._server.start()

    def check(self) -> None:
        """Raise what the worker has ended with, if it has; a PeerError where its own text would show a secret."""
        failure = self.operations.herder.failure
        if failure is None:
            return
        text = self.operations.herder.worker.resolver.redact(str(failure))
        if isinstance(failure, KeyorderError) and text == str(failure):
            raise failure from None  # its cause may show secrets; the herder has logged the whole, redacted
        raise PeerError(f"the worker ended: {text}") from None

    def stop(self) -> None:
        """End gracefully."""
        if self._server is not None:
            self._server.stop()
        self.operations.herder.stop()

    def __enter__(self) -> WorkerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _url(listener: Listener, bound: socket.socket) -> str:
    host = listener.host or socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"{listener.scheme}://{shown}:{bound.getsockname()[1]}"
