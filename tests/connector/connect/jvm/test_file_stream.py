"""The connectors of lines of files beside Kafka Connect's own: the same file in, the same records, the same file out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.connect.rest.process import WorkerProcess
from support.cluster import KafkaUnderTest
from support.connect_jvm_worker import JvmWorker
from support.connect_rig import RestClient, committed_values, until, worker_settings

LINES = b"one\r\ntwo\nthree\rfour\r\r\nfive\n\n\r\nsix \xe2\x82\xac \xff\nnot whole\r"
VALUES = (
    "text",
    True,
    None,
    7,
    2**40,
    1.5,
    1e10,
    1e-5,
    100.0,
    [1, "a", None, [True]],
    {"id": 1, "ok": True, "n": None},
    {"outer": {"b": [1.5], "a": "x"}, "z": 0, "customer": "c", "amount": 1e7},
)
SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "ok", "type": "boolean", "optional": True},
        {"field": "single", "type": "float", "optional": True},
        {"field": "list", "type": "array", "items": {"type": "double"}, "optional": True},
        {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date", "optional": True},
    ],
}
STRUCTS = ({"id": 1, "ok": True}, {"id": 2, "single": 0.1, "list": [1.0, 1e22]}, {"id": 3, "day": 20_000})


def filed(rest: RestClient, topics: dict[str, str], folder: Path, kafka: KafkaUnderTest) -> tuple[list[str], Any]:
    """(the values of a file's records, the lines of each topic's file)."""
    topic = topics["lines"]
    source = {"connector.class": "FileStreamSource", "file": str(folder.parent / "in"), "topic": topic}
    rest.ok("PUT", f"/connectors/{topic}/config", source)
    until(lambda: len(committed_values(kafka, topic)) >= 9, "the lines are in the topic")
    found = {}
    for name, schemas in (("plain", "false"), ("schemas", "true")):
        file = folder / name
        config = {"connector.class": "FileStreamSink", "file": str(file), "topics": topics[name]}
        config |= {
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": schemas,
        }
        rest.ok("PUT", f"/connectors/{topic}-{name}/config", config)
        until(lambda file=file: file.exists() and "last" in file.read_text(), f"all of {name} are in the file")
        found[name] = file.read_text().splitlines()
    return committed_values(kafka, topic), found


@pytest.mark.skipif("KEYORDER_CONNECT_CASES" not in os.environ, reason="make connect-parity starts the JVM's worker")
@pytest.mark.timeout(600)
def test_files_are_read_and_written_as_by_the_jvm(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Line by line."""
    (tmp_path / "in").write_bytes(LINES)
    last = {"schema": {"type": "string"}, "payload": "last"}
    written = {
        f"{topic_name}-plain": [*VALUES, "last"],
        f"{topic_name}-schemas": [*({"schema": SCHEMA, "payload": each} for each in STRUCTS), last],
    }
    found = []
    with OrderedProducer(kafka.client_config()) as producer:
        for topic, values in written.items():
            TopicAdmin(kafka.client_config()).create(topic, 1)
            for value in values:
                producer.produce(topic, json.dumps(value), "k")
    for which in ("jvm", "ours"):
        folder = tmp_path / which
        folder.mkdir()
        topics = {name: f"{topic_name}-{name}" for name in ("plain", "schemas")} | {"lines": f"{topic_name}-{which}"}
        TopicAdmin(kafka.client_config()).create(topics["lines"], 1)
        if which == "jvm":
            worker = JvmWorker(kafka, folder)
            try:
                found.append(filed(RestClient(worker.url), topics, folder, kafka))
            finally:
                worker.stop()
        else:
            settings = worker_settings(kafka, folder) | {"listeners": "http://127.0.0.1:0"}
            with WorkerProcess(settings, in_group=False) as process:
                found.append(filed(RestClient(process.url), topics, folder, kafka))
    assert found[0] == found[1]
    assert len(found[0][0]) == 9
