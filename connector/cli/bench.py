"""`keyorder bench`: the measures of the source checkout, on a real broker."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from ...partitioner.errors import UsageError
from .output import emit_json, output_option

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = __name__.partition(".")[0]


@click.command(short_help="Measure speed against the alternatives.")
@click.option("--only", default="", help="Ids of measures, such as P9,P13. [default: all]")
@click.option("--quick", is_flag=True, help="A short run that only checks that a measure works.")
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where the JSON files and pictures go. By default benchmarks/results, for a short form build/bench.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=None,
    help="Pairs of runs that are measured. [default: 5, 2 with --quick]",
)
@click.option("--bootstrap-server", default=None, help="Use this cluster (host:port) and start no broker.")
@output_option
def bench(
    only: str, quick: bool, results: Path | None, repeats: int | None, bootstrap_server: str | None, output: str
) -> None:
    """Measure speed against the alternatives, in alternating runs on one broker.

    Writes a JSON file and a picture for each measure. docs/benchmarks.md says how they are taken. Needs a checkout
    of the source: an installed package does not contain the measures.
    """
    if not (_ROOT / "benchmarks" / "harness").is_dir():
        raise UsageError("the benchmarks are not part of an installed package: run this in a checkout of the source")
    from rich.console import Console

    harness = import_module(f"{_PACKAGE}.benchmarks.harness.run")
    folder = results or (_ROOT / "build" / "bench" if quick else _ROOT / "benchmarks" / "results")
    table = Console(quiet=output == "json")
    if not table.is_terminal:
        table = Console(width=max(table.width, 140), quiet=output == "json")
    found = harness.run(only.split(","), quick, folder, table, Console(stderr=True), bootstrap_server, repeats)
    if output == "json":
        emit_json({"results": found})
