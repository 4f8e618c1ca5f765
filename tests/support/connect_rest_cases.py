"""The requests that are made of Kafka Connect's own worker and of ours, in this order.

In a path, body or header `{folder}` is a folder of the run's own, `{topic}` its topic of one partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from support.connect_rest_case import JAVA, JSON, Case, Wait
from support.connect_rest_tools import tools
from support.connect_rest_variants import levels, variants

ORIGIN = {"Origin": "https://console.example"}

SOURCE = {
    "connector.class": "FileStreamSource", "tasks.max": "1", "file": "{folder}/in.txt", "topic": "{topic}",
    "topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "1",
}  # fmt: skip
SINK = {
    "connector.class": f"{JAVA}file.FileStreamSinkConnector",
    "tasks.max": "1",
    "file": "{folder}/out.txt",
    "topics": "{topic}",
}
_ONE = {"partition": {"kafka_topic": "{topic}", "kafka_partition": 0}, "offset": {"kafka_offset": 0}}
_LINE = {"partition": {"filename": "{folder}/in.txt"}, "offset": {"position": 4}}


def cases() -> Iterator[Case | Wait]:
    """All of them."""
    yield from _empty_worker()
    yield from _bodies()
    yield from _plugins()
    yield from _validation()
    yield from variants()
    yield from tools()
    yield from _source()
    yield from _sink()
    yield from _states()
    yield from _failed()
    yield from _loggers()
    yield from _names()
    yield from levels()


def _empty_worker() -> Iterator[Case | Wait]:
    for path in ("/", "/health", "/connectors", "/connectors/", "/connectors//", "/connectors?expand=status", "/connectors?expand=info",
                 "/connectors?expand=bogus", "/nothing", "/connectors/none", "/connectors/none/", "/connectors/none/nothing",
                 "/connector-plugins/", "/admin", "/admin/loggers/"):  # fmt: skip
        yield Case("GET", path)
    for path in (
        "config",
        "status",
        "tasks",
        "tasks/0/status",
        "tasks/x/status",
        "tasks/0",
        "tasks-config",
        "topics",
        "offsets",
        "active-topics",
    ):
        yield Case("GET", f"/connectors/none/{path}")
    for path in ("pause", "resume", "stop", "topics/reset", "fence", "restart"):
        yield Case("PUT", f"/connectors/none/{path}")
    for path in ("restart", "restart?includeTasks=true&onlyFailed=true", "tasks/0/restart", "tasks", "pause"):
        yield Case("POST", f"/connectors/none/{path}")
    yield Case("DELETE", "/connectors/none")
    yield Case("DELETE", "/connectors/none/")
    yield Case("DELETE", "/connectors/none/offsets")
    yield Case("PATCH", "/connectors/none/offsets", {"offsets": [_ONE]})
    yield Case("PATCH", "/connectors/none/config", {"a": "b"})
    for method, path in (("PUT", "/connectors"), ("DELETE", "/connectors"), ("PATCH", "/connectors"), ("POST", "/connectors/none"),
                         ("PUT", "/connectors/none"), ("POST", "/"), ("DELETE", "/"), ("POST", "/connector-plugins"),
                         ("PUT", "/connectors/none/status"), ("POST", "/connectors/none/config"), ("DELETE", "/admin/loggers"),
                         ("POST", "/health")):  # fmt: skip
        yield Case(method, path)
    for path in ("/", "/connectors", "/connectors/none", "/connectors/none/config", "/connectors/none/offsets", "/connectors/none/restart",
                 "/connectors/none/pause", "/connector-plugins", "/connector-plugins/x/config", "/connector-plugins/x/config/validate",
                 "/admin/loggers", "/admin/loggers/root", "/health", "/nothing"):  # fmt: skip
        yield Case("OPTIONS", path)
    for path in ("/", "/connectors", "/connectors/none"):
        yield Case("HEAD", path)
    for accept in ("*/*", "application/json", "application/*", "text/html", "text/plain", "application/xml",
                   "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json;q=0"):  # fmt: skip
        yield Case("GET", "/connectors", headers={"Accept": accept})
    yield Case("GET", "/connectors", headers=ORIGIN)
    yield Case("GET", "/connectors", headers={"Origin": "https://evil.example"})
    yield Case("OPTIONS", "/connectors", headers={**ORIGIN, "Access-Control-Request-Method": "PUT"})
    yield Case("OPTIONS", "/connectors", headers={**ORIGIN, "Access-Control-Request-Method": "DELETE"})
    yield Case(
        "OPTIONS", "/connectors", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}
    )


def _bodies() -> Iterator[Case | Wait]:
    path = "/connectors"
    for kind in (
        "application/json",
        "application/json; charset=utf-8",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/xml",
        "text/json",
    ):
        yield Case("POST", path, raw="{}", headers={"Content-Type": kind})
    yield Case("POST", path, raw="{}")
    yield Case("PUT", "/connectors/x/config", raw="{}", headers={"Content-Type": "text/plain"})
    yield Case("PUT", "/connectors/none/pause", raw="", headers={"Content-Type": "text/plain"})
    for raw in ("", "{", "null", "[]", '"x"', "1", '{"name": "x"', '{"name": "x"} x', '{"name": "x", "name": "y"}'):
        yield Case("POST", path, raw=raw, headers=JSON)
    for raw in ("", "null", "[]", '"x"', '{"a": {}}', '{"a": []}', '{"a": null}', "{}"):
        yield Case("PUT", "/connectors/x/config", raw=raw, headers=JSON)
    good = {"connector.class": "FileStreamSink", "topics": "{topic}", "file": "{folder}/none"}
    for body in (
        {"name": "x"}, {"config": {}}, {"name": "x", "config": {}}, {"name": "x", "config": None}, {"name": None, "config": good},
        {"name": "", "config": good}, {"name": " ", "config": good}, {"name": 5, "config": {"connector.class": "Nope"}},
        {"name": "x", "config": []}, {"name": "x", "config": "y"}, {"name": "x", "config": {"connector.class": ""}},
        {"name": "x", "config": {"connector.class": "Nope"}}, {"name": "x", "config": {"topics": "t"}},
        {"name": "x", "config": {"connector.class": "FileStreamSink"}}, {"name": "x", "config": {**good, "name": "y"}},
        {"name": "x", "config": {**good, "tasks.max": 0}}, {"name": "x", "config": {**good, "tasks.max": "many"}},
        {"name": "x", "config": {**good, "tasks.max": 1.5}}, {"name": "x", "config": {**good, "topics.regex": "a"}},
        {"name": "x", "config": {**good, "a": {"b": "c"}}}, {"name": "x", "config": {**good, "a": ["b"]}},
        {"name": "x", "config": {**good, "errors.tolerance": "some"}},
        {"name": "x", "config": {**good, "key.converter": "Nope"}}, {"name": "x", "config": {**good, "transforms": "a"}},
        {"name": "x", "config": {**good, "transforms": "a", "transforms.a.type": "Nope"}},
        {"name": "x", "config": {**good, "predicates": "a"}},
        {"name": "x", "config": {**good, "errors.deadletterqueue.topic.name": "{topic}"}},
        {"name": "x", "config": {**good, "consumer.override.group.id": ""}},
        {"name": "x", "config": good, "initial_state": "odd"}, {"name": "x", "config": good, "initial_state": 5},
        {"name": "x", "config": good, "more": 1}, {"config": {"name": "y", "connector.class": "Nope"}},
        {"name": "jvm", "config": {"connector.class": "Nope"}},
    ):  # fmt: skip
        yield Case("POST", path, body)
    yield Case("DELETE", "/connectors/x")


def _plugins() -> Iterator[Case | Wait]:
    yield Case("GET", "/connector-plugins")
    for word in ("false", "true", "FALSE", "maybe"):
        yield Case("GET", f"/connector-plugins?connectorsOnly={word}")
    for name in ("FileStreamSource", "FileStreamSourceConnector", f"{JAVA}file.FileStreamSinkConnector", "StringConverter",
                 f"{JAVA}json.JsonConverter", f"{JAVA}transforms.Cast$Value", "Cast", f"{JAVA}transforms.RegexRouter",
                 f"{JAVA}transforms.HoistField$Key", f"{JAVA}transforms.InsertField$Value", f"{JAVA}transforms.TimestampConverter$Value",
                 f"{JAVA}transforms.ReplaceField$Value", f"{JAVA}transforms.MaskField$Value", f"{JAVA}transforms.ValueToKey",
                 f"{JAVA}transforms.Flatten$Value", f"{JAVA}transforms.ExtractField$Value", f"{JAVA}transforms.InsertHeader",
                 f"{JAVA}transforms.HeaderFrom$Value", f"{JAVA}transforms.DropHeaders", f"{JAVA}transforms.Filter",
                 f"{JAVA}transforms.SetSchemaMetadata$Value", f"{JAVA}transforms.TimestampRouter",
                 f"{JAVA}transforms.predicates.HasHeaderKey", f"{JAVA}transforms.predicates.RecordIsTombstone",
                 f"{JAVA}transforms.predicates.TopicNameMatches", f"{JAVA}storage.SimpleHeaderConverter", f"{JAVA}converters.LongConverter",
                 f"{JAVA}converters.ByteArrayConverter", "Nope", "java.lang.String", "FileStreamSource/"):  # fmt: skip
        yield Case("GET", f"/connector-plugins/{name}/config")


def _validation() -> Iterator[Case | Wait]:
    def check(plugin: str, config: Any) -> Case:
        return Case("PUT", f"/connector-plugins/{plugin}/config/validate", config)

    sink = {"name": "x", "connector.class": "FileStreamSink", "topics": "t", "file": "f"}
    source = {"name": "x", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}
    yield check("FileStreamSink", {})
    yield replace(check("FileStreamSink", sink), full=True)
    yield replace(check("FileStreamSource", source), full=True)
    yield check("FileStreamSinkConnector", sink)
    yield check(f"{JAVA}file.FileStreamSinkConnector", sink)
    yield check("FileStreamSink", source)
    yield check("Nope", sink)
    yield check("FileStreamSink/", sink)
    for more in (
        {"tasks.max": "0"}, {"tasks.max": "x"}, {"name": ""}, {"name": "a\nb"}, {"topics": ""}, {"topics": "t", "topics.regex": "t"},
        {"topics.regex": "(", "topics": ""}, {"key.converter": "Nope"}, {"value.converter": "JsonConverter"},
        {"value.converter": f"{JAVA}json.JsonConverter", "value.converter.schemas.enable": "maybe"},
        {"header.converter": "Nope"}, {"transforms": "a"}, {"transforms": "a,a"}, {"transforms": "a", "transforms.a.type": "Nope"},
        {"transforms": "a", "transforms.a.type": f"{JAVA}transforms.Cast$Value"},
        {"transforms": "a", "transforms.a.type": f"{JAVA}transforms.Cast$Value", "transforms.a.spec": "x:y"},
        {"transforms": "a", "transforms.a.type": f"{JAVA}transforms.Cast"},
        {"transforms": "a", "transforms.a.type": f"{JAVA}transforms.RegexRouter", "transforms.a.regex": "(", "transforms.a.replacement": "x"},
        {"transforms": "a", "transforms.a.type": f"{JAVA}transforms.Filter", "transforms.a.predicate": "p"},
        {"predicates": "p", "predicates.p.type": "Nope"},
        {"predicates": "p", "predicates.p.type": f"{JAVA}transforms.predicates.HasHeaderKey"},
        {"predicates": "p", "predicates.p.type": f"{JAVA}transforms.predicates.TopicNameMatches", "predicates.p.pattern": "("},
        {"predicates": "p", "predicates.p.type": f"{JAVA}transforms.predicates.RecordIsTombstone", "transforms": "a",
         "transforms.a.type": f"{JAVA}transforms.Filter", "transforms.a.predicate": "p", "transforms.a.negate": "maybe"},
        {"errors.tolerance": "all"}, {"errors.tolerance": "ALL"}, {"errors.tolerance": "some"}, {"errors.retry.timeout": "-2"},
        {"errors.retry.delay.max.ms": "0"}, {"errors.log.enable": "maybe"}, {"config.action.reload": "later"},
        {"errors.deadletterqueue.topic.name": "t"}, {"errors.deadletterqueue.topic.replication.factor": "x"},
        {"consumer.override.max.poll.records": "5"}, {"consumer.override.bogus": "5"}, {"consumer.override.auto.offset.reset": "sometimes"},
        {"bogus": "x"}, {"tasks.max.enforce": "false"},
    ):  # fmt: skip
        yield check("FileStreamSink", {**sink, **more})
    for more in (
        {"topic": ""}, {"file": ""}, {"batch.size": "x"}, {"batch.size": "0"}, {"exactly.once.support": "maybe"},
        {"exactly.once.support": "required"}, {"transaction.boundary": "never"}, {"transaction.boundary": "connector"},
        {"transaction.boundary.interval.ms": "0"}, {"topic.creation.groups": "g"},
        {"topic.creation.groups": "g", "topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"},
        {"topic.creation.groups": "g", "topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1",
         "topic.creation.g.include": "a.*", "topic.creation.g.cleanup.policy": "compact"},
        {"topic.creation.default.partitions": "1"}, {"topic.creation.default.partitions": "0", "topic.creation.default.replication.factor": "1"},
        {"topic.creation.default.partitions": "-1", "topic.creation.default.replication.factor": "-1"},
        {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "0"},
        {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1", "topic.creation.default.bogus": "1"},
        {"offsets.storage.topic": ""}, {"producer.override.acks": "7"}, {"producer.override.linger.ms": "x"},
        {"producer.override.bootstrap.servers": ""},
    ):  # fmt: skip
        yield check("FileStreamSource", {**source, **more})


def _source() -> Iterator[Case | Wait]:
    c = "/connectors/src"
    yield Case("POST", "/connectors", {"name": "src", "config": SOURCE})
    yield Wait("src", offsets=1, topics=1)
    yield Case("POST", "/connectors", {"name": "src", "config": SOURCE}, repeat=1)
    for path in (
        "",
        "/",
        "/config",
        "/status",
        "/tasks",
        "/tasks/",
        "/tasks/0/status",
        "/tasks/1/status",
        "/tasks/-1/status",
        "/topics",
        "/offsets",
    ):
        yield Case("GET", c + path)
    for expand in ("?expand=status", "?expand=info", "?expand=status&expand=info", "?expand=info&expand=bogus"):
        yield Case("GET", f"/connectors{expand}", repeat=1)
    yield Case("PATCH", f"{c}/offsets", {"offsets": [_LINE]})
    yield Case("DELETE", f"{c}/offsets")
    yield Case("PUT", f"{c}/topics/reset")
    yield Case("PUT", f"{c}/config", {**SOURCE, "batch.size": "100"})
    yield Wait("src")
    yield Case("PUT", f"{c}/config", {**SOURCE, "name": "other"})
    yield Case("PUT", f"{c}/config", {**SOURCE, "tasks.max": 1, "batch.size": 7, "errors.log.enable": True})
    yield Wait("src")
    yield Case("PATCH", f"{c}/config", {"errors.log.enable": None, "batch.size": "50"})
    yield Wait("src")
    yield Case("PATCH", f"{c}/config", {"file": None, "batch.size": "x"})
    yield Case("PATCH", f"{c}/config", {"connector.class": None})
    yield Case("PATCH", f"{c}/config", [])
    yield Case("PATCH", f"{c}/config", {"a": {"b": 1}})
    yield Case("GET", f"{c}/config", repeat=1)
    yield Case("POST", "/connectors", {"name": "kind", "config": SOURCE, "initial_state": "STOPPED"})
    yield Case("PUT", "/connectors/kind/config", SINK)
    yield Case("DELETE", "/connectors/kind")
    yield Case("PUT", f"{c}/stop")
    yield Wait("src", "STOPPED", 0)
    yield Case("GET", c, repeat=2)
    yield Case("GET", f"{c}/tasks", repeat=2)
    yield Case("GET", f"{c}/status", repeat=2)
    yield Case("GET", f"{c}/tasks/0/status", repeat=2)
    yield Case("POST", f"{c}/tasks/0/restart", once=True)
    yield Case("PUT", f"{c}/stop", repeat=1)
    yield Case("GET", f"{c}/offsets", repeat=2)
    for body in (
        {}, {"offsets": []}, {"offsets": None}, {"offsets": {}}, [], {"offsets": [1]}, {"offsets": [{}]},
        {"offsets": [{"partition": {"filename": "{folder}/in.txt"}}]}, {"offsets": [{"offset": {"position": 0}}]},
        {"offsets": [{"partition": "x", "offset": {"position": 0}}]}, {"offsets": [{"partition": {"filename": "{folder}/in.txt"}, "offset": "x"}]},
        {"offsets": [{"partition": {"file": "x"}, "offset": {"position": 0}}]},
        {"offsets": [{"partition": {"filename": "{folder}/in.txt"}, "offset": {"position": "x"}}]},
        {"offsets": [{"partition": {"filename": "{folder}/in.txt"}, "offset": {"position": -1}}]},
        {"offsets": [{"partition": {"filename": "{folder}/in.txt"}, "offset": {"place": 1}}]},
        {"offsets": [{"partition": {"filename": "{folder}/other.txt"}, "offset": {"position": 0}}]},
        {"offsets": [{"partition": {"filename": "{folder}/in.txt"}, "offset": {"position": 100000}}]},
        {"offsets": [_LINE]}, {"offsets": [_LINE], "more": 1},
        {"offsets": [{"partition": {"filename": "{folder}/in.txt"}, "offset": None}]},
    ):  # fmt: skip
        yield Case("PATCH", f"{c}/offsets", body, repeat=1)
    yield Case("GET", f"{c}/offsets", repeat=3)
    yield Case("DELETE", f"{c}/offsets", repeat=1)
    yield Case("DELETE", f"{c}/offsets", repeat=2)
    yield Case("GET", f"{c}/offsets", repeat=4)
    yield Case("PUT", f"{c}/resume")
    yield Wait("src", offsets=1)


def _sink() -> Iterator[Case | Wait]:
    c = "/connectors/snk"
    yield Case("PUT", f"{c}/config", SINK)
    yield Wait("snk", offsets=1, topics=1)
    for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/tasks/1/status", "/topics", "/offsets"):
        yield Case("GET", c + path)
    yield Case("PATCH", f"{c}/offsets", {"offsets": [_ONE]})
    yield Case("PUT", f"{c}/stop")
    yield Wait("snk", "STOPPED", 0)
    yield Case("GET", f"{c}/offsets", repeat=1)
    place = {"kafka_topic": "{topic}", "kafka_partition": 0}
    for body in (
        {"offsets": []}, {"offsets": [{"partition": {}, "offset": {"kafka_offset": 0}}]}, {"offsets": [{"partition": place, "offset": {}}]},
        {"offsets": [{"partition": {"kafka_topic": "{topic}"}, "offset": {"kafka_offset": 0}}]},
        {"offsets": [{"partition": {"kafka_topic": "{topic}", "kafka_partition": "x"}, "offset": {"kafka_offset": 0}}]},
        {"offsets": [{"partition": {"kafka_topic": "{topic}", "kafka_partition": "0"}, "offset": {"kafka_offset": "0"}}]},
        {"offsets": [{"partition": {"kafka_topic": "{topic}", "kafka_partition": -1}, "offset": {"kafka_offset": 0}}]},
        {"offsets": [{"partition": {"kafka_topic": "{topic}", "kafka_partition": 99}, "offset": {"kafka_offset": 0}}]},
        {"offsets": [{"partition": {"kafka_topic": "none-such", "kafka_partition": 0}, "offset": {"kafka_offset": 0}}]},
        {"offsets": [{"partition": place, "offset": {"kafka_offset": -1}}]}, {"offsets": [{"partition": place, "offset": {"kafka_offset": "x"}}]},
        {"offsets": [{"partition": place, "offset": {"kafka_offset": 1000000}}]}, {"offsets": [{"partition": place, "offset": None}]},
        {"offsets": [_ONE]},
    ):  # fmt: skip
        yield Case("PATCH", f"{c}/offsets", body, repeat=1)
    yield Case("DELETE", f"{c}/offsets")
    yield Case("GET", f"{c}/offsets", repeat=2)
    yield Case("DELETE", f"{c}/offsets", repeat=1)
    yield Case("PUT", f"{c}/resume")
    yield Wait("snk")
    yield Case("DELETE", c)


def _states() -> Iterator[Case | Wait]:
    c = "/connectors/kept"
    yield Case("PUT", f"{c}/config", SINK)
    yield Wait("kept")
    yield Case("PUT", f"{c}/pause")
    yield Wait("kept", "PAUSED", 1, "PAUSED")
    yield Case("GET", f"{c}/status", repeat=10)
    yield Case("PUT", f"{c}/pause", repeat=1)
    yield Case("PUT", f"{c}/resume", repeat=1)
    yield Wait("kept")
    yield Case("PUT", f"{c}/resume", repeat=2)
    for query in (
        "",
        "?includeTasks=false&onlyFailed=false",
        "?includeTasks=true",
        "?onlyFailed=true",
        "?includeTasks=true&onlyFailed=true",
        "?includeTasks=maybe",
    ):
        # Where only failed tasks are meant nothing restarts; the restart before may not have begun when it was waited for.
        yield Case("POST", f"{c}/restart{query}", early="UNASSIGNED" if "onlyFailed=true" in query else "")
        yield Wait("kept")
    yield Case("POST", f"{c}/tasks/0/restart")
    yield Wait("kept")
    yield Case("POST", f"{c}/tasks/9/restart")
    yield Case("POST", f"{c}/tasks/x/restart")
    yield Case("PUT", f"{c}/topics/reset")
    yield Case("DELETE", c)
    yield Case("DELETE", c, repeat=1)
    yield Wait("kept", None, -1)
    yield Case("GET", f"{c}/status", repeat=11)
    states = (("RUNNING", "RUNNING", 1), ("PAUSED", "PAUSED", -1), ("STOPPED", "STOPPED", 0), ("stopped", "STOPPED", 0))
    for number, (state, word, tasks) in enumerate(states, 20):
        yield Case("POST", "/connectors", {"name": "kept", "config": SINK, "initial_state": state})
        yield Wait("kept", word, tasks, word)
        if tasks >= 0:
            yield Case("GET", f"{c}/status", repeat=number)
        yield Case("DELETE", c, repeat=number)
    yield Case("DELETE", "/connectors/src")
    yield Case("GET", "/connectors", repeat=9)


def _failed() -> Iterator[Case | Wait]:
    c = "/connectors/bad"
    config = {**SINK, "file": "{folder}/none/out.txt"}
    yield Case("PUT", f"{c}/config", config)
    yield Wait("bad", task_state="FAILED")
    yield Case("GET", f"{c}/status")
    yield Case("GET", f"{c}/tasks/0/status")
    yield Case("PUT", f"{c}/pause")
    yield Case("PUT", f"{c}/resume")
    yield Wait("bad", task_state="FAILED")
    yield Case("POST", f"{c}/restart?includeTasks=true&onlyFailed=true")
    yield Wait("bad", task_state="FAILED")
    yield Case("POST", f"{c}/restart?onlyFailed=true")
    yield Case("PUT", f"{c}/stop")
    yield Wait("bad", "STOPPED", 0)
    yield Case("GET", f"{c}/status", repeat=1)
    yield Case("DELETE", c)


def _loggers() -> Iterator[Case | Wait]:
    java = "org.apache.kafka.connect"
    yield Case("GET", "/admin/loggers")
    for name in ("root", java, f"{java}.runtime.WorkerSinkTask", "none.such"):
        yield Case("GET", f"/admin/loggers/{name}")
    for body in (
        {"level": "DEBUG"},
        {"level": "debug"},
        {"level": "LOUD"},
        {"level": None},
        {"level": 5},
        {},
        [],
        {"more": 1},
    ):
        yield Case("PUT", f"/admin/loggers/{java}", body)
    yield Case("GET", f"/admin/loggers/{java}", repeat=1)
    for scope in ("worker", "cluster", "CLUSTER", "bogus"):
        yield Case("PUT", f"/admin/loggers/{java}?scope={scope}", {"level": "INFO"})
    yield Case("PUT", "/admin/loggers/root", {"level": "WARN"})
    yield Case("GET", "/admin/loggers/root", repeat=1)
    yield Case("PUT", "/admin/loggers/none.such", {"level": "INFO"})
    yield Case("PUT", "/admin/loggers/root", {"level": "INFO"})


def _names() -> Iterator[Case | Wait]:
    path, good = "/connectors", {"connector.class": "FileStreamSink", "topics": "{topic}", "file": "{folder}/none"}
    for name in ("a/b", "a b", " a ", "ä", "a%20b", "a?b", "a;b", "a.b", "a\nb", "a\\b", "{x}", ".."):
        yield Case("POST", path, {"name": name, "config": good, "initial_state": "STOPPED"})
    yield Case("GET", "/connectors", repeat=1)
    for name in ("a%2Fb", "a%20b", "%20a%20", "a", "%C3%A4", "a%2520b", "a%3Fb", "a%3Bb", "a.b", "a%5Cb", "%7Bx%7D"):
        yield Case("GET", f"/connectors/{name}/config")
        yield Case("DELETE", f"/connectors/{name}")
    yield Case("GET", "/connectors", repeat=2)
