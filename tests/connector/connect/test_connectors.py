"""The mirror, Parquet, plugins of other packages, and the command line."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.cli.main import cli
from keyorder.connector.connect import SinkRecord
from keyorder.connector.connect.connectors.mirror_settings import PLACE_HEADER
from keyorder.connector.connect.connectors.parquet import ParquetSinkTask
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.connect.runtime.plugins import Plugins
from support.cluster import KafkaUnderTest
from support.connect_rig import MemorySink, alone, running, until, worker_settings

BYTES = {
    "key.converter": "ByteArrayConverter",
    "value.converter": "ByteArrayConverter",
    "header.converter": "ByteArrayConverter",
}


def test_a_managed_topic_is_mirrored_in_order_while_it_grows(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Two tasks; keys move between them and still arrive in the target one after the other, headers and times kept."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config={"keyorder.view.age.ms": "400"})
    target = f"{topic_name}-copy"
    admin.create(target, 5)
    config = {
        "connector.class": "Mirror",
        "tasks.max": "2",
        "source.topic": topic_name,
        "target.topic": target,
        "source.bootstrap.servers": kafka.bootstrap_servers,
        "source.session.timeout.ms": "6000",
        "source.heartbeat.interval.ms": "1000",
        **BYTES,
    }
    with alone(worker_settings(kafka, tmp_path)) as worker, OrderedProducer(kafka.client_config()) as producer:
        worker.create(f"{topic_name}-m", config)
        worker.create(f"{topic_name}-s", {"connector.class": "MemorySink", "topics": target})
        running(worker, f"{topic_name}-m", 2)
        for round_, count in enumerate((2, 5, 3)):
            if count != 2:
                (admin.expand if count == 5 else admin.shrink)(topic_name, count)
            for i in range(100):
                producer.produce(
                    topic_name, f"{round_ * 100 + i}", f"k{i % 20}", headers=[("h", b"\xff")], timestamp=1000 + i
                )
            producer.flush()
        name = f"{topic_name}-s"
        until(lambda: len(MemorySink.values(name)) >= 300, lambda: f"300 are copied: {len(MemorySink.values(name))}")
        running(worker, f"{topic_name}-m", 2)

    assert len(MemorySink.values(name)) == 300
    for k in range(20):
        assert MemorySink.values(name, f"k{k}") == [str(i) for i in range(300) if i % 20 == k]
    one = MemorySink.seen[name][0]
    assert one.headers.last("h").value == b"\xff"  # type: ignore[union-attr]
    assert str(one.headers.last(PLACE_HEADER).value).startswith(topic_name)  # type: ignore[union-attr]
    assert one.timestamp in range(1000, 1100)


def test_parquet_files_are_whole_and_written_again_in_place(tmp_path: Path) -> None:
    """Nothing shows before flush; a flush from the same offset on replaces the file."""
    task = ParquetSinkTask()
    asked: list[bool] = []
    task.context = SimpleNamespace(request_commit=lambda: asked.append(True))  # type: ignore[assignment]
    task.start({"folder": str(tmp_path), "flush.size": "3"})
    records = [
        SinkRecord(topic="t", original_topic="t", key=f"k{i}", value={"n": i}, offset=i, partition=i % 2, timestamp=i)
        for i in range(4)
    ]
    task.put(records[:2])
    assert (list(tmp_path.iterdir()), asked) == ([], [])
    task.put(records[2:])
    assert asked == [True]
    task.flush({})
    task.put(records[::2])
    task.flush({})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"t+{p:06d}+{p:020d}.parquet" for p in range(2)]
    rows = pq.read_table(tmp_path / names[0]).to_pylist()
    assert [(row["key"], json.loads(row["value"]), row["offset"]) for row in rows] == [
        ("k0", {"n": 0}, 0),
        ("k2", {"n": 2}, 2),
    ]


PLUGIN = """
from keyorder.connector.connect import ConfigDef, SinkConnector, SinkTask

class Printer(SinkConnector):
    version = "7"
    @classmethod
    def config(cls): return ConfigDef().define("file", "STRING")
    @classmethod
    def task_class(cls): return PrinterTask
    def start(self, config): self.given = config
    def task_configs(self, max_tasks): return [self.given]

class PrinterTask(SinkTask):
    def start(self, config): self.file = open(config["file"], "a")
    def put(self, records): self.file.writelines(f"{r.value}\\n" for r in records)
    def flush(self, offsets): self.file.flush()
"""


def test_a_plugin_of_another_package_runs(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by its entry point `keyorder.connectors`, listed with its version, run like a built-in one."""
    site = tmp_path / "site"
    info = site / "printer_plugin-7.dist-info"
    info.mkdir(parents=True)
    (site / "printer_plugin.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: printer-plugin\nVersion: 7\n")
    (info / "entry_points.txt").write_text("[keyorder.connectors]\nPrinter = printer_plugin:Printer\n")
    monkeypatch.syspath_prepend(site)
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with alone(worker_settings(kafka, tmp_path)) as worker:
        assert {"class": "printer_plugin.Printer", "type": "sink", "version": "7"} in worker.plugins()
        worker.create(topic_name, {"connector.class": "Printer", "topics": topic_name, "file": str(tmp_path / "out")})
        with OrderedProducer(kafka.client_config()) as producer:
            producer.produce(topic_name, "hello", "k")
        until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text() == "hello\n", "it is printed")


def test_no_code_can_be_named_that_is_no_plugin() -> None:
    """Neither a module's function nor a class that nobody offered."""
    for name in (
        "os:system",
        "os.system",
        "keyorder.connector.connect.connectors.file:FileStreamSinkTask",
        "subprocess.Popen",
    ):
        with pytest.raises(LookupError):
            Plugins().connector(name)


@pytest.fixture
def properties(kafka: KafkaUnderTest, tmp_path: Path) -> Path:
    """A standalone worker's file."""
    path = tmp_path / "worker.properties"
    settings = worker_settings(kafka, tmp_path) | {"listeners": "http://127.0.0.1:0"}
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


@pytest.mark.parametrize(
    ("worker", "connector", "names"),
    [
        ({}, {"connector.class": "Nope"}, "Nope"),
        ({}, {"transforms": "a"}, "transforms.a.type"),
        ({}, {"producer.override.acks": "0"}, "producer.override.acks"),
        ({}, {"value.converter": "Nope"}, "value.converter"),
        ({"security.protocol": "magic"}, {}, "security.protocol"),
        ({"ssl.truststore.location": "x.jks"}, {}, "ssl.truststore.location"),
        ({"listeners": "taken"}, {}, "listeners"),
    ],
)
def test_a_dry_run_refuses_what_the_start_would(
    tmp_path: Path, worker: dict[str, str], connector: dict[str, str], names: str
) -> None:
    """The same error, and nothing of it needs a broker."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        own = {"bootstrap.servers": "127.0.0.1:1", "offset.storage.file.filename": str(tmp_path / "o"), "listeners": ""}
        own |= {k: f"http://127.0.0.1:{taken.getsockname()[1]}" if v == "taken" else v for k, v in worker.items()}
        config = {"name": "c", "connector.class": "FileStreamSource", "file": "f", "topic": "t", **connector}
        files = []
        for name, settings in (("worker", own), ("connector", config)):
            files.append(tmp_path / f"{name}.properties")
            files[-1].write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        command = ["connect", "standalone", *map(str, files)]
        for more in (["--dry-run"], *([[]] if worker else [])):
            found = CliRunner().invoke(cli, [*command, *more])
            assert found.exit_code != 0
            assert names in f"{found.output} {found.exception}"


def test_a_dry_run_checks_and_starts_nothing(properties: Path, tmp_path: Path) -> None:
    """0 for good settings; 2 for an open listener, naming it."""
    connector = tmp_path / "c.properties"
    connector.write_text("name=c\nconnector.class=FileStreamSink\ntopics=t\nfile=f\n")
    command = ["connect", "standalone", str(properties), str(connector), "--dry-run"]
    found = CliRunner().invoke(cli, [*command, "--output", "json"])
    assert (found.exit_code, json.loads(found.output)) == (0, {"dry_run": True, "connectors": ["c"]})
    found = CliRunner().invoke(cli, command)
    assert (found.exit_code, found.output) == (0, "Checked, and nothing started: the worker's settings, connector c\n")
    properties.write_text(properties.read_text().replace("127.0.0.1:0", "0.0.0.0:0"))
    found = CliRunner().invoke(cli, ["connect", "standalone", str(properties), "--dry-run"])
    assert "rest.token" in str(found.exception)


def test_parked_keys_are_listed_and_released_by_the_command_line(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """Skip: the failed record is left out, the others come in order."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        for value in ("1", "bad", "3", "4"):
            producer.produce(topic_name, value, "k")
    config = {
        "connector.class": "MemorySink",
        "topics": topic_name,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{topic_name}-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }

    def command(*words: str) -> dict[str, Any]:
        found = CliRunner().invoke(
            cli, ["connect", *words, "--connector", topic_name, "--url", worker.url, "--output", "json"]
        )
        assert found.exit_code == 0, found.output
        document: dict[str, Any] = json.loads(found.output)
        return document

    with WorkerProcess(
        worker_settings(kafka, tmp_path) | {"listeners": "http://127.0.0.1:0"}, in_group=False
    ) as worker:
        worker.operations.create(topic_name, config)
        until(lambda: len(command("parked")["parked"]) == 1, "the key is parked")
        assert command("parked")["parked"][0]["key"] == "k"
        assert command("release", "--topic", topic_name, "--key", "k", "--dry-run")["dry_run"] is True
        command("release", "--topic", topic_name, "--key", "k", "--mode", "skip")
        until(lambda: command("parked")["parked"] == [], "the key is free")
        assert MemorySink.values(topic_name) == ["1", "3", "4"]
        found = CliRunner().invoke(
            cli,
            ["connect", "release", "--url", worker.url, "--connector", topic_name, "--topic", topic_name, "--key", "k"],
        )
        assert "not parked" in str(found.exception)
