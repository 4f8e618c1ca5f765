"""`keyorder controller` as a process beside a real broker: what others left open, two at once, scaling by a policy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.controller_process import controller
from support.holding import until
from support.stock import written_by_stock
from support.workload import Workload

# A change waits for twice this age, so that commits lie that far apart.
QUICK = {"keyorder.view.age.ms": "200"}
KILLED = {**os.environ, "KEYORDER_CRASH_AT": "prepare-written"}
POLICY = """
max_records_per_s = 20
min_records_per_s = 1
hot_window_s = 0
cooldown_after_growth_s = 600
sample_s = 0.5
max_partitions = 4
"""


def once(kafka: KafkaUnderTest, topic: str, *words: object) -> tuple[int, list[dict[str, Any]]]:
    """A single run: its exit status and its events."""
    done = subprocess.run(
        [sys.executable, "-m", "keyorder", "controller", "--bootstrap-server", kafka.bootstrap_servers,
         "--topic", topic, "--interval", "0.2", "--output", "json", "--once", *map(str, words)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def under_load(kafka: KafkaUnderTest, topic: str) -> Iterator[None]:
    """Some hundred records a second, of many keys."""
    over = threading.Event()

    def write() -> None:
        with OrderedProducer(kafka.client_config()) as producer:
            number = 0
            while not over.wait(0.05):
                for _ in range(10):
                    number += 1
                    producer.produce(topic, b"v", f"key {number % 200}")
                producer.poll(0)
            assert producer.flush(120) == 0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(120)


def test_a_killed_growth_is_finished(kafka: KafkaUnderTest, tmp_path: Path, topic_name: str) -> None:
    """A change cut off after PREPARE stands still, is taken over, and gets the topic there; SIGTERM ends it cleanly."""
    with Workload(kafka, tmp_path, topic_name, 2, config=QUICK) as run:
        assert run.expand(4, KILLED) == -signal.SIGKILL
        with controller(kafka, topic_name, "--takeover-after", 1) as running:
            seen = running.until("change-open")
            taken = running.until("take-over")
            changed = running.until("changed")
            assert running.stop() == 0
            assert running.until("stopped")["left_open"] == []
        found = run.admin.describe(topic_name)

    assert (seen["count"], seen["phase"], taken["count"]) == (4, "PREPARE", 4)
    assert taken["stood_still_s"] >= 1
    assert (changed["before"], changed["after"], changed["changed"]) == (2, 4, True)
    assert (found.layout.count, found.change) == (4, None)


def test_two_controllers_get_one_change_done(kafka: KafkaUnderTest, tmp_path: Path, topic_name: str) -> None:
    """Both take it over at the same moment: one epoch comes of it, and both go on watching until SIGINT."""
    with Workload(kafka, tmp_path, topic_name, 2, config=QUICK) as run:
        assert run.expand(4, KILLED) == -signal.SIGKILL
        words = ("--takeover-after", 1)
        with controller(kafka, topic_name, *words) as one, controller(kafka, topic_name, *words) as two:
            until(lambda: run.admin.describe(topic_name).layout.count == 4)
            assert [each.stop(signal.SIGINT) for each in (one, two)] == [0, 0]
            for each in (one, two):
                assert each.until("stopped")["left_open"] == []
        found = run.admin.describe(topic_name)

    told = [event["event"] for each in (one, two) for event in each.events]
    assert "changed" in told
    assert "failed" not in told  # the slower one was fenced, or saw the change closed, or came when all was over

    assert [epoch.count for epoch in found.epochs] == [2, 4]
    assert found.change is None


def test_a_dry_run_tells_a_growth_and_changes_nothing(kafka: KafkaUnderTest, tmp_path: Path, topic_name: str) -> None:
    """Under load the decision is told with its reason; the topic stays as it was."""
    admin = TopicAdmin(kafka.client_config())
    before = admin.create(topic_name, 2, config=QUICK)
    (tmp_path / "policy.toml").write_text(POLICY)
    with under_load(kafka, topic_name), controller(kafka, topic_name, "--autoscale", tmp_path / "policy.toml") as it:
        decision = it.until("decision")
        while decision["count"] == 2:
            decision = it.until("decision")
        assert it.stop() == 0

    assert (decision["current"], decision["count"], decision["due"], decision["applied"]) == (2, 4, True, False)
    assert "records/s, more than 20" in decision["reason"]
    assert admin.describe(topic_name).epochs == before.epochs


def test_apply_grows_under_load(kafka: KafkaUnderTest, tmp_path: Path, topic_name: str) -> None:
    """--apply carries the decision out while records flow, once."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    (tmp_path / "policy.toml").write_text(POLICY)
    words = ("--autoscale", tmp_path / "policy.toml", "--apply")
    with under_load(kafka, topic_name), controller(kafka, topic_name, *words) as running:
        changed = running.until("changed", "failed")
        assert running.stop() == 0

    assert changed["event"] == "changed", changed
    assert (changed["before"], changed["after"]) == (2, 4)
    assert [epoch.count for epoch in admin.describe(topic_name).epochs] == [2, 4]


def test_a_topic_that_a_stock_producer_writes_is_not_scaled(
    kafka: KafkaUnderTest, tmp_path: Path, topic_name: str
) -> None:
    """It says so once and stays; a single run ends with exit code 3. The topic's own table of the policy accepts it."""
    admin = TopicAdmin(kafka.client_config())
    before = admin.create(topic_name, 2, config=QUICK)
    (tmp_path / "policy.toml").write_text(POLICY)
    accepting = f"{POLICY}[topics.{topic_name}]\naccept_stock_writers = true\n"
    (tmp_path / "accepting.toml").write_text(accepting)
    words = ("--autoscale", tmp_path / "policy.toml", "--apply")
    with written_by_stock(kafka, topic_name):
        with controller(kafka, topic_name, *words) as running:
            refused = running.until("refused", "changed", "failed")
            assert running.stop() == 0
        code, events = once(kafka, topic_name, *words)
        assert admin.describe(topic_name).epochs == before.epochs
        with controller(kafka, topic_name, "--autoscale", tmp_path / "accepting.toml", "--apply") as running:
            changed = running.until("refused", "changed", "failed")
            assert running.stop() == 0

    assert (refused["event"], refused["error"]["type"]) == ("refused", "StockWritersError")
    assert "accept_stock_writers = true" in refused["error"]["message"]
    assert (code, [event["event"] for event in events if event["event"] != "decision"]) == (
        3, ["started", "refused", "stopped"],
    )  # fmt: skip
    assert (changed["event"], changed["after"]) == ("changed", 4)


def test_one_run_for_cron(kafka: KafkaUnderTest, tmp_path: Path, topic_name: str) -> None:
    """--once ends by itself: after a look when all is quiet, after the loads were measured, after an open change."""
    with Workload(kafka, tmp_path, topic_name, 2, config=QUICK) as run:
        (tmp_path / "policy.toml").write_text(POLICY)
        code, events = once(kafka, topic_name, "--autoscale", tmp_path / "policy.toml")
        assert (code, [event["event"] for event in events]) == (0, ["started", "decision", "stopped"])
        assert (events[1]["count"], events[1]["reason"]) == (2, "the load fits")

        assert run.expand(3, KILLED) == -signal.SIGKILL
        code, events = once(kafka, topic_name, "--takeover-after", 0.5)
        assert code == 0, events
        assert [event["event"] for event in events] == ["started", "change-open", "take-over", "changed", "stopped"]
        assert all(isinstance(event["at_ms"], int) for event in events)
        assert run.admin.describe(topic_name).layout.count == 3


def test_wrong_calls_end_at_once(kafka: KafkaUnderTest, tmp_path: Path, topic_name: str) -> None:
    """A topic that does not exist, a field that does not exist, --apply without a policy: exit code 2, one error."""
    (tmp_path / "policy.toml").write_text("max_record_per_s = 1")
    for words, kind in (
        ([], "TopicNotFoundError"),
        (["--autoscale", tmp_path / "policy.toml"], "ConfigError"),
        (["--apply"], "UsageError"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "keyorder", "controller", "--bootstrap-server", kafka.bootstrap_servers,
             "--topic", topic_name, "--output", "json", *map(str, words)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert (done.returncode, json.loads(done.stdout)["error"]["type"]) == (2, kind), done
