"""`keyorder demo`: a topic grows under load, once with stock clients and once with keyorder's."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..demo.settings import DEFAULT_COUNTS, DEFAULT_SECONDS, DemoSettings, parse_counts
from .output import output_option


@click.command()
@click.option(
    "--seconds", type=float, default=DEFAULT_SECONDS, show_default=True, help="How long the load lasts, in seconds."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses the keys and the member that is killed.")
@click.option(
    "--partitions",
    default=",".join(map(str, DEFAULT_COUNTS)),
    show_default=True,
    help="The partition counts that the topic goes through.",
)
@click.option(
    "--rate", type=int, default=2_400, show_default=True, help="Records per second, on each of the two topics."
)
@click.option("--keys", type=int, default=24_000, show_default=True, help="The number of keys, besides the hot ones.")
@click.option("--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Brokers to start.")
@click.option("--bootstrap-server", default=None, help="Use this cluster (host:port) and start no broker.")
@click.option(
    "--report-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("keyorder-demo"),
    show_default=True,
    help="The folder for the report's page and picture.",
)
@click.option(
    "--keep-history", is_flag=True, help="Keep the clients' recordings beside the report, in a folder of the run's own."
)
@output_option
def demo(
    seconds: float,
    seed: int,
    partitions: str,
    rate: int,
    keys: int,
    brokers: str,
    bootstrap_server: str | None,
    report_dir: Path,
    keep_history: bool,
    output: str,
) -> None:
    """Grow a topic under load and check the order of each key.

    Producers send the same records to two topics, one with keyorder's clients and one with stock clients. A consumer
    group reads each. Both topics grow at the same moments, a member joins and one is killed. A checker then judges
    what the clients recorded. Exit code 1 when the checker finds a fault in what keyorder delivered.
    """
    settings = DemoSettings(
        report_dir=report_dir,
        counts=parse_counts(partitions),
        seconds=seconds,
        seed=seed,
        brokers=int(brokers),
        bootstrap_servers=bootstrap_server,
        rate=rate,
        keys=keys,
    )
    # Loaded on use: a wrong option is told at once.
    from rich.console import Console

    from ..demo.report import print_report
    from ..demo.start import run_demo

    outcome = run_demo(settings, Console(stderr=True), keep_history)
    if output == "json":
        # One line, so that it is the last one of whatever else a caller collects.
        click.echo(json.dumps(outcome.as_dict()))
    else:
        console = Console()
        # A pipe has no width of its own: the tables' is enough.
        print_report(outcome, console if console.is_terminal else Console(width=max(console.width, 130)))
    if not outcome.kept:
        click.get_current_context().exit(1)
