"""A demonstration for a caller: brokers if need be, the run, the picture and the page."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console

from .. import clock
from ..local.cluster import LocalCluster
from .live import Board, Show
from .outcome import Outcome
from .page import render_page
from .picture import draw
from .run import Demo, check_before
from .settings import DemoSettings
from .topics import reach

PNG, HTML = "timeline.png", "report.html"


def run_demo(settings: DemoSettings, console: Console, keep: bool = False) -> Outcome:
    """Run it and write the report. `console` shows the progress; `keep` leaves the recordings beside the report.

    Raises MissingExtraError, ConfigError, JavaNotFoundError, DownloadError, BrokerUnreachableError,
    WorkerFailedError, DemoStalledError. Nothing is left running, whatever happens.
    """
    began = clock.now()
    check_before(settings)
    board = Board(settings.seconds)
    with ExitStack() as stack:
        stack.enter_context(_signals_as_interrupt())
        show = stack.enter_context(Show(board, console))
        if settings.bootstrap_servers is None:
            show.stage(f"starting {settings.brokers} Kafka broker(s)")
            cluster = LocalCluster(brokers=settings.brokers, progress=_fetching(show, board))
            servers = stack.enter_context(cluster).bootstrap_servers
        else:
            servers = settings.bootstrap_servers
            reach(servers)
        outcome = Demo(settings, servers, show, board).run(keep)
        show.stage("drawing")
        folder = settings.report_dir.absolute()
        outcome.png, outcome.html = folder / PNG, folder / HTML
        draw(outcome, outcome.png)
        outcome.html.write_text(render_page(outcome, settings, outcome.png.read_bytes()), "utf-8")
    outcome.wall_seconds = clock.now() - began
    return outcome


def _fetching(show: Show, board: Board) -> Callable[[int, int], None]:
    """Says how far the download of Kafka is, on a fresh machine."""
    every, last = 2.0, [0.0]

    def told(there: int, needed: int) -> None:
        if there < needed and clock.now() - last[0] >= every:
            last[0] = clock.now()
            show.stage(f"fetching Kafka: {there / 1e6:.0f} of {needed / 1e6:.0f} MB")

    return told


@contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """SIGTERM and a closed terminal end the run as Ctrl-C does, so that nothing stays behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
