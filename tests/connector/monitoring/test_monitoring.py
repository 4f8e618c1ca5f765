"""A controller's metrics and checks: what a look says, what a scrape of a real one says, and what the page lists."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import keyorder
import pytest
import yaml
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.group_gates import GateNeed, GroupGate
from keyorder.connector.monitoring.cluster_metrics import ClusterCollector
from keyorder.connector.monitoring.controller_metrics import STUCK_S, ControllerMetrics
from keyorder.connector.monitoring.monitor import Monitor
from keyorder.connector.monitoring.serving import application
from keyorder.connector.monitoring.watching import ClusterWatch, Look
from keyorder.connector.operations.description import GroupDescription, TopicDescription, WriterDescription
from keyorder.connector.operations.overview import Overview
from keyorder.connector.topology.supervisor import Event
from keyorder.partitioner.epochs import ChangePhase, Epoch, OpenChange
from keyorder.partitioner.errors import UnmanagedTopicError
from keyorder.partitioner.layout import Layout
from keyorder.partitioner.modes import Mode
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from support.cluster import KafkaUnderTest
from support.controller_process import controller

ROOT = Path(keyorder.__path__[0])
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(families: Any) -> Samples:
    """{(name, labels): value}"""
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def scraped(text: str) -> Samples:
    return samples(text_string_to_metric_families(text))


def gate(partition: int, epoch: int, *blockers: GateNeed) -> GroupGate:
    return GroupGate(partition, epoch, 0, 0, False, False, False, blockers, blockers)


def test_a_look_as_families() -> None:
    """Lag by the ends that are known, an offset that two gates wait for once, ages since something was first seen."""
    topic = TopicDescription(
        "orders", "id", Layout(2, 3), 4, True,
        (Epoch(0, 2, {}, {}, 0), Epoch(3, 3, {0: 10}, {2: 0}, 5, 250)),
        OpenChange(4, 5, ChangePhase.PREPARE, 1),
        modes={0: Mode.READ_WRITE, 1: Mode.READ_WRITE, 2: Mode.READ_WRITE, 3: Mode.NONE},
        writers=(
            WriterDescription("w1", 1, ("orders",), False, 45_000, 900_000),
            WriterDescription("w2", 2, ("orders",), False, 45_000, None),
        ),
        groups=(
            GroupDescription(
                "g", {0: 4, 1: 7}, (gate(2, 3, GateNeed(0, 10, 4)), gate(3, 3, GateNeed(0, 8, 4), GateNeed(1, 9, 7))), 2
            ),
            GroupDescription("idle", {}, (), 2),
        ),
    )  # fmt: skip
    look = Look(
        1_000_000, (topic,), {"broken": UnmanagedTopicError("broken")}, {("orders", 0): 20, ("orders", 1): 5},
        {("orders", 4, "PREPARE"): 90.0}, {("g", "orders", 2, 3): 70.0, ("g", "orders", 3, 3): 60.0},
    )  # fmt: skip

    found = samples(ClusterCollector(lambda: look, lambda: 2, lambda: 100.0).collect())

    of_topic, of_group = (("topic", "orders"),), (("group", "g"), ("topic", "orders"))
    assert found["keyorder_look_timestamp_seconds", ()] == 1000
    assert found["keyorder_look_failures_total", ()] == 2
    assert found["keyorder_topic_readable", (("topic", "broken"),)] == 0
    assert found["keyorder_topic_epoch", of_topic] == 3
    assert (found["keyorder_topic_partitions", of_topic], found["keyorder_topic_partitions_physical", of_topic]) == (
        3,
        4,
    )
    assert found["keyorder_topic_last_hold_seconds", of_topic] == 0.25
    assert found["keyorder_topic_writers", of_topic] == 2
    assert found["keyorder_topic_writer_silent_seconds", of_topic] == 100
    assert found["keyorder_topic_partitions_by_mode", (("mode", "read_write"), ("topic", "orders"))] == 3
    assert found["keyorder_topic_change_open_seconds", (("phase", "PREPARE"), ("topic", "orders"))] == 10
    assert found["keyorder_group_lag_records", of_group] == 16
    assert found["keyorder_group_gates_closed", of_group] == 2
    assert found["keyorder_group_gate_missing_offsets", of_group] == 6 + 2
    assert found["keyorder_group_gate_oldest_closed_seconds", of_group] == 40
    assert found["keyorder_group_gates_closed", (("group", "idle"), ("topic", "orders"))] == 0


def test_a_look_that_fails_as_nobody_expected_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of our own, too: metrics that stand still, with no failure among them, look like a cluster that is well."""
    broken = [True]

    def look(*_: object) -> list[TopicDescription]:
        if broken:
            raise ValueError("boom")
        return []

    monkeypatch.setattr(Overview, "look", look)
    with closing(ClusterWatch({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, every=0.01)) as watch:
        assert watch.wait(1, 60) > 1
        assert (watch.problem, watch.last.at_ms) == ("ValueError('boom')", 0)
        broken.clear()
        assert watch.wait(watch.wait(-1, 0) + 1, 60)
        assert watch.failures > 1
        assert (watch.problem, watch.last.at_ms > 0) == ("", True)


def test_a_controllers_events_are_counted() -> None:
    registry = CollectorRegistry()
    counts = ControllerMetrics(registry)
    assert counts.ready()[0] is False
    counts.turn({"t"})
    changed = {"changed": True, "attempts": 2, "seconds": 0.4}
    counts.turned(
        [
            Event("failed", "t", {}),
            Event("take-over", "t", {}),
            Event("changed", "t", changed),
            Event("changed", "t", {**changed, "changed": False}),
            Event("job", facts={"job": "drain"}),
            Event("failed", facts={"job": "drain"}),
        ]
    )
    assert counts.ready()[0] is True
    counts.turned([Event("unreachable", facts={})])
    assert counts.ready() == (False, "no broker answered in the last turn")

    found = samples(registry.collect())
    of_topic = ("topic", "t")
    assert found["keyorder_changes_total", (("result", "changed"), of_topic)] == 1
    assert found["keyorder_changes_total", (("result", "unchanged"), of_topic)] == 1
    assert found["keyorder_changes_total", (("result", "failed"), of_topic)] == 1
    assert found["keyorder_change_take_overs_total", (of_topic,)] == 1
    assert found["keyorder_change_attempts_total", (of_topic,)] == 4
    assert found["keyorder_change_duration_seconds_bucket", (("le", "0.5"), of_topic)] == 2
    assert found["keyorder_controller_jobs_total", (("job", "drain"), ("result", "failed"))] == 1
    assert found["keyorder_controller_kafka_reachable", ()] == 0


def test_a_topic_that_is_not_scaled_shows_as_long_as_that_lasts() -> None:
    """The event comes once: an alert needs to see that it goes on."""
    registry = CollectorRegistry()
    counts = ControllerMetrics(registry)
    shown = []
    for events, refused in (([Event("refused", "t", {})], {"t"}), ([], {"t"}), ([], set[str]())):
        counts.turned(events, refused)
        shown.append(samples(registry.collect())["keyorder_scaling_refused", (("topic", "t"),)])
    assert shown == [1, 1, 0]
    assert samples(registry.collect())["keyorder_changes_total", (("result", "refused"), ("topic", "t"))] == 1


def test_counters_of_a_topic_are_there_before_anything_is_counted() -> None:
    """`increase()` sees a rise from 0 to 1, but not a series that begins with 1: the alert would miss the first failure."""
    registry = CollectorRegistry()
    counts = ControllerMetrics(registry)
    counts.looks_after(["t"])
    results = ("changed", "unchanged", "failed", "fenced", "refused")
    found = samples(registry.collect())
    assert [found["keyorder_changes_total", (("result", each), ("topic", "t"))] for each in results] == [0] * 5
    assert found["keyorder_change_take_overs_total", (("topic", "t"),)] == 0
    assert found["keyorder_scaling_refused", (("topic", "t"),)] == 0
    assert found["keyorder_change_attempts_total", (("topic", "t"),)] == 0
    counts.turn(["t"])
    counts.turned([Event("failed", "t", {})])
    counts.looks_after(["t"])
    assert samples(registry.collect())["keyorder_changes_total", (("result", "failed"), ("topic", "t"))] == 1


def test_a_turn_that_does_not_end_is_no_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """/healthz is what restarts a process: only a stuck one."""
    from keyorder.connector.monitoring import controller_metrics

    now = [1000.0]
    monkeypatch.setattr(controller_metrics.clock, "now", lambda: now[0])
    counts = ControllerMetrics(CollectorRegistry())
    counts.turn()
    now[0] += STUCK_S - 1
    assert counts.alive()[0] is True
    now[0] += 2
    assert counts.alive() == (False, f"the last turn began {STUCK_S + 1:.0f} s ago")


def test_a_pause_between_two_turns_is_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that `--interval` asks to wait is no part of a turn: /healthz and /readyz wait for it as well."""
    from keyorder.connector.monitoring import controller_metrics

    now = [1000.0]
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    monkeypatch.setattr(Overview, "look", lambda *_: [])  # it would wait for a broker
    with closing(Monitor(config, [], "127.0.0.1", 0, interval=180.0)) as monitor:
        monkeypatch.setattr(controller_metrics.clock, "now", lambda: now[0])
        monitor.counts.turn()
        monitor.counts.turned([])
        now[0] += 180 + STUCK_S - 1
        base = f"http://127.0.0.1:{monitor.port}"
        assert [get(f"{base}/{path}") for path in ("healthz", "readyz")] == [(200, "ok\n")] * 2
        now[0] += 2
        interval = scraped(get(f"{base}/metrics")[1])
        assert interval["keyorder_controller_interval_seconds", ()] == 180
        stuck = (503, f"the last turn began {180 + STUCK_S + 1:.0f} s ago\n")
        assert [get(f"{base}/{path}") for path in ("healthz", "readyz")] == [stuck] * 2


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/healthz", "200 OK", "ok"),
        ("GET", "/readyz", "503 Service Unavailable", "why"),
        ("GET", "/metrics", "200 OK", ""),
        ("GET", "/", "404 Not Found", "/metrics"),
        ("POST", "/metrics", "405 Method Not Allowed", "read only"),
    ],
)
def test_paths(method: str, path: str, status: str, text: str) -> None:
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path}
    setup_testing_defaults(environ)
    told: list[str] = []
    answer: Callable[..., Any] = application(
        CollectorRegistry(), {"/healthz": lambda: (True, ""), "/readyz": lambda: (False, "why")}
    )
    body = b"".join(answer(environ, lambda line, headers, *_: told.append(line)))
    assert told == [status]
    assert text in body.decode()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_running_controller_shows_its_topic(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A grown topic, a group behind its gates; then the group reads on, and the gates are open in a later scrape."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 2, config={"keyorder.view.age.ms": "300"})
    group = {**config, "group.id": f"g-{topic_name}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with OrderedProducer(config) as producer:
        for number in range(40):
            producer.produce(topic_name, b"v", f"k{number}")
        assert producer.flush(120) == 0
        with OrderedConsumer(group) as consumer:
            consumer.subscribe([topic_name])
            first = consumer.consume(1, 60)
            consumer.commit(message=first[0], asynchronous=False)
        admin.expand(topic_name, 3)
        with controller(kafka, topic_name, "--metrics-port", 0) as running:
            base = running.started["metrics"].removesuffix("/metrics")

            def until(holds: Callable[[Samples], bool]) -> Samples:
                deadline = time.monotonic() + 120
                while True:
                    status, text = get(f"{base}/metrics")
                    assert status == 200
                    found = scraped(text)
                    if holds(found):
                        return found
                    assert time.monotonic() < deadline, text
                    time.sleep(0.2)

            labels = (("group", f"g-{topic_name}"), ("topic", topic_name))
            found = until(
                lambda now: (
                    now.get(("keyorder_group_gates_closed", labels), 0) > 0
                    and now["keyorder_controller_kafka_reachable", ()] == 1
                )
            )
            assert found["keyorder_topic_partitions", (("topic", topic_name),)] == 3
            assert found["keyorder_topic_epoch", (("topic", topic_name),)] == 1
            assert found["keyorder_topic_writers", (("topic", topic_name),)] == 1
            assert found["keyorder_group_lag_records", labels] > 0
            assert found["keyorder_group_gate_missing_offsets", labels] > 0
            assert not any(("topic", other) in label for _, label in found for other in ["_keyorder"])
            assert get(f"{base}/healthz") == (200, "ok\n")
            assert get(f"{base}/readyz") == (200, "ok\n")
            with OrderedConsumer(group) as consumer:
                consumer.subscribe([topic_name])
                left = 40 - 1
                while left:
                    messages = [m for m in consumer.consume(left, 5) if m.error() is None]
                    left -= len(messages)
                    consumer.commit(asynchronous=False)
            found = until(lambda now: now["keyorder_group_gates_closed", labels] == 0)
            assert found["keyorder_group_lag_records", labels] == 0
            assert running.stop(signal.SIGTERM) == 0
    listed = set(re.findall(r"`(keyorder_[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in found if name.startswith("keyorder_")}
    starts = {name for name in shown if name.endswith("_created")}  # when a counter or histogram began
    assert shown - starts <= listed
    assert {re.sub(r"_created$", "", name) for name in starts} <= listed | {
        re.sub(r"_total$", "", each) for each in listed
    }


def test_an_address_that_is_taken_is_refused(kafka: KafkaUnderTest, topic_name: str) -> None:
    """Before the controller does anything."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    taken = kafka.bootstrap_servers.split(",")[0].rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "keyorder", "controller", "--bootstrap-server", kafka.bootstrap_servers,
         "--topic", topic_name, "--metrics-port", taken, "--output", "json"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--metrics-port" in json.loads(done.stdout)["error"]["message"]


NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on this machine (Debian: apt-get install prometheus)"
)


def expressions(panels: list[dict[str, Any]]) -> list[str]:
    """The queries of panels; a row has none."""
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_dashboard_and_alerts_use_metrics_that_exist() -> None:
    """Every name in a query is one of the reference table's; panels have an id of their own and do not overlap."""
    listed = set(re.findall(r"^\| `(keyorder_[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    alerts = yaml.safe_load((ROOT / "docker/monitoring/alerts.yaml").read_text())["groups"][0]["rules"]
    dashboard = json.loads((ROOT / "docker/monitoring/dashboard.json").read_text())
    panels = dashboard["panels"]
    queries = [rule["expr"] for rule in alerts] + expressions(panels)
    queries += [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    used = {name for query in queries for name in re.findall(r"keyorder_[a-z_]+", query)}
    assert {re.sub(r"_bucket$", "", name) for name in used} <= listed
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for grid in (panel["gridPos"] for panel in panels)
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all({"summary", "description"} <= rule["annotations"].keys() for rule in alerts)


@pytest.mark.parametrize(
    "metric",
    [
        "keyorder_producer_held_records",
        "keyorder_producer_hold_seconds",
        "keyorder_consumer_held_records",
        "keyorder_consumer_gates_closed",
        "keyorder_consumer_gate_oldest_closed_seconds",
        "keyorder_consumer_gate_seconds",
        "keyorder_group_lag_records",
    ],
)
def test_the_dashboard_shows_what_clients_say(metric: str) -> None:
    """What is held, for how long, and what waits at gates."""
    dashboard = json.loads((ROOT / "docker/monitoring/dashboard.json").read_text())
    shown = {name for query in expressions(dashboard["panels"]) for name in re.findall(r"keyorder_[a-z_]+", query)}
    assert metric in {re.sub(r"_bucket$", "", name) for name in shown}


def test_queries_ask_for_labels_and_buckets_that_the_metrics_have() -> None:
    """A wrong label matches nothing, and the panel stays empty without a word."""
    rows = re.findall(
        r"^\| `(keyorder_[a-z_]+)` \| ([a-z, ]*)\| (.*) \|$", (ROOT / "docs" / "metrics.md").read_text(), re.M
    )
    labels = {name: set(re.findall(r"[a-z]+", of)) for name, of, _ in rows}
    histograms = {name for name, _, meaning in rows if meaning.startswith("histogram")}
    dashboard = json.loads((ROOT / "docker/monitoring/dashboard.json").read_text())
    alerts = yaml.safe_load((ROOT / "docker/monitoring/alerts.yaml").read_text())["groups"][0]["rules"]
    for query in expressions(dashboard["panels"]) + [rule["expr"] for rule in alerts]:
        for name, selector in re.findall(r"(keyorder_[a-z_]+)(\{[^}]*\})?", query):
            metric = re.sub(r"_bucket$", "", name)
            assert (metric in histograms) == name.endswith("_bucket"), query
            wanted = set(re.findall(r"(\w+)=", selector)) | {
                label for by in re.findall(r"by \(([^)]*)\)", query) for label in re.split(r",\s*", by) if label != "le"
            }
            assert wanted <= labels[metric], query
    for panel in dashboard["panels"]:
        legends = {label for t in panel.get("targets", ()) for label in re.findall(r"\{\{(\w+)\}\}", t["legendFormat"])}
        named = [n for query in expressions([panel]) for n in re.findall(r"keyorder_[a-z_]+", query)]
        assert all(legends <= labels[re.sub(r"_bucket$", "", n)] for n in named), panel["title"]


@NEEDS_PROMTOOL
@pytest.mark.parametrize("interval", [None, 5, 600])
def test_a_controller_is_down_when_its_interval_and_two_minutes_are_over(tmp_path: Path, interval: int | None) -> None:
    """Its last turn began at 0. None: a controller of an earlier version, which does not tell."""
    labels = '{instance="controller:9404", job="keyorder"}'
    series = [{"series": f"keyorder_controller_turn_timestamp_seconds{labels}", "values": "0x60"}]
    if interval is not None:
        series.append({"series": f"keyorder_controller_interval_seconds{labels}", "values": f"{interval}x60"})
    down = 120 + (interval or 0)
    rule = {"exp_labels": {"severity": "page"}}
    rules = yaml.safe_load((ROOT / "docker/monitoring/alerts.yaml").read_text())
    for alert in rules["groups"][0]["rules"]:
        if alert["alert"] == "KeyorderControllerDown":
            rule["exp_annotations"] = alert["annotations"]
    waits = 120  # the rule's "for"
    cases = [(down, []), (down + waits + 60, [rule])]
    told = [{"eval_time": f"{at}s", "alertname": "KeyorderControllerDown", "exp_alerts": e} for at, e in cases]
    file = tmp_path / "alerts-test.yaml"
    test = {"interval": "30s", "input_series": series, "alert_rule_test": told}
    file.write_text(yaml.safe_dump({"rule_files": [str(ROOT / "docker/monitoring/alerts.yaml")], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_PROMTOOL
def test_prometheus_takes_the_rules_and_every_query_of_the_dashboard(tmp_path: Path) -> None:
    """By its own parser; Grafana's variables have values here, as they have in Grafana."""
    dashboard = json.loads((ROOT / "docker/monitoring/dashboard.json").read_text())
    queries = [re.sub(r"\[\$\w+\]", "[1m]", query) for query in expressions(dashboard["panels"])]
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(queries)]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    for file in (ROOT / "docker/monitoring/alerts.yaml", tmp_path / "queries.yaml"):
        done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    config = (ROOT / "docker/monitoring/prometheus.yaml").read_text()
    (tmp_path / "prometheus.yaml").write_text(config.replace("/etc/prometheus", str(ROOT / "docker/monitoring")))
    command = ["promtool", "check", "config", str(tmp_path / "prometheus.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
