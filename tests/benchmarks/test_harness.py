"""The harness of the benchmarks: turns, statistics, cost, what it writes. No broker."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from keyorder.benchmarks.harness.bench import Bench, Pairs, Run
from keyorder.benchmarks.harness.cost import Cost, Meter
from keyorder.benchmarks.harness.machine import facts
from keyorder.benchmarks.harness.measure import Figure, Goal, Measure, Result
from keyorder.benchmarks.harness.plots import save_plot
from keyorder.benchmarks.harness.report import document, save
from keyorder.benchmarks.harness.run import chosen, measures
from keyorder.benchmarks.harness.spread import Spread, percentile
from keyorder.benchmarks.load import Sent, drained
from keyorder.connector.cli.main import cli
from keyorder.partitioner.errors import UsageError

ROOT = Path(__file__).parents[2]


def bench(quick: bool = False) -> Bench:
    """A bench that is asked for no broker."""
    return Bench(ExitStack(), lambda _: None, quick)


def test_what_is_in_flight_at_a_moment_is_drained_when_the_last_of_it_is_acknowledged() -> None:
    """Over all writers; nothing in flight, nothing to wait for."""
    first = Sent(array("d", [0.0, 1.0]), array("d", [0.5, 2.0]), array("q", [1, 2]), [], 0)
    second = Sent(array("d", [0.25]), array("d", [0.5]), array("q", [3]), [], 0)

    # At 0, 0.5, 1, 1.5 and at 2, 2.5, 3, 3.5 s.
    assert drained([first, second], 0.0, 2.0, 4) == [0.5, 0.25, 2.0, 1.5]
    assert drained([first, second], 2.0, 4.0, 4) == [1.0, 0.5, 0.0, 0.0]
    assert drained([], 0.0, 1.0, 2) == [0.0, 0.0]


def test_two_things_take_turns_and_the_warm_up_does_not_count() -> None:
    """Each pair begins with the other one; the first pair is not among the counted ones."""
    calls: list[str] = []

    def thing(name: str) -> dict[str, float]:
        calls.append(name)
        return {"call": len(calls)}

    pairs = bench().pairs(lambda: thing("ours"), lambda: thing("theirs"), repeats=3)

    assert calls == ["theirs", "ours", "ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert [run.values["call"] for run in pairs.ours] == [3, 6, 7]
    assert [run.values["call"] for run in pairs.theirs] == [4, 5, 8]


def test_a_ratio_is_taken_within_each_pair() -> None:
    """Not of the medians: a slow moment of the machine meets both runs of a pair."""
    cost = Cost(1.0, 1.0, 0.0)
    pairs = Pairs([Run({"x": v}, cost) for v in (10, 40, 90)], [Run({"x": v}, cost) for v in (10, 20, 30)])

    figure = pairs.reported("x", "s")

    assert figure.ratio is not None
    assert figure.ratio.samples == (1.0, 2.0, 3.0)
    assert (figure.ours.median, figure.ratio.median) == (40, 2.0)


def test_percentiles_lie_between_neighbours() -> None:
    """The ends are the extremes, the middle of two is their mean; of nothing there is none."""
    assert [percentile([4, 1, 3, 2], share) for share in (0, 0.5, 1)] == [1, 2.5, 4]
    with pytest.raises(ValueError, match="nothing was measured"):
        Spread.of([])


def test_the_cpu_of_an_ended_child_is_counted() -> None:
    """A run's cost holds what processes used that it started and that are over, and not those that are apart."""
    meter = Meter()
    subprocess.run([sys.executable, "-c", "x = sum(i * i for i in range(3_000_000))"], check=True)
    cost = meter.stop()

    assert cost.cpu > 0.05
    assert cost.broker_cpu == 0


class Known(Measure):
    """A measure that knows its figures."""

    id, title, theirs = "P99", "nothing", "something"

    def run(self, bench: Bench) -> Result:
        """Without running anything."""
        spread = Spread.of([1.0, 2.0, 3.0])
        return Result({"records": 1}, 3, [Figure("time", "s", spread, spread, spread)], [Goal("g", "f", True)])


@pytest.mark.slow
def test_a_result_is_written_as_json_and_as_a_picture(tmp_path: Path) -> None:
    """With the facts of the machine, without the name of it."""
    measure = Known()
    result = measure.run(bench())

    save(document(measure, result, facts("4.1.2"), quick=True), tmp_path / "p99.json")
    save_plot(measure, result, tmp_path / "p99.svg")

    found = json.loads((tmp_path / "p99.json").read_text())
    assert (found["id"], found["quick"], found["figures"][0]["ratio"]["median"]) == ("P99", True, 2.0)
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["kafka"] == "4.1.2"
    assert not {"host", "node", "user"} & set(found["machine"])
    assert "<svg" in (tmp_path / "p99.svg").read_text()


def test_every_measure_is_found_and_documented() -> None:
    """Each file of the folder is a measure of its number, and each has its row in docs/benchmarks.md."""
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    files = {path.stem.partition("_")[0] for path in (ROOT / "benchmarks").glob("[pr][0-9]*_*.py")}

    found = measures()

    assert {f"{name[0].lower()}{int(name[1:]):02}" for name in found} == files
    assert [name for name in found if f"| {name} |" not in page] == []


def test_an_unknown_measure_is_refused_with_those_that_there_are() -> None:
    """By the same code as any wrong usage; ids may be in small letters."""
    assert [measure.id for measure in chosen(["p9"])] == ["P9"]
    with pytest.raises(UsageError, match=r"no measure P77: there are .*P9"):
        chosen(["P9", "P77"])


def test_the_command_explains_itself() -> None:
    """`keyorder bench --help` names the options that the pages show."""
    shown = CliRunner().invoke(cli, ["bench", "--help"])

    assert shown.exit_code == 0
    assert all(option in shown.output for option in ("--only", "--quick", "--results", "--bootstrap-server"))
