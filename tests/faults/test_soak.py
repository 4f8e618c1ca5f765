"""What a soak counts and tells, without a cluster; and one of three minutes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from faults import soak_report
from faults.slopes import Bound, slope
from faults.soak import BOUNDS, PAGE, RECORD, Soak, document, run

BOUND = Bound("MiB/h", 20.0, 8.0)


def noisy(per_hour: float, minutes: float, seed: int = 1, alike: float = 0.0) -> tuple[list[float], list[float]]:
    """Samples every 5 s of a line with noise. alike: how much of the noise stays until the next sample."""
    chance, left = random.Random(seed), 0.0
    times = [5.0 * i for i in range(int(minutes * 12))]
    values = []
    for t in times:
        left = alike * left + chance.gauss(0, 1)
        values.append(100 + per_hour * t / 3600 + left)
    return times, values


@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_the_interval_holds_the_true_slope(alike: float) -> None:
    """In some nineteen of twenty series, also where each sample is much like the one before it."""
    held = 0
    for seed in range(200):
        found = slope(*noisy(50.0, 30, seed, alike))
        assert found is not None
        held += found.low <= 50.0 <= found.high
    assert held >= 180


def test_a_line_without_noise_has_its_slope() -> None:
    """In units per hour, with an interval of no width."""
    found = slope([0.0, *(360.0 * i for i in range(1, 11))], [float(i) for i in range(11)])

    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((10.0, 10.0, 10.0))
    assert found.hours == 1.0


def test_too_few_samples_have_no_slope() -> None:
    """Nor has a moment; and nothing is judged by them."""
    assert slope([0.0, 1.0], [1.0, 2.0]) is None
    assert slope([1.0] * 9, [1.0] * 9) is None
    assert not BOUND.broken(None)


def test_a_leak_breaks_the_bound_and_noise_does_not() -> None:
    """The whole interval has to lie above, by more than what an allocator takes at once."""
    assert BOUND.broken(slope(*noisy(60.0, 30)))
    assert not BOUND.broken(slope(*noisy(0.0, 30)))
    assert not BOUND.broken(slope(*noisy(60.0, 3)))


def a_soak(per_hour: float) -> Soak:
    """Half an hour in which one process grows, and the broker with it."""
    samples = list(zip(*noisy(per_hour, 30), strict=True))
    series = {"w1 memory": samples, "broker memory": samples, "w1 threads": [(t, 5.0) for t, _ in samples]}
    return Soak(
        7, 1800.0, series, [(30.0, 2.0), (60.0, 4.0)], {"member": 1, "controller": 2}, {"records": 9, "lost": 0}
    )


def test_only_our_processes_are_held_to_a_bound() -> None:
    """The broker is shown."""
    found = document(a_soak(200.0))["slopes"]

    assert {name: each["broken"] for name, each in found.items()} == {
        "w1 memory": True,
        "broker memory": False,
        "w1 threads": False,
    }
    assert found["broker memory"]["bound"] is None
    assert not any(each["broken"] for each in document(a_soak(0.0))["slopes"].values())


def test_soaks_are_kept_and_told(tmp_path: Path) -> None:
    """The record has each run without its samples, the page all of them and the table of the longest."""
    record, page = tmp_path / "soak.json", tmp_path / "soak.md"
    page.write_text("# Soak\n\n<!-- runs -->\nold\n<!-- end -->\nrest\n")
    soak_report.add(record, document(a_soak(0.0)))
    soak_report.add(record, document(a_soak(200.0)))
    soak_report.update_page(page, soak_report.load(record))
    text = page.read_text()

    assert [run["seed"] for run in soak_report.load(record)["runs"]] == [7, 7]
    assert "series" not in soak_report.load(record)["runs"][0]
    assert text.count("- 30 minutes, seed 7: 2 changes, 1 members and 2 controllers killed") == 2
    assert text.startswith("# Soak\n")
    assert text.endswith("<!-- end -->\nrest\n")
    assert "old" not in text


@pytest.mark.slow
def test_a_soak_is_told_with_its_bounds_and_drawn(tmp_path: Path) -> None:
    """What broke is marked, and the bounds stand beside it."""
    found = document(a_soak(200.0))
    soak_report.write(found, tmp_path)
    told = soak_report.summary(found, BOUNDS)

    assert next(line for line in told.splitlines() if line.endswith("| above |")).startswith("| w1 memory |")
    assert "memory 20 MiB/h" in told
    assert json.loads((tmp_path / "soak.json").read_text())["seed"] == 7
    assert "<svg" in (tmp_path / "soak.svg").read_text()


def test_the_page_shows_the_record() -> None:
    """Its runs are the kept ones."""
    assert soak_report.page_of(soak_report.load(RECORD)) in PAGE.read_text()


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.process_supplier("its processes are looked at")
def test_three_minutes(tmp_path: Path) -> None:
    """Nothing lost, reordered or repeated, nothing of ours grows without an end, and processes were really killed."""
    found = document(run(3, 1, tmp_path))

    assert found["wrong"] == ""
    assert [name for name, each in found["slopes"].items() if each["broken"]] == []
    assert len(found["changes"]) >= 4
    assert min(found["kills"].values()) >= 1
    assert all(samples for samples in found["series"].values())
