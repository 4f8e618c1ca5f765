"""More requests that are made of both workers: paths, media types, bodies, and settings of connectors, their steps and clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.connect_rest_case import JAVA, JSON, Case

SINKV = {"name": "x", "connector.class": "FileStreamSink", "topics": "t", "file": "f"}
SOURCEV = {"name": "x", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}
JT = f"{JAVA}transforms."


def check(plugin: str, config: Any, **more: Any) -> Case:
    return Case("PUT", f"/connector-plugins/{plugin}/config/validate", config, **more)


def t(kind: str, **config: str) -> dict[str, str]:
    return {
        "transforms": "a",
        "transforms.a.type": JT + kind,
        **{f"transforms.a.{k.replace('__', '.')}": v for k, v in config.items()},
    }


def variants() -> Iterator[Case]:
    """On a worker that has no connectors."""
    yield from _requests()
    yield from _connectors_validated()
    yield from _transforms_validated()
    yield from _converters_validated()
    yield from _sources_validated()


def _requests() -> Iterator[Case]:
    for path in (
        "/connectors?expand=",
        "/connectors?expand",
        "/connectors?expand=STATUS",
        "/connectors?expand=status,info",
        "/connectors?other=1",
        "/connectors?expand=status&expand=status",
        "/connectors/?expand=info",
        "/connectors/none?x=1",
        "/connector-plugins?connectorsOnly=",
        "/connector-plugins?connectorsOnly",
        "/connector-plugins?connectorsonly=false",
        "/connector-plugins/?connectorsOnly=true",
        "/connector-plugins/FileStreamSink",
        "/connector-plugins/FileStreamSink/",
        "/connector-plugins/config",
        "/connector-plugins/FileStreamSink/config/validate",
        "/health/",
        "/Connectors",
        "/connectors/none/Status",
        "/connectors/none/tasks/0/",
        "/connectors/none/tasks/99999999999/status",
        "/connectors/none/tasks/+0/status",
        "/connectors/none/tasks/0x/status",
        "/connectors/%6Eone",
        "/connectors/none%2Fstatus",
        "/connectors/.",
        "/./connectors",
        "/connectors;a=b",
        "/connectors/none;a=b/status",
        "/connectors/none/status;a=b",
    ):
        yield Case("GET", path)
    for name in (
        f"{JAVA}storage.StringConverter",
        f"{JAVA}converters.BooleanConverter",
        f"{JAVA}converters.IntegerConverter",
        f"{JAVA}transforms.Cast$Key",
        f"{JAVA}transforms.ValueToKey$Key",
        f"{JAVA}transforms.Nope",
        f"{JAVA}transforms.predicates.Nope",
        "RegexRouter",
        "Cast$Value",
        "JsonConverter",
        "SimpleHeaderConverter",
        "HasHeaderKey",
        "filestreamsink",
        f"{JAVA}file.FileStreamSink",
        "MirrorSourceConnector",
        "FileStreamSink?version=4.1.2",
        "FileStreamSink?version=9.9",
        "FileStreamSink?version=",
        "FileStreamSink?version=latest",
        "FileStreamSink?version=[4.1,)",
    ):
        p, _, q = name.partition("?")
        yield Case("GET", f"/connector-plugins/{p}/config" + ("?" + q if q else ""), repeat=50)
    for path in ("/connectors/none/status", "/connector-plugins", "/health", "/admin/loggers", "/nothing"):
        yield Case("HEAD", path)
    for path in (
        "/connectors/",
        "/connectors/none/status",
        "/connectors/none/tasks/0/restart",
        "/connectors/none/topics/reset",
        "/connectors/none/stop",
        "/connectors/none/tasks",
        "/connectors/none/topics",
        "/connectors/none/tasks/0/status",
    ):
        yield Case("OPTIONS", path, repeat=50)
    for method, path in (
        ("PATCH", "/connectors/none"),
        ("DELETE", "/connectors/none/config"),
        ("DELETE", "/connectors/none/topics"),
        ("PUT", "/connectors/none/offsets"),
        ("POST", "/connectors/none/offsets"),
        ("GET", "/connectors/none/pause"),
        ("GET", "/connectors/none/restart"),
        ("PUT", "/connectors/none/restart?includeTasks=true"),
        ("PUT", "/connectors/none/tasks/0/restart"),
        ("GET", "/connectors/none/tasks/0/restart"),
        ("PATCH", "/admin/loggers/root"),
        ("POST", "/admin/loggers/root"),
        ("PUT", "/admin/loggers"),
        ("POST", "/connector-plugins/FileStreamSink/config/validate"),
        ("TRACE", "/connectors"),
        ("FOO", "/connectors"),
        ("PUT", "/"),
        ("PATCH", "/"),
        ("PUT", "/health"),
        ("PUT", "/connector-plugins/FileStreamSink/config"),
    ):
        yield Case(method, path, repeat=50)
    for accept in (
        "application/json;q=0.5",
        "*/json",
        "",
        "garbage",
        "application/vnd.api+json",
        "text/*",
        "APPLICATION/JSON",
        "application/json;charset=utf-8",
        "text/html;q=1,*/*;q=0",
        "*",
        "text/plain,*/*;q=0.1",
        "application/problem+json",
    ):
        yield Case("GET", "/connectors", headers={"Accept": accept}, repeat=50)
    for path in ("/nothing", "/connectors/none", "/", "/health", "/admin/loggers/root", "/connector-plugins"):
        yield Case("GET", path, headers={"Accept": "text/plain"}, repeat=50)
    yield Case("POST", "/", headers={"Accept": "text/plain"}, repeat=50)
    yield Case("PUT", "/connectors/none/pause", headers={"Accept": "text/plain"}, repeat=50)
    yield Case("DELETE", "/connectors/none", headers={"Accept": "text/html"}, repeat=50)
    for kind in (
        "APPLICATION/JSON",
        "application/json;charset=ISO-8859-1",
        "application/json; charset=bogus",
        "application/vnd.api+json",
        "application/*",
        "*/*",
        "",
        "json",
        "application/json, text/plain",
        "application/json;v=1",
    ):
        yield Case(
            "PUT", "/connectors/x/config", raw='{"connector.class": "Nope"}', headers={"Content-Type": kind}, repeat=50
        )
    for method, path in (
        ("PUT", "/connectors/none/pause"),
        ("PUT", "/connectors/none/stop"),
        ("POST", "/connectors/none/restart"),
        ("POST", "/connectors/none/tasks/0/restart"),
        ("PUT", "/connectors/none/topics/reset"),
        ("DELETE", "/connectors/none"),
        ("DELETE", "/connectors/none/offsets"),
    ):
        yield Case(method, path, raw="x", headers={"Content-Type": "text/plain"}, repeat=51)
        yield Case(method, path, raw="x", headers=JSON, repeat=52)
        yield Case(method, path, raw="{}", repeat=53)
    for raw in (
        '\ufeff{"connector.class":"Nope"}',
        "{'connector.class': 'Nope'}",
        '{"connector.class": "Nope",}',
        '{"connector.class": NaN}',
        '/* c */ {"connector.class": "Nope"}',
        '{"connector.class": "Nope", "connector.class": "Nope2"}',
        '{"connector.class": "Nope", "a": 1e2}',
        '{"connector.class": "Nope", "a": 1.0}',
        '{"connector.class": "Nope", "a": 12345678901234567890123}',
        '{"connector.class": "Nope", "a": true}',
        '{"connector.class": "Nope", "a": "\\u00e4\\ud83d\\ude00"}',
        '{"connector.class": "Nope", "": "x"}',
        '{"connector.class": "Nope", "a": "x\\u0000y"}',
        '{"connector.class": "Nope"',
        '   {"connector.class": "Nope"}  \n',
        '{"connector.class": "Nope"} {"b": 1}',
        '{"connector.class": "Nope", "a": "\t"}',
    ):
        yield Case("PUT", "/connectors/x/config", raw=raw, headers=JSON, repeat=54)


def _connectors_validated() -> Iterator[Case]:
    for body in (
        None,
        [],
        "x",
        5,
        {"connector.class": None},
        {"connector.class": "Nope"},
        {"connector.class": "FileStreamSource"},
        {"name": None, "connector.class": "FileStreamSink"},
        {"connector.class": "FileStreamSink", "tasks.max": 3, "topics": ["a"]},
    ):
        yield (
            check("FileStreamSink", body, repeat=60)
            if body is not None
            else Case("PUT", "/connector-plugins/FileStreamSink/config/validate", raw="null", headers=JSON, repeat=60)
        )
    for m in (
        {"name": " x "},
        {"name": "x/y"},
        {"name": ""},
        {"tasks.max": " 1 "},
        {"tasks.max": "1.0"},
        {"tasks.max": "+1"},
        {"tasks.max": "2147483648"},
        {"tasks.max": ""},
        {"tasks.max": "-1"},
        {"tasks.max": "007"},
        {"tasks.max": "1_000"},
        {"tasks.max": "٣"},
        {"topics": " t , u "},
        {"topics": "t,t"},
        {"topics": "t,"},
        {"topics": ",t"},
        {"topics": "a b"},
        {"topics": "ä"},
        {"topics": ".."},
        {"topics": ","},
        {"topics": "", "topics.regex": ""},
        {"topics": "", "topics.regex": ".*"},
        {"topics": "", "topics.regex": "a&&b"},
        {"topics": "", "topics.regex": "[a&&b]"},
        {"topics": "", "topics.regex": "\\p{L}+"},
        {"topics": "", "topics.regex": "*"},
        {"topics": "", "topics.regex": ".*", "errors.deadletterqueue.topic.name": "dlq"},
        {"topics": "t", "errors.deadletterqueue.topic.name": "dlq"},
        {"topics": "t", "errors.deadletterqueue.topic.name": "dlq", "errors.tolerance": "all"},
        {"topics": "t", "errors.deadletterqueue.topic.name": " t ", "errors.tolerance": "all"},
        {"errors.deadletterqueue.topic.replication.factor": "0"},
        {"errors.deadletterqueue.topic.replication.factor": "-1"},
        {"errors.deadletterqueue.context.headers.enable": "maybe"},
        {"errors.deadletterqueue.context.headers.enable": "TRUE"},
        {"errors.log.enable": " true "},
        {"errors.log.enable": "1"},
        {"errors.log.enable": ""},
        {"errors.log.include.messages": "yes"},
        {"errors.tolerance": " all"},
        {"errors.tolerance": ""},
        {"errors.retry.timeout": "-1"},
        {"errors.retry.timeout": "1.5"},
        {"errors.retry.delay.max.ms": "-1"},
        {"errors.retry.delay.max.ms": "x"},
        {"config.action.reload": "RESTART"},
        {"config.action.reload": "none"},
        {"config.action.reload": ""},
        {"tasks.max.enforce": "maybe"},
        {"tasks.max.enforce": ""},
        {"file": " f "},
        {"consumer.override.max.poll.records": "x"},
        {"consumer.override.auto.offset.reset": "none"},
        {"consumer.override.isolation.level": "bogus"},
        {"consumer.override.bootstrap.servers": ""},
        {"consumer.override.session.timeout.ms": "-5"},
        {"consumer.override.enable.auto.commit": "true"},
        {"consumer.override.key.deserializer": "x"},
        {"consumer.override.": "x"},
        {"consumer.override.client.id": "me"},
        {"consumer.override.auto.offset.reset": "by_duration:PT1H"},
        {"producer.override.acks": "1"},
        {"admin.override.request.timeout.ms": "x"},
        {"admin.override.bogus": "1"},
        {"admin.override.bootstrap.servers": "localhost:1"},
        {"consumer.override.fetch.min.bytes": "-1"},
        {"consumer.override.group.protocol": "consumer"},
        {"consumer.override.group.instance.id": "i"},
        {"consumer.override.allow.auto.create.topics": "x"},
    ):
        yield check("FileStreamSink", {**SINKV, **m}, repeat=61)


def _transforms_validated() -> Iterator[Case]:
    for m in (
        {"transforms": ""},
        {"transforms": " a , b "},
        {"transforms": "a.b", "transforms.a.b.type": JT + "Filter"},
        {"transforms": "a", "transforms.a.type": ""},
        {"transforms": "a", "transforms.a.type": "Filter"},
        {"transforms": "a", "transforms.a.type": "RegexRouter"},
        {"transforms": "a", "transforms.a.type": f"{JAVA}storage.StringConverter"},
        {"transforms": "a", "transforms.a.type": "FileStreamSink"},
        {"transforms.a.type": JT + "Filter"},
        {"transforms": "a", "transforms.a.type": JT + "Filter", "transforms.b.type": "x", "transforms.a.bogus": "y"},
        t("Filter", predicate=""),
        t("Filter", negate="true"),
        t("Filter", negate="x"),
        {**t("Filter", predicate="p"), "predicates": "p"},
        {**t("Filter", predicate=" p "), "predicates": "p", "predicates.p.type": JT + "predicates.RecordIsTombstone"},
        {**t("Filter", predicate="q"), "predicates": "p", "predicates.p.type": JT + "predicates.RecordIsTombstone"},
        {"predicates": "p,p"},
        {"predicates": "p", "predicates.p.type": JT + "predicates.HasHeaderKey", "predicates.p.name": ""},
        {
            "predicates": "p",
            "predicates.p.type": JT + "predicates.HasHeaderKey",
            "predicates.p.name": "x",
            "predicates.p.more": "y",
        },
        {"predicates": "p", "predicates.p.type": JT + "predicates.TopicNameMatches", "predicates.p.pattern": ""},
        {"predicates": "p", "predicates.p.type": JT + "predicates.TopicNameMatches", "predicates.p.pattern": "\\p{L}"},
        {"predicates": "p", "predicates.p.type": JT + "Filter"},
        t("Cast$Value", spec=""),
        t("Cast$Value", spec="int8,int16"),
        t("Cast$Value", spec="a:b:c"),
        t("Cast$Value", spec="a:INT8"),
        t("Cast$Value", spec=" a : int8 "),
        t("Cast$Value", spec="a:bytes"),
        t("Cast$Value", spec="a:int8,a:int16"),
        t("Cast$Value", spec="a:int8", replace__null__with__default="x"),
        t("DropHeaders"),
        t("DropHeaders", headers=""),
        t("DropHeaders", headers="a,,b"),
        t("ExtractField$Value"),
        t("ExtractField$Value", field=""),
        t("ExtractField$Value", field="a", field__syntax__version="V3"),
        t("ExtractField$Value", field="a.`b", field__syntax__version="V2"),
        t("ExtractField$Value", field="", field__syntax__version="V2"),
        t("Flatten$Value", delimiter=""),
        t("HeaderFrom$Value"),
        t("HeaderFrom$Value", fields="a", headers="b,c", operation="move"),
        t("HeaderFrom$Value", fields="a", headers="b", operation="MOVE"),
        t("HeaderFrom$Value", fields="", headers="", operation="copy"),
        t("HoistField$Value"),
        t("HoistField$Value", field=""),
        t("InsertField$Value"),
        t("InsertField$Value", static__field="a"),
        t("InsertField$Value", topic__field="!"),
        t("InsertField$Value", topic__field=""),
        t("InsertHeader"),
        t("InsertHeader", header="", value__literal=""),
        t("InsertHeader", header="a"),
        t("MaskField$Value"),
        t("MaskField$Value", fields=""),
        t("MaskField$Value", fields="a", replacement=""),
        t("MaskField$Value", fields="a", replacement=" "),
        t("RegexRouter"),
        t("RegexRouter", regex="a"),
        t("RegexRouter", regex="", replacement=""),
        t("RegexRouter", regex="a", replacement="$1"),
        t("RegexRouter", regex="a", replacement="\\"),
        t("RegexRouter", regex="[a&&b]", replacement="x"),
        t("RegexRouter", regex="a{", replacement="x"),
        t("RegexRouter", regex="(?P<a>b)", replacement="x"),
        t("RegexRouter", regex="[a[b]]", replacement="x"),
        t("ReplaceField$Value"),
        t("ReplaceField$Value", renames="a"),
        t("ReplaceField$Value", renames="a:b:c"),
        t("ReplaceField$Value", renames="a:"),
        t("ReplaceField$Value", renames=":b"),
        t("ReplaceField$Value", blacklist="a"),
        t("ReplaceField$Value", include="a", exclude="a"),
        t("SetSchemaMetadata$Value"),
        t("SetSchemaMetadata$Value", schema__version="x"),
        t("SetSchemaMetadata$Value", schema__name=""),
        t("TimestampConverter$Value"),
        t("TimestampConverter$Value", target__type="x"),
        t("TimestampConverter$Value", target__type="string"),
        t("TimestampConverter$Value", target__type="string", format="b"),
        t("TimestampConverter$Value", target__type="STRING", format="yyyy"),
        t("TimestampConverter$Value", target__type="unix", unix__precision="days"),
        t("TimestampConverter$Value", target__type="unix", format="b"),
        t("TimestampRouter"),
        t("TimestampRouter", timestamp__format="b"),
        t("TimestampRouter", topic__format=""),
        t("TimestampRouter", timestamp__format=""),
        t("ValueToKey"),
        t("ValueToKey", fields=""),
        t("ValueToKey", fields="a,a"),
        t("ValueToKey$Key", fields="a"),
    ):
        yield check("FileStreamSink", {**SINKV, **m}, repeat=62)


def _converters_validated() -> Iterator[Case]:
    for half in ("key", "value", "header"):
        for m in (
            {"": f"{JAVA}json.JsonConverter"},
            {"": f"{JAVA}json.JsonConverter", ".schemas.enable": "maybe"},
            {"": f"{JAVA}json.JsonConverter", ".schemas.cache.size": "x"},
            {"": f"{JAVA}json.JsonConverter", ".schemas.cache.size": "-1"},
            {"": f"{JAVA}json.JsonConverter", ".decimal.format": "text"},
            {"": f"{JAVA}json.JsonConverter", ".decimal.format": "numeric"},
            {"": f"{JAVA}json.JsonConverter", ".replace.null.with.default": "x"},
            {"": f"{JAVA}json.JsonConverter", ".bogus": "x"},
            {"": f"{JAVA}json.JsonConverter", ".converter.type": "key"},
            {"": f"{JAVA}storage.StringConverter", ".converter.encoding": "bogus"},
            {"": f"{JAVA}storage.StringConverter", ".converter.encoding": "latin1"},
            {"": f"{JAVA}storage.StringConverter", ".converter.encoding": ""},
            {"": f"{JAVA}storage.SimpleHeaderConverter"},
            {"": f"{JAVA}converters.ByteArrayConverter"},
            {"": f"{JAVA}converters.LongConverter"},
            {"": f"{JAVA}converters.BooleanConverter"},
            {"": JT + "Filter"},
            {"": ""},
            {"": " "},
            {"": "FileStreamSink"},
            {"": "ByteArrayConverter"},
            {"": "String"},
            {".schemas.enable": "maybe"},
            {".converter.encoding": "bogus"},
            {"": "java.lang.String"},
        ):
            if half == "value" and m.get("") in ("", " ", f"{JAVA}storage.SimpleHeaderConverter"):
                continue  # what else it shows of the version differs
            yield check("FileStreamSink", {**SINKV, **{f"{half}.converter{k}": v for k, v in m.items()}}, repeat=63)


def _sources_validated() -> Iterator[Case]:
    both = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
    for m in (
        {"topic": " t "},
        {"topic": "a b"},
        {"batch.size": "-1"},
        {"batch.size": " 5 "},
        {"batch.size": ""},
        {"exactly.once.support": "REQUIRED"},
        {"exactly.once.support": ""},
        {"exactly.once.support": "requested"},
        {"transaction.boundary": "INTERVAL"},
        {"transaction.boundary": ""},
        {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "x"},
        {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "500"},
        {"transaction.boundary.interval.ms": "500"},
        {"offsets.storage.topic": "other"},
        {"offsets.storage.topic": " "},
        {"topics": "t"},
        {"topics.regex": "("},
        {"errors.deadletterqueue.topic.name": "t"},
        {"topic.creation.groups": ""},
        {**both, "topic.creation.groups": "g,g"},
        {**both, "topic.creation.groups": "default"},
        {**both, "topic.creation.groups": "g", "topic.creation.g.include": "("},
        {**both, "topic.creation.groups": "g", "topic.creation.g.include": "a", "topic.creation.g.exclude": "("},
        {**both, "topic.creation.groups": "g", "topic.creation.g.include": "a", "topic.creation.g.partitions": "0"},
        {
            **both,
            "topic.creation.groups": "g",
            "topic.creation.g.include": "a",
            "topic.creation.g.replication.factor": "x",
        },
        {**both, "topic.creation.groups": "g", "topic.creation.g.include": ""},
        {**both, "topic.creation.default.cleanup.policy": "bogus"},
        {**both, "topic.creation.default.retention.ms": "x"},
        {**both, "topic.creation.default.include": "a"},
        {**both, "topic.creation.default.exclude": "a"},
        {**both, "topic.creation.h.partitions": "1"},
        {**both, "topic.creation.enable": "x"},
        {"topic.creation.default.replication.factor": "1"},
        {"topic.creation.default.partitions": "x", "topic.creation.default.replication.factor": "1"},
        {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "32768"},
        {"topic.creation.default.partitions": "-2", "topic.creation.default.replication.factor": "1"},
        {"producer.override.acks": "all"},
        {"producer.override.acks": "0"},
        {"producer.override.compression.type": "bogus"},
        {"producer.override.compression.type": "zstd"},
        {"producer.override.batch.size": "-1"},
        {"producer.override.enable.idempotence": "false"},
        {"producer.override.max.in.flight.requests.per.connection": "6"},
        {"producer.override.delivery.timeout.ms": "1"},
        {"producer.override.transactional.id": "x"},
        {"producer.override.value.serializer": "x"},
        {"producer.override.partitioner.class": "x"},
        {"producer.override.max.request.size": "5000000"},
        {"producer.override.": "x"},
        {"producer.override.retries": "0"},
        {"producer.override.client.id": "me"},
        {"consumer.override.max.poll.records": "x"},
        {"admin.override.bogus": "x"},
    ):
        yield check("FileStreamSource", {**SOURCEV, **m}, repeat=64)


def levels() -> Iterator[Case]:
    """Of loggers."""
    java = "org.apache.kafka.connect"
    for level in ("TRACE", "FATAL", "OFF", "ALL", " INFO ", "", "WARNING", "ERROR", "warn", True, ["INFO"], {"a": 1}):
        yield Case("PUT", f"/admin/loggers/{java}", {"level": level}, repeat=90)
    for raw in ("", "null", '"INFO"', "[]", "{"):
        yield Case("PUT", f"/admin/loggers/{java}", raw=raw, headers=JSON, repeat=90)
    for q in ("?scope=", "?scope", "?scope=Cluster", "?scope=worker&scope=cluster"):
        yield Case("PUT", f"/admin/loggers/{java}{q}", {"level": "INFO"}, repeat=90)
    yield Case("PUT", f"/admin/loggers/{java}?scope=cluster", {"level": "LOUD"}, repeat=90)
    yield Case("PUT", "/admin/loggers/root?scope=cluster", {"level": "INFO"}, repeat=90)
    for n in ("ROOT", "Root", "root%20", "org.apache", java + ".", "%20", "org.apache.kafka.connect.runtime.rest"):
        yield Case("GET", f"/admin/loggers/{n}", repeat=90)
