"""The 16 transforms and 3 predicates, with and without schemas."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from keyorder.connector.connect import DataError, Field, Headers, Schema, SinkRecord, SourceRecord
from keyorder.connector.connect.api.errors import NotFoundError
from keyorder.connector.connect.api.schema import infer
from keyorder.connector.connect.runtime.pipeline import Chain
from keyorder.connector.connect.runtime.plugins import Plugins
from keyorder.partitioner.errors import ConfigError

PLUGINS = Plugins()
TIME, ISO, DAY = "TimestampConverter$Value", "yyyy-MM-dd'T'HH:mm:ss.SSS", "1970-01-02"
JAVA = "org.apache.kafka.connect.transforms."


def sink(value: Any = None, key: Any = None, **more: Any) -> SinkRecord:
    return SinkRecord(
        topic=more.pop("topic", "t"), key=key, value=value, partition=1, offset=7, timestamp=86_400_000, **more
    )


def run(kind: str, record: SinkRecord, **options: Any) -> SinkRecord | None:
    config = {"transforms": "x", "transforms.x.type": JAVA + kind}
    config.update({f"transforms.x.{name.replace('_', '.')}": str(value) for name, value in options.items()})
    return Chain(PLUGINS, config).apply(record)


VALUES: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("ReplaceField$Value", {"exclude": "a"}, {"a": 1, "b": 2}, {"b": 2}),
    ("ReplaceField$Value", {"include": "a", "renames": "a:c"}, {"a": 1, "b": 2}, {"c": 1}),
    ("MaskField$Value", {"fields": "a,b"}, {"a": 5, "b": "x", "c": 1}, {"a": 0, "b": "", "c": 1}),
    ("MaskField$Value", {"fields": "b", "replacement": "*"}, {"b": "x"}, {"b": "*"}),
    ("InsertField$Value", {"topic_field": "t", "partition_field": "p", "offset_field": "o!"}, {}, {"t": "t", "p": 1, "o": 7}),
    ("InsertField$Value", {"static_field": "s", "static_value": "v"}, {"a": 1}, {"a": 1, "s": "v"}),
    ("ExtractField$Value", {"field": "a"}, {"a": 1, "b": 2}, 1),
    ("HoistField$Value", {"field": "a"}, 5, {"a": 5}),
    ("Flatten$Value", {"delimiter": "_"}, {"a": {"b": {"c": 1}}, "d": 2}, {"a_b_c": 1, "d": 2}),
    ("Cast$Value", {"spec": "a:string,b:int32,c:boolean"}, {"a": 1, "b": "5", "c": "true"}, {"a": "1", "b": 5, "c": True}),
    ("Cast$Value", {"spec": "float64"}, 1, 1.0),
    (TIME, {"field": "a", "target_type": "string", "format": ISO}, {"a": 86_400_001}, {"a": "1970-01-02T00:00:00.001"}),
    (TIME, {"field": "a", "target_type": "unix", "format": ISO[:10], "unix_precision": "seconds"}, {"a": DAY}, {"a": 86_400}),
    (TIME, {"target_type": "Date"}, 86_400_001, date(1970, 1, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "before", "after"), VALUES)
@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "schema"])
def test_transforms_of_values(kind: str, options: dict[str, Any], before: Any, after: Any, schemas: bool) -> None:
    """The data is the same with a schema and without; with one, the new schema fits the new data."""
    made = run(kind, sink(before, value_schema=infer(before) if schemas else None), **options)
    assert made is not None
    assert made.value == after
    assert (made.value_schema is not None) == schemas
    if made.value_schema is not None:
        made.value_schema.check(made.value)
        if isinstance(after, dict):
            assert {f.name for f in made.value_schema.fields} == set(after)


def test_the_halves_are_apart() -> None:
    """$Key changes the key only, and the name alone is refused."""
    made = run("ExtractField$Key", sink(value={"a": 2}, key={"a": 1}), field="a")
    assert made is not None
    assert (made.key, made.value) == (1, {"a": 2})
    with pytest.raises(NotFoundError, match=r"\$Value"):
        run("ExtractField", sink(), field="a")


def test_routers_change_the_topic() -> None:
    """RegexRouter matches all of it; TimestampRouter uses the record's time in UTC."""
    for topic, expected in (("db.users", "users_v2"), ("users", "users")):
        made = run("RegexRouter", sink(topic=topic), regex=r"db\.(.*)", replacement="$1_v2")
        assert made is not None
        assert made.topic == expected
    made = run("TimestampRouter", sink(), timestamp_format="yyyyMMdd")
    assert made is not None
    assert made.topic == "t-19700102"


def test_headers_are_inserted_dropped_and_taken_from_fields() -> None:
    """And the record before keeps its own."""
    before = sink({"a": 1, "b": 2}, headers=Headers().add("x", 1).add("x", 2).add("y", 3))
    made = run("DropHeaders", before, headers="x")
    assert made is not None
    assert [h.key for h in made.headers] == ["y"]
    made = run("InsertHeader", before, header="z", value_literal="v")
    assert made is not None
    assert made.headers.last("z") is not None
    made = run("HeaderFrom$Value", before, fields="a", headers="h", operation="move")
    assert made is not None
    assert (made.value, [h.value for h in made.headers.all("h")]) == ({"b": 2}, [1])
    assert [h.key for h in before.headers] == ["x", "x", "y"]


def test_value_to_key_takes_fields_in_order() -> None:
    """With their schemas."""
    schema = Schema("struct", fields=(Field("a", Schema("int32")), Field("b", Schema("string"))))
    made = run("ValueToKey", sink({"a": 1, "b": "x"}, value_schema=schema), fields="b,a")
    assert made is not None
    assert made.key == {"b": "x", "a": 1}
    assert made.key_schema is not None
    assert [f.schema.type for f in made.key_schema.fields] == ["string", "int32"]


def test_set_schema_metadata() -> None:
    """Name and version; a value without a schema is refused."""
    made = run(
        "SetSchemaMetadata$Value", sink({"a": 1}, value_schema=infer({"a": 1})), schema_name="N", schema_version=3
    )
    assert made is not None
    assert made.value_schema is not None
    assert (made.value_schema.name, made.value_schema.version) == ("N", 3)
    with pytest.raises(DataError):
        run("SetSchemaMetadata$Value", sink({"a": 1}), schema_name="N")


@pytest.mark.parametrize(
    ("predicate", "options", "matching", "other"),
    [
        ("HasHeaderKey", {"name": "h"}, sink(headers=Headers().add("h", 1)), sink()),
        ("RecordIsTombstone", {}, sink(None), sink(1)),
        ("TopicNameMatches", {"pattern": "a.*"}, sink(topic="abc"), sink(topic="xabc")),
    ],
)
@pytest.mark.parametrize("negate", ["false", "true"])
def test_a_filter_with_a_predicate_drops_what_matches(
    predicate: str, options: dict[str, str], matching: SinkRecord, other: SinkRecord, negate: str
) -> None:
    """Or, negated, all else."""
    config = {
        "transforms": "f",
        "transforms.f.type": JAVA + "Filter",
        "transforms.f.predicate": "p",
        "transforms.f.negate": negate,
        "predicates": "p",
        "predicates.p.type": f"{JAVA}predicates.{predicate}",
        **{f"predicates.p.{name}": value for name, value in options.items()},
    }
    chain = Chain(PLUGINS, config)
    dropped = [chain.apply(matching) is None, chain.apply(other) is None]
    assert dropped == ([True, False] if negate == "false" else [False, True])


def test_all_sixteen_and_three_are_there() -> None:
    """Under Connect's names."""
    assert len(PLUGINS.names("transforms")) == 16
    assert len(PLUGINS.names("predicates")) == 3


def test_a_wrong_transform_is_refused_by_name() -> None:
    """A type that is not there, a missing setting, a predicate that was not defined."""
    with pytest.raises(NotFoundError, match="Nope"):
        run("Nope", sink())
    with pytest.raises(ConfigError, match="field"):
        run("HoistField$Value", sink())
    with pytest.raises(ConfigError, match="predicate"):
        run("Filter", sink(), predicate="q")


def test_a_source_record_keeps_its_place_in_the_source() -> None:
    """Transforms leave partition and offset of the source alone."""
    record = SourceRecord(topic="t", value=1, source_partition={"f": 1}, source_offset={"o": 2})
    made = Chain(
        PLUGINS, {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "v"}
    ).apply(record)
    assert made is not None
    assert (made.source_partition, made.source_offset, made.value) == ({"f": 1}, {"o": 2}, {"v": 1})
