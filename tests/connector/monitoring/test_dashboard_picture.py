"""The picture of the dashboard: its queries as PromQL means them, every panel known, any other form refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from PIL import Image
from support.dashboard import BOARD, draw, legend, panels, said
from support.promql import NAME, Labels, Moment, QueryError, Scrape, Value, parsed


def of(name: str, **labels: str) -> Labels:
    return frozenset({**labels, NAME: name}.items())


def answer(text: str, *scrapes: Scrape) -> Value:
    return parsed(text)(Moment(scrapes))


NOW = Scrape(100.0, {of("up", topic="a"): 1.0, of("up", topic="b"): 0.0, of("lag", topic="a", group="g"): 7.0})
A, B = frozenset({("topic", "a")}), frozenset({("topic", "b")})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("up", {of("up", topic="a"): 1.0, of("up", topic="b"): 0.0}),
        ('up{topic=~"a|c"}', {of("up", topic="a"): 1.0}),
        ('up{topic="b"}', {of("up", topic="b"): 0.0}),
        ('lag{topic=~".*",group="h"}', {}),
        ("up == bool 0", {A: 0.0, B: 1.0}),
        ("sum(up == bool 0)", {frozenset(): 1.0}),
        ("max by (topic) (up)", {A: 1.0, B: 0.0}),
        ("count(up)", {frozenset(): 2.0}),
        ("count(nothing) or vector(0)", {frozenset(): 0.0}),
        ("count(up) or vector(0)", {frozenset(): 2.0}),
        ("time() - max(up)", {frozenset(): 99.0}),
        ("clamp_min(up, 1)", {A: 1.0, B: 1.0}),
    ],
)
def test_forms_of_one_scrape(text: str, expected: Value) -> None:
    assert expected == answer(text, NOW)


def test_a_rate_reaches_to_the_edges_of_its_window_and_a_counter_may_begin_anew() -> None:
    """30 in the 6 s between the first and the last scrape is 50 in 10 s; a reset counts from zero."""
    scrapes = [
        Scrape(at, {of("c_total", topic="a"): value}) for at, value in ((92, 100), (94, 110), (96, 10), (98, 20))
    ]
    now = Scrape(100.0, {})
    assert answer("rate(c_total[10s])", *scrapes, now) == {A: pytest.approx(30 * 10 / 6 / 10)}
    assert answer("sum by (topic) (increase(c_total[10s]))", *scrapes, now) == {A: pytest.approx(50)}
    assert answer("rate(c_total[3s])", *scrapes, now) == {}, "one sample is no rate"


def test_a_counter_is_not_extrapolated_below_zero() -> None:
    """It was 1 at the first scrape and rises by 1 a second: it began a second before, whatever the window says."""
    scrapes = [Scrape(at, {of("c_total"): value}) for at, value in ((94, 1), (96, 3), (98, 5), (100, 7))]
    assert answer("increase(c_total[8s])", *scrapes) == {frozenset(): pytest.approx(7)}


def test_a_quantile_lies_between_the_bounds_of_its_bucket() -> None:
    buckets = {"0.1": 0.0, "0.5": 8.0, "1": 16.0, "+Inf": 16.0}
    now = Scrape(1.0, {of("h_bucket", le=le, topic="a"): value for le, value in buckets.items()})
    assert answer("histogram_quantile(0.75, h_bucket)", now) == {A: pytest.approx(0.75)}
    assert answer("histogram_quantile(0.25, sum by (le) (h_bucket))", now) == {frozenset(): pytest.approx(0.3)}
    empty = Scrape(1.0, {of("h_bucket", le="+Inf"): 0.0})
    (nothing,) = answer("histogram_quantile(0.75, h_bucket)", empty).values()  # type: ignore[union-attr]
    assert math.isnan(nothing)


@pytest.mark.parametrize(
    "text",
    [
        "avg(up)", "irate(up[5m])", "up > 0", "up == 0", "up + up", 'up{topic!="a"}', "up offset 5m",
        "sum without (topic) (up)", "rate(up[5d])", "rate(up)", "sum(up", "up up", "topk(3, up)", "sum(up) by (topic)",
    ],
)  # fmt: skip
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(QueryError):
        parsed(text)


def test_two_vectors_are_not_combined() -> None:
    with pytest.raises(QueryError):
        answer("up - lag", NOW)


def test_no_time_since_something_is_negative() -> None:
    """A scrape's time is taken when it begins, and its values a little later: a turn may have begun in between."""
    now = Scrape(100.0, {of("keyorder_controller_turn_timestamp_seconds"): 100.026})
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    queries = [t["expr"] for panel in board["panels"] for t in panel.get("targets", ()) if "time()" in t["expr"]]
    assert [list(answer(query, now).values()) for query in queries] == [[0.0]]  # type: ignore[union-attr]


@pytest.mark.slow
def test_every_panel_is_drawn_where_the_dashboard_has_it(tmp_path: Path) -> None:
    """The dashboard's own file is understood whole, also where nothing was scraped; 24 columns are 1200 pixels."""
    board = json.loads(BOARD.read_text())
    found = panels(board, 2)
    assert [panel["title"] for panel in board["panels"]] == [panel.title for panel in found]
    assert sum(len(panel.get("targets", ())) for panel in board["panels"]) == sum(len(p.targets) for p in found)
    scrapes = [Scrape(float(at), {of("keyorder_topic_partitions", topic="a"): at}) for at in (0, 2)]
    draw(found, scrapes, tmp_path / "board.png")
    with Image.open(tmp_path / "board.png") as image:
        assert image.width == 1200


def test_a_panel_of_another_type_is_refused() -> None:
    board = {"templating": {"list": []}, "panels": [{"type": "heatmap", "title": "Heat"}]}
    with pytest.raises(QueryError, match="Heat"):
        panels(board, 2)


def test_names_and_values() -> None:
    assert legend("{{group}} on {{topic}}", of("lag", topic="a", group="g")) == "g on a"
    assert [said(0.25, "s"), said(3.0, "s"), said(240.0, "s"), said(0.0, "s"), said(1500.0, "short")] == [
        "250 ms", "3 s", "4 min", "0 s", "1.5 K",
    ]  # fmt: skip
