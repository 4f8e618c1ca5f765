"""The REST at work: a connector's life, its offsets, plugins, metrics, levels. The table of calls: test_rest_calls.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.connect_rig import MemorySink, RestClient, sink, until


def test_the_life_of_a_connector(rest: RestClient, topic: str, kafka: KafkaUnderTest) -> None:
    """Every documented call with its documented status and shape."""
    c = f"/connectors/{topic}"
    root = rest.ok("GET", "/")
    assert set(root) == {"version", "commit", "kafka_cluster_id", "keyorder_version"}
    assert rest.ok("GET", "/health")["status"] == "healthy"

    made = rest("POST", "/connectors", {"name": topic, "config": sink(topic, **{"tasks.max": "2"})})
    assert made.status_code == 201
    assert made.headers["location"] == c
    assert made.json()["name"] == topic
    assert made.json()["type"] == "sink"
    assert rest("POST", "/connectors", {"name": topic, "config": sink(topic)}).status_code == 409
    rest.running(topic, 2)
    assert topic in rest.ok("GET", "/connectors")
    expanded = rest.ok("GET", "/connectors?expand=status&expand=info")[topic]
    assert set(expanded) == {"status", "info"}
    info = rest.ok("GET", c)
    assert info["tasks"] == [{"connector": topic, "task": 0}, {"connector": topic, "task": 1}]
    assert rest.ok("GET", f"{c}/config") == {"name": topic, **sink(topic, **{"tasks.max": "2"})}
    status = rest.ok("GET", f"{c}/status")
    assert (status["name"], status["type"]) == (topic, "sink")
    assert [set(task) for task in status["tasks"]] == [{"id", "state", "worker_id", "version"}] * 2
    assert [task["id"] for task in rest.ok("GET", f"{c}/tasks")] == [{"connector": topic, "task": i} for i in range(2)]
    assert rest.ok("GET", f"{c}/tasks/1/status")["state"] == "RUNNING"
    assert rest.ok("GET", f"{c}/topics") == {topic: {"topics": []}}
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic, "1", "k")
    until(lambda: rest.ok("GET", f"{c}/topics") == {topic: {"topics": [topic]}}, "its topic is known")

    assert rest("PUT", f"{c}/config", sink(topic)).status_code == 200
    rest.running(topic, 1)
    patched = rest("PATCH", f"{c}/config", {"tasks.max": "2", "errors.log.enable": "true"})
    assert (patched.status_code, patched.json()["config"]["tasks.max"]) == (200, "2")
    assert "errors.log.enable" not in rest("PATCH", f"{c}/config", {"errors.log.enable": None}).json()["config"]
    rest.running(topic, 2)

    for call, code, state in (("pause", 202, "PAUSED"), ("pause", 202, "PAUSED"), ("resume", 202, "RUNNING")):
        assert rest("PUT", f"{c}/{call}").status_code == code
        until(lambda s=state: rest.states(topic) == (s, [s, s]), f"all are {state}")
    assert rest("POST", f"{c}/restart").status_code == 204
    restarted = rest("POST", f"{c}/restart?includeTasks=true")
    assert restarted.status_code == 202
    assert [task["state"] for task in restarted.json()["tasks"]] == ["RESTARTING"] * 2
    rest.running(topic, 2)
    assert rest("POST", f"{c}/tasks/0/restart").status_code == 204
    rest.running(topic, 2)
    assert rest("PUT", f"{c}/topics/reset").status_code == 202

    assert rest.settled("PATCH", f"{c}/offsets", {"offsets": [offset(topic, 0, 0)]}).status_code == 400
    assert rest("PUT", f"{c}/stop").status_code == 204
    until(lambda: rest.states(topic) == ("STOPPED", []), "it is stopped")
    assert rest("DELETE", c).status_code == 204
    until(lambda: rest("GET", c).status_code == 404, "it is forgotten")
    assert rest("PUT", f"{c}/config", sink(topic)).status_code == 201
    assert rest("DELETE", c).status_code == 204


def test_a_level_is_set_on_every_worker(group: tuple[RestClient, RestClient]) -> None:
    """Asked of either, it reaches both by the topic of configurations."""
    path = "/admin/loggers/keyorder.connect"

    def told() -> list[Any]:
        return [rest.ok("GET", path)["last_modified"] for rest in group]

    for asked_one, level in zip(group, ("DEBUG", "INFO"), strict=True):
        before = told()
        assert asked_one("PUT", f"{path}?scope=cluster", {"level": level}).status_code == 204
        until(lambda b=before: all(new not in (None, old) for new, old in zip(told(), b, strict=True)), "both set it")
        assert asked_one.ok("GET", path)["level"] == level
    assert group[0].settled("PUT", f"{path}?scope=world", {"level": "INFO"}).status_code == 400


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_initial_offsets_replace_those_of_an_earlier_connector(rest: RestClient, topic: str, kind: str) -> None:
    """KIP-995: what was there under the name is forgotten; a payload that does not fit makes no connector."""
    path = f"/connectors/{topic}"
    source = {"connector.class": "CounterSource", "topic": topic}
    made = [{"partition": {"task": str(i)}, "offset": {"next": 0}} for i in range(2)]
    if kind == "sink":
        made = [offset(topic, partition, 0) for partition in range(2)]
    body = {"name": topic, "config": sink(topic) if kind == "sink" else source, "initial_state": "STOPPED"}
    for offsets in (made, made[:1]):
        rest.ok("POST", "/connectors", {**body, "initial_offsets": offsets})
        until(
            lambda want=offsets: rest("GET", f"{path}/offsets").json() == {"offsets": want},
            lambda: f"these are its offsets, and no others: {rest('GET', f'{path}/offsets').text}",
        )
        rest.ok("DELETE", path)
        until(lambda: rest("GET", path).status_code == 404, "it is forgotten")
    wrong = [{"partition": made[0]["partition"]}, {"partition": 1, "offset": {}}]
    assert rest.settled("POST", "/connectors", {**body, "initial_offsets": wrong}).status_code == 400
    assert rest("GET", path).status_code == 404


def offset(topic: str, partition: int, number: int) -> dict[str, Any]:
    return {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": {"kafka_offset": number}}


def test_offsets_of_topics_that_an_expression_with_spaces_around_it_names(rest: RestClient, topic: str) -> None:
    """The tasks read it without them, and so does what changes their offsets."""
    config = {"connector.class": "MemorySink", "topics.regex": f" {topic} "}
    rest.ok("POST", "/connectors", {"name": topic, "config": config, "initial_state": "STOPPED"})
    until(lambda: rest.states(topic) == ("STOPPED", []), "it is stopped")
    given = [offset(topic, 0, 0)]
    changed = rest.settled("PATCH", f"/connectors/{topic}/offsets", {"offsets": given})
    assert changed.status_code == 200, changed.text
    assert rest.ok("GET", f"/connectors/{topic}/offsets") == {"offsets": given}
    rest.ok("DELETE", f"/connectors/{topic}")


def test_offsets_change_only_while_stopped_and_only_in_order(
    rest: RestClient, topic: str, kafka: KafkaUnderTest
) -> None:
    """Read, set, reset in Connect's shape; a position behind a gate whose origin is not there is refused."""
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(40):
            producer.produce(topic, str(i), f"k{i % 20}")
    admin = TopicAdmin(kafka.client_config())
    admin.expand(topic, 3)
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(40, 80):
            producer.produce(topic, str(i), f"k{i % 20}")
    epoch = admin.timeline(topic).epochs[-1]
    origin, ends = next(iter(epoch.ends.items()))
    rest.ok("POST", "/connectors", {"name": topic, "config": sink(topic)})
    until(lambda: len(MemorySink.values(topic)) == 80, "all is delivered")
    until(
        lambda: (
            sum(o["offset"]["kafka_offset"] for o in rest.ok("GET", f"/connectors/{topic}/offsets")["offsets"]) == 80
        ),
        "all is committed",
    )
    read = rest.ok("GET", f"/connectors/{topic}/offsets")["offsets"]
    path = f"/connectors/{topic}/offsets"
    assert "STOPPED" in rest("DELETE", path).json()["message"]
    rest.ok("PUT", f"/connectors/{topic}/stop")
    until(lambda: rest.states(topic) == ("STOPPED", []), "it is stopped")
    until(lambda: rest("PATCH", path, {"offsets": [read[0]]}).status_code == 200, "the group is empty")

    refused = rest.settled("PATCH", path, {"offsets": [offset(topic, origin, ends - 1)]})
    assert refused.status_code == 400
    assert "gate" in refused.json()["message"]
    assert rest.ok("GET", path)["offsets"] == read
    for wrong in ({}, {"offsets": []}, {"offsets": [{"partition": {}}]}, {"offsets": [offset("other", 0, 0)]}):
        assert rest.settled("PATCH", path, wrong).status_code == 400, wrong
    assert rest.settled("PATCH", path, {"offsets": [offset(topic, 0, 10**9)]}).status_code == 400
    assert rest.settled("PATCH", path, {"offsets": [offset(topic, p, 0) for p in range(3)]}).status_code == 200
    assert rest.settled("DELETE", path).status_code == 200
    assert rest.ok("GET", path) == {"offsets": []}
    rest.ok("PUT", f"/connectors/{topic}/resume")
    until(lambda: len(MemorySink.values(topic)) == 160, "all comes again")
    for k in range(20):
        assert MemorySink.values(topic, f"k{k}")[4:] == [str(i) for i in range(k, 80, 20)]
    rest.ok("DELETE", f"/connectors/{topic}")


def test_exactly_once_can_be_required(rest: RestClient) -> None:
    """This worker does not offer it, so a connector that needs it is not made."""
    config = {"connector.class": "FileStreamSource", "file": "x", "topic": "t", "exactly.once.support": "required"}
    found = rest.settled("POST", "/connectors", {"name": "never", "config": config})
    assert found.status_code == 400
    assert "exactly.once" in found.json()["message"]


def test_offsets_of_partitions_that_are_not_there_are_refused(rest: RestClient, topic: str) -> None:
    """400, with the partition named: no broker is to blame."""
    rest.ok("POST", "/connectors", {"name": topic, "config": sink(topic), "initial_state": "STOPPED"})
    found = rest("PATCH", f"/connectors/{topic}/offsets", {"offsets": [offset(topic, 7, 1)]})
    assert (found.status_code, "partition 7" in found.text) == (400, True)
    rest.ok("DELETE", f"/connectors/{topic}")


def test_plugins_and_their_settings(rest: RestClient) -> None:
    """Connectors alone, or all; settings with Connect's names; validate collects all errors."""
    plugins = rest.ok("GET", "/connector-plugins")
    assert ("org.apache.kafka.connect.file.FileStreamSinkConnector", "sink") in {
        (p["class"], p["type"]) for p in plugins
    }
    kinds = {p["type"] for p in rest.ok("GET", "/connector-plugins?connectorsOnly=false")}
    assert kinds == {"sink", "source", "transformation", "predicate", "converter", "header_converter"}
    assert {s["name"] for s in rest.ok("GET", "/connector-plugins/FileStreamSource/config")} > {
        "file",
        "topic",
        "key.delimiter",
        "batch.size",
    }
    given = {"connector.class": "FileStreamSource", "name": "x", "batch.size": "0", "tasks.max": "many"}
    answer = rest.ok("PUT", "/connector-plugins/FileStreamSource/config/validate", given)
    wrong = {c["value"]["name"] for c in answer["configs"] if c["value"]["errors"]}
    assert wrong == {"file", "topic", "batch.size", "tasks.max"}
    assert answer["error_count"] == 4
    assert "Common" in answer["groups"]


def test_metrics_and_loggers(group: tuple[RestClient, RestClient], topic: str, kafka: KafkaUnderTest) -> None:
    """Prometheus text that counts; a level that can be set."""
    rest = group[0]
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic, "1", "k")
    rest.ok("POST", "/connectors", {"name": topic, "config": sink(topic)})
    line = f'keyorder_connect_sink_record_send_total{{connector="{topic}",task="0"}} 1.0'
    until(lambda: any(line in r("GET", "/metrics").text for r in group), "it is counted")
    text = rest("GET", "/metrics").text
    assert "# TYPE keyorder_connect_task_status gauge" in text
    assert sum("keyorder_connect_worker_leader 1.0" in r("GET", "/metrics").text for r in group) == 1
    rest.ok("DELETE", f"/connectors/{topic}")
    assert "keyorder.connect.task" in rest.ok("PUT", "/admin/loggers/keyorder.connect", {"level": "debug"})
    assert rest.ok("GET", "/admin/loggers/keyorder.connect.task")["level"] == "DEBUG"
    assert rest.ok("GET", "/admin/loggers")["keyorder.connect"]["level"] == "DEBUG"


def test_patches_at_the_same_time_all_take_effect(rest: RestClient, topic: str) -> None:
    """Each is laid over what the others have left, not over what was there when it was read."""
    assert rest("POST", "/connectors", {"name": topic, "config": sink(topic)}).status_code == 201
    wanted = {f"note.{n}": str(n) for n in range(12)}
    with ThreadPoolExecutor(len(wanted)) as pool:
        answers = pool.map(lambda item: rest("PATCH", f"/connectors/{topic}/config", dict([item])), wanted.items())
        assert {answer.status_code for answer in answers} == {200}

    def noted() -> dict[str, str]:
        config = rest.ok("GET", f"/connectors/{topic}/config")
        return {name: value for name, value in config.items() if name.startswith("note.")}

    until(lambda: noted() == wanted, lambda: f"a follower hears of all: {noted()}")
