"""What tasks measure, and the names of Kafka Connect's MBeans as Prometheus' JMX exporter writes them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import httpx
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.runtime.metrics import Moves, Samples
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, sink, until, worker_settings

# Of the sink, the source, and the worker: attributes of MBeans that public dashboards ask for.
TASK = {
    "connector_task_metrics": "batch_size_avg batch_size_max offset_commit_avg_time_ms offset_commit_max_time_ms "
    "offset_commit_success_percentage offset_commit_failure_percentage running_ratio pause_ratio",
    "task_error_metrics": "total_record_errors total_record_failures total_records_skipped total_retries total_errors_logged "
    "deadletterqueue_produce_requests deadletterqueue_produce_failures last_error_timestamp",
}
SINK = {
    "sink_task_metrics": "sink_record_read_rate sink_record_read_total sink_record_send_rate sink_record_send_total partition_count "
    "put_batch_avg_time_ms put_batch_max_time_ms offset_commit_completion_rate offset_commit_completion_total sink_record_active_count"
}
SOURCE = {
    "source_task_metrics": "source_record_poll_rate source_record_poll_total source_record_write_rate source_record_write_total "
    "poll_batch_avg_time_ms poll_batch_max_time_ms source_record_active_count"
}
WORKER = {
    "connect_worker_metrics": "connector_count task_count task_startup_attempts_total task_startup_success_total task_startup_failure_total",
    "connect_worker_rebalance_metrics": "completed_rebalances_total epoch rebalancing rebalance_avg_time_ms rebalance_max_time_ms "
    "time_since_last_rebalance_ms",
}
PER_CONNECTOR = [
    f"connector_{s}_task_count" for s in ("total", "running", "paused", "failed", "unassigned", "restarting")
]


def test_samples_are_those_of_the_last_minute() -> None:
    """Mean, highest and rate; older ones are forgotten, without any they are no number."""
    samples = Samples(0.0)
    assert all(map(math.isnan, samples.mean_and_highest(5.0)))
    for now, value in ((1.0, 2.0), (10.0, 4.0), (35.0, 6.0)):
        samples.record(value, now)
    assert samples.mean_and_highest(40.0) == (4.0, 6.0)
    assert samples.rate(40.0) == 12.0 / 40.0
    assert samples.mean_and_highest(70.0) == (6.0, 6.0)
    assert all(map(math.isnan, samples.mean_and_highest(200.0)))
    assert samples.rate(200.0) == 0.0


def test_a_rebalance_lasts_until_what_is_assigned_runs() -> None:
    """One that is overtaken by the next is part of it."""
    moves = Moves()
    moves.follow(1, False)
    moves.follow(2, False)
    assert (moves.under_way, moves.completed) == (True, 0)
    moves.follow(2, True)
    moves.follow(2, True)
    assert (moves.under_way, moves.completed) == (False, 1)


def test_dashboards_find_the_names_that_they_know(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Every attribute, with the labels of its MBean, and figures that are those of what was done."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        for number in range(5):
            producer.produce(topic_name, str(number), "k")
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    source = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": f"{topic_name}-lines"}
    source |= {"topic.creation.default.partitions": "1"}
    with WorkerProcess(worker_settings(kafka, tmp_path) | {"listeners": "http://127.0.0.1:0"}, False) as worker:
        rest = RestClient(worker.url)
        rest.ok("PUT", f"/connectors/{topic_name}/config", sink(topic_name))
        rest.ok("PUT", "/connectors/lines/config", source)

        def figures() -> dict[str, float]:
            lines = re.findall(r"^(kafka_connect_\S+) (\S+)$", httpx.get(f"{worker.url}/metrics").text, re.MULTILINE)
            return {name: float(value) for name, value in lines}

        def of(bean: str, attribute: str, connector: str) -> str:
            return f'kafka_connect_{bean}_{attribute}{{connector="{connector}",task="0"}}'

        last = (of("sink_task_metrics", "offset_commit_completion_total", topic_name),
                of("connector_task_metrics", "offset_commit_success_percentage", "lines"))  # fmt: skip
        until(lambda: all(figures().get(name, 0) > 0 for name in last), "both have committed")
        found = figures()
    for connector, beans in ((topic_name, {**TASK, **SINK}), ("lines", {**TASK, **SOURCE})):
        names = {of(bean, name, connector) for bean, words in beans.items() for name in words.split()}
        assert names <= set(found), names - set(found)
        assert {f'kafka_connect_connect_worker_metrics_{n}{{connector="{connector}"}}' for n in PER_CONNECTOR} <= set(
            found
        )
        assert found[f'kafka_connect_connector_status{{connector="{connector}",status="running",task="0"}}'] == 1
    worker_names = {f"kafka_connect_{bean}_{name}" for bean, words in WORKER.items() for name in words.split()}
    assert worker_names <= set(found), worker_names - set(found)
    assert found[of("sink_task_metrics", "sink_record_read_total", topic_name)] == 5
    assert found[of("sink_task_metrics", "partition_count", topic_name)] == 1
    assert found[of("source_task_metrics", "source_record_write_total", "lines")] == 2
    for name in (of("sink_task_metrics", "put_batch_avg_time_ms", topic_name), of("sink_task_metrics", "put_batch_max_time_ms", topic_name),
                 of("connector_task_metrics", "offset_commit_max_time_ms", topic_name), of("connector_task_metrics", "batch_size_max", "lines"),
                 of("connector_task_metrics", "running_ratio", topic_name), of("source_task_metrics", "source_record_poll_rate", "lines")):  # fmt: skip
        assert found[name] > 0, name
    assert found["kafka_connect_connect_worker_metrics_task_startup_success_total"] == 2
