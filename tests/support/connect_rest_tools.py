"""Requests as tools and browsers make them, versions of plugins, and what users of other packages' plugins ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any
from urllib.parse import quote

from support.connect_rest_case import JAVA, JSON, Case, Wait
from support.connect_rest_variants import SINKV, SOURCEV, check, t

_PAGE = "https://console.example"
_SINK = {
    "connector.class": f"{JAVA}file.FileStreamSinkConnector",
    "tasks.max": "1",
    "file": "{folder}/out.txt",
    "topics": "{topic}",
}
_SOURCE = {
    "connector.class": "FileStreamSource", "tasks.max": "1", "file": "{folder}/in.txt", "topic": "{topic}",
    "topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "1",
}  # fmt: skip
_STRING = f"{JAVA}storage.StringConverter"
_FILTER = f"{JAVA}transforms.Filter"
_TOMBSTONE = f"{JAVA}transforms.predicates.RecordIsTombstone"


def tools() -> Iterator[Case | Wait]:
    """On a worker without connectors, which it leaves without them."""
    numbers = count(100)
    for each in (*_versions(), *_pages(), *_accepts(), *_bodies(), *_classes(), *_aliases(), *_nulls(), *_life()):
        yield replace(each, repeat=next(numbers)) if isinstance(each, Case) else each


def _made(more: dict[str, Any], name: str = "tool") -> Iterator[Case]:
    """Created stopped, and deleted."""
    yield Case("POST", "/connectors", {"name": name, "config": {**_SINK, **more}, "initial_state": "STOPPED"})
    yield Case("DELETE", f"/connectors/{name}")


def _versions() -> Iterator[Case]:
    for version in ("9.9", "4.1.2", "latest", "[4.1,)", "4.1.2 ", "[4.1.2"):
        yield check("FileStreamSink", {**SINKV, "connector.plugin.version": version})
        yield from _made({"connector.plugin.version": version})
    for version in (
        "4.1.2", "4.1", "4.1.2.0", "4.1.2-0", "4.1.2-SNAPSHOT", "4.1.2.Final", "4.01.02", "4..1.2", "x", "", " ", "latest", "LATEST",
        "[4.1.2]", "[]", "[4.1.2", "4.1.2]", "[", "[4.1,)", "(4.1.2,)", "[4.1.2,)", "(,4.1.2]", "(,4.1.2)", "[4.0,4.1]", "[5,4]", "(4)",
        "[4.1.2-rc1,4.1.2)", "(4.1.2-SNAPSHOT,4.1.2]", "[4.1.2,4.1.2-sp]", "(,4.1.2-alpha)", "(4.1.2-x,)", "[4.1.2-1,)", "(,),", "[,]",
        "[1,2],[4,5]", "[1,2),(3,4.1)", "[1,3],[2,5]", "[4,),[5,6]", "[1,2],(,9]", "[4,5]x", "[4,5,6]", "4.1.2,5",
    ):  # fmt: skip
        yield Case("GET", f"/connector-plugins/FileStreamSink/config?version={quote(version)}")
    for version in ("", "9.9", "[4.1,)", "latest"):
        for name in (_STRING, f"{JAVA}storage.SimpleHeaderConverter", _FILTER, _TOMBSTONE):
            yield Case("GET", f"/connector-plugins/{name}/config?version={quote(version)}")
        for more in (
            {"key.converter": _STRING, "key.converter.plugin.version": version},
            {"key.converter.plugin.version": version},
            {
                "header.converter": f"{JAVA}storage.SimpleHeaderConverter",
                "header.converter.plugin.version": version,
            },
            t("Filter", plugin__version=version),
            {"predicates": "p", "predicates.p.type": _TOMBSTONE, "predicates.p.plugin.version": version},
        ):
            yield check("FileStreamSink", {**SINKV, **more})
    yield Case("GET", "/connector-plugins/Nope/config?version=1")


def _pages() -> Iterator[Case]:
    """Of browsers."""
    asked = (
        {"Access-Control-Request-Method": "PUT"},
        {"Access-Control-Request-Method": "DELETE", "Access-Control-Request-Headers": "content-type"},
    )
    for origin in (_PAGE, "HTTPS://CONSOLE.EXAMPLE", "null", f"{_PAGE}:443"):
        yield Case("GET", "/connectors", headers={"Origin": origin})
        for more in asked:
            yield Case("OPTIONS", "/connectors", headers={"Origin": origin, **more})
    for method, path in (
        ("PUT", "/connectors/none/pause"),
        ("DELETE", "/connectors/none"),
        ("GET", "/nothing"),
        ("OPTIONS", "/nothing"),
        ("OPTIONS", "/connectors/none/config"),
        ("PATCH", "/connectors"),
    ):
        yield Case(method, path, headers={"Origin": _PAGE, **(asked[1] if method == "OPTIONS" else {})})
    yield Case("GET", "/connectors", headers={"Origin": _PAGE, "Accept": "text/plain"})
    yield Case("PUT", "/connectors/x/config", raw="{}", headers={"Origin": _PAGE, "Content-Type": "text/plain"})
    for path in (
        "/favicon.ico",
        "/openapi.yaml",
        "/debezium/connector-plugins",
        "/v3/connectors",
        "/subjects",
        "/admin/",
    ):
        yield Case("GET", path)


def _accepts() -> Iterator[Case]:
    for accept in (
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
        "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", "application/json, text/plain, */*", "application/*+json",
        "application/json, application/*+json", "application/json;", "application/json;;q=1", "application/json;Q=0.5",
        'application/json;q="0.5"', "application/json;q=0", "application/json;q=0, */*", "*/*;q=0", "application/json;level=1",
        "application/json;q=1.", "application/json;q=.5", "application/json;q=1.000", "application/json; q=x", "application/json;q=",
        "application/json;q=2", "*/*;q=x", "application/json;q=-1", "application/json;q=0.1234", "text/plain;q=x, application/json",
        "application/json; q=1; x", "text/html;q=0.1234", "application/*;q=x", "application/json ; q = 0.5", "application/json;q=1.001",
    ):  # fmt: skip
        yield Case("GET", "/connectors", headers={"Accept": accept})
    yield Case("GET", "/connectors", headers={"Accept-Encoding": "gzip, deflate, br", "Authorization": "Basic YTpi"})


def _bodies() -> Iterator[Case]:
    """Without a media type, with another one, and what one request answers given to another."""
    for method, path, raw in (
        ("PUT", "/connectors/x/config", '{"connector.class":"Nope"}'),
        (
            "PUT",
            "/connector-plugins/FileStreamSink/config/validate",
            '{"connector.class":"FileStreamSink","topics":"t"}',
        ),
        ("PATCH", "/connectors/none/config", '{"a":"b"}'),
        ("PATCH", "/connectors/none/offsets", '{"offsets":[]}'),
        ("PUT", "/admin/loggers/root", '{"level":"INFO"}'),
    ):
        yield Case(method, path, raw=raw)
        yield Case(method, path, raw=raw, headers={"Content-Type": "application/merge-patch+json"})
    yield Case("PUT", "/connectors/x/config", {"name": "x", "config": _SINK})
    yield Case("POST", "/connectors", {**_SINK, "name": "x"})
    yield Case("POST", "/connectors", {"name": "x", "config": _SINK, "tasks": [], "type": "sink"})
    for forward in ("true", "false", "maybe", ""):
        query, c = f"?forward={forward}", "/connectors/fw"
        yield Case("POST", f"/connectors{query}", {"name": "fw", "config": _SINK, "initial_state": "STOPPED"})
        yield Case("PUT", f"{c}/config{query}", _SINK)
        yield Case("PATCH", f"{c}/config{query}", {"tasks.max": "1"})
        yield Case("DELETE", f"{c}/offsets{query}")
        yield Case("DELETE", f"{c}{query}")


def _classes() -> Iterator[Case]:
    """Plugins of other packages that bear the names of Kafka's, and names with spaces around."""
    for name in (
        "io.debezium.connector.file.FileStreamSink",
        "com.example.FileStreamSinkConnector",
        f"{JAVA}FileStreamSinkConnector",
    ):
        yield from _made({"connector.class": name})
        yield Case("GET", f"/connector-plugins/{name}/config")
        yield check("FileStreamSink", {**SINKV, "connector.class": name})
    for name in ("io.debezium.transforms.Filter", "io.confluent.connect.transforms.Filter$Value", "com.example.TimestampRouter",
                 f"{JAVA}transforms.Cast", f"{_FILTER}$Value", f" {_FILTER}", f"{_FILTER} ", " "):  # fmt: skip
        yield check("FileStreamSink", {**SINKV, "transforms": "a", "transforms.a.type": name})
        yield from _made({"transforms": "a", "transforms.a.type": name})
    for name in (
        "io.debezium.transforms.Filter",
        "com.example.JsonConverter",
        "io.debezium.SimpleHeaderConverter",
        "io.debezium.RecordIsTombstone",
    ):
        yield Case("GET", f"/connector-plugins/{name}/config")
    for name in ("io.debezium.RecordIsTombstone", f" {_TOMBSTONE} "):
        yield check("FileStreamSink", {**SINKV, "predicates": "p", "predicates.p.type": name})
    for half in ("key", "value", "header"):
        for name in ("com.example.JsonConverter", "io.debezium.SimpleHeaderConverter", f" {_STRING}", f"{_STRING} "):
            yield check("FileStreamSink", {**SINKV, f"{half}.converter": name})
            yield from _made({f"{half}.converter": name})
    for name in (" FileStreamSink ", f" {JAVA}file.FileStreamSinkConnector", "FileStreamSink\n", " ", ""):
        yield from _made({"connector.class": name})
        yield check("FileStreamSink", {**SINKV, "connector.class": name})
    for path in ("%20FileStreamSink", "FileStreamSink%20"):
        yield check(path, SINKV)
    for name in ("DropHeaders", "ExtractField$Key", "Flatten$Key", "HeaderFrom$Key", "HoistField$Value", "InsertField$Key", "MaskField$Key",
                 "ReplaceField$Key", "SetSchemaMetadata$Key", "TimestampConverter$Key", "Cast$Key"):  # fmt: skip
        yield Case("GET", f"/connector-plugins/{JAVA}transforms.{name}/config")
    for name in ("Double", "Float", "Short", "Integer", "Boolean"):
        yield Case("GET", f"/connector-plugins/{JAVA}converters.{name}Converter/config")


def _aliases() -> Iterator[Case]:
    """Lists with nothing between their commas."""
    steps = {
        f"{kind}.{alias}.type": name
        for kind, name in (("transforms", _FILTER), ("predicates", _TOMBSTONE))
        for alias in "ab"
    }
    both = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
    for aliases in ("a,,b", ",", "a,", ",a", " ", "a, ,b", ",,", "a,b", "a,b,a"):
        for kind in ("transforms", "predicates"):
            given = {name: value for name, value in steps.items() if name.startswith(kind)}
            yield check("FileStreamSink", {**SINKV, **given, kind: aliases})
        yield from _made({**steps, "transforms": aliases})
        groups = {"topic.creation.a.include": "x", "topic.creation.b.include": "y", "topic.creation.groups": aliases}
        yield check("FileStreamSource", {**SOURCEV, **both, **groups})


def _nulls() -> Iterator[Case]:
    for more in ({"tasks.max": None}, {"name": None}, {"bogus": None}, {"": "x"}, {"a b": "x"}, {"transforms": None}):
        yield from _made(more)
        yield check("FileStreamSink", {**SINKV, **more})
    for more in ({"topics": None}, {"errors.tolerance": None, "key.converter": None}, {"connector.class": None}):
        yield check("FileStreamSink", {**SINKV, **more})
    for value in (True, 2, 2.0, [2], {"a": 2}):
        yield check("FileStreamSink", {**SINKV, "tasks.max": value})


def _life() -> Iterator[Case | Wait]:
    """Of a stopped connector, and of a stopped source's configuration and offsets."""
    c = "/connectors/two"
    yield Case("POST", "/connectors", {"name": "two", "config": _SINK, "initial_state": "STOPPED"})
    yield Wait("two", "STOPPED", 0)
    for name, config in (
        ("two", {**_SINK, "tasks.max": "0"}),
        ("two", {"connector.class": "Nope"}),
        ("two", _SOURCE),
        (" two ", _SINK),
    ):
        yield Case("POST", "/connectors", {"name": name, "config": config})
    for method, path in (
        ("PUT", "/stop"), ("POST", "/restart"), ("POST", "/restart?includeTasks=true"), ("POST", "/restart?onlyFailed=true"),
        ("PUT", "/topics/reset"), ("GET", "/topics"), ("GET", "/tasks"), ("GET", "/status"), ("GET", "/offsets"), ("GET", "/tasks/0/status"),
    ):  # fmt: skip
        yield Case(method, c + path, once=True)
    yield Case("PUT", f"{c}/config", {**_SINK, "tasks.max": "3"})
    yield Case("GET", f"{c}/status")
    yield Case("PUT", f"{c}/config", {**_SINK, "name": " two "})
    yield Case("DELETE", f"{c}?force=true")
    yield Case("GET", f"{c}/topics")
    c = "/connectors/pc"
    yield Case("POST", "/connectors", {"name": "pc", "config": _SOURCE, "initial_state": "STOPPED"})
    yield Wait("pc", "STOPPED", 0)
    for body in (
        {"name": "pc"}, {"name": "other"}, {"name": None}, {"name": ""}, {"name": " pc "}, {"name": 5}, {"name": "pc", "batch.size": "3"}, {},
        {"connector.class": " FileStreamSource "}, {"connector.class": ""}, {"connector.class": "Nope"}, {"tasks.max": None},
    ):  # fmt: skip
        yield Case("PATCH", f"{c}/config", body)
        yield Case("PUT", f"{c}/config", _SOURCE)
    yield Case("PATCH", "/connectors/nix/config", {"name": "nix"})
    place = {"filename": "{folder}/in.txt"}
    for pairs in (
        [(place, {"position": 2, "more": "x"})], [({**place, "more": 1}, {"position": 1})], [({**place, "more": None}, {"position": 3})],
        [({"more": 1}, {"position": 3})], [({}, {"position": 3})], [({"FILENAME": "x"}, {"position": 1})], [(None, {"position": 1})],
        [({"filename": 5}, {"position": 3})], [({"filename": None}, {"position": 3})], [({"filename": ["a"]}, {"position": 3})],
        [(place, {})], [(place, {"position": None})], [(place, {"position": 3.0})], [(place, {"position": True})],
        [(place, {"position": "3"})], [(place, {"position": 2**63})], [(place, {"position": 5}), (place, {"position": 6})],
        [({**place, "more": 2}, None)], [({"a": "b"}, None)], [({"filename": "{folder}/never"}, None)],
    ):  # fmt: skip
        offsets = [{"partition": partition, "offset": offset} for partition, offset in pairs]
        yield Case("PATCH", f"{c}/offsets", {"offsets": offsets})
        yield Case("DELETE", f"{c}/offsets")
    yield Case("PATCH", f"{c}/offsets", {"offsets": [{"partition": place, "offset": {"position": 7}, "more": 1}]})
    yield Case("PATCH", f"{c}/offsets", raw="{}", headers=JSON)
    yield Case("GET", f"{c}/offsets")
    yield Case("PUT", f"{c}/pause")
    yield Wait("pc", "PAUSED", -1)
    yield Case("GET", f"{c}/offsets")
    yield Case("DELETE", c)
    for name in ("x y", "ü", "a+b", "a&b=c", "a#b", "a:b,c", "<b>", "$x", "🙂", "\u00a0", "x" * 250, "a@b*", "-"):
        path = quote(name, safe="")
        yield Case("POST", "/connectors", {"name": name, "config": _SINK, "initial_state": "STOPPED"})
        yield Case("GET", f"/connectors/{path}/config")
        yield Case("PUT", f"/connectors/{path}/config", {**_SINK, "tasks.max": "2"})
        yield Case("DELETE", f"/connectors/{path}")
    yield from _sink_offsets()


def _sink_offsets() -> Iterator[Case | Wait]:
    """Numbers that are none."""
    c = "/connectors/num"
    yield Case("POST", "/connectors", {"name": "num", "config": _SINK, "initial_state": "STOPPED"})
    yield Wait("num", "STOPPED", 0)
    for partition, offset in (
        (0.0, 0), (0.5, 0), (True, 0), ("0x0", 0), (" 0 ", 0), (0, 0.0), (0, 0.5), (0, True), (0, " 0"), (0, "0_0"), (0, None), (None, 0),
        (2**31, 0), (0, 2**63), ("+0", "0"),
    ):  # fmt: skip
        pair = {
            "partition": {"kafka_topic": "{topic}", "kafka_partition": partition},
            "offset": {"kafka_offset": offset},
        }
        yield Case("PATCH", f"{c}/offsets", {"offsets": [pair]})
    yield Case("DELETE", f"{c}/offsets")
    yield Case("GET", f"{c}/offsets")
    yield Case("DELETE", c)
