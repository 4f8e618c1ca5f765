"""A demonstration for a caller: brokers if need be, the run, the picture and the page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

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
