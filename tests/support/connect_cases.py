"""Every transform on every type, here and in the JVM, and the table of docs/connect-parity.md that comes of it."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from keyorder.connector.connect import ConnectRecord, DataError, Field, Headers, Schema, SinkRecord, SourceRecord
from keyorder.connector.connect.api.errors import NotFoundError
from keyorder.connector.connect.api.schema import DATE, TIME, TIMESTAMP, decimal_schema, infer
from keyorder.connector.connect.runtime.pipeline import Chain
from keyorder.connector.connect.runtime.plugins import Plugins
from keyorder.partitioner.errors import ConfigError
from support.connect_judge import Judge, plain_answer, plain_record, record_document

PAGE = Path(__file__).parents[2] / "docs" / "connect-parity.md"
JAVA = "org.apache.kafka.connect.transforms."
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ROWS = Schema("struct", name="Row", fields=(Field("x", Schema("int32")), Field("y", Schema("string", True))))
_PLUGINS = Plugins()
Refusal = (DataError, ConfigError, NotFoundError)

# Type: (schema, values). Texts and numbers on both sides of what casts and dates take.
TYPES: dict[str, tuple[Schema, list[Any]]] = {
    "int8": (Schema("int8"), [0, 1, -128, 127]),
    "int16": (Schema("int16"), [0, 300, -32768]),
    "int32": (Schema("int32"), [0, 42, 2**31 - 1, -(2**31)]),
    "int64": (Schema("int64"), [0, 7, 1_700_000_000_123, -1, -1500, 2**63 - 1, -(2**63)]),
    "float32": (Schema("float32"), [0.0, 1.5, -2.75, 0.10000000149011612, 3.4e38]),
    "float64": (Schema("float64"), [0.0, 1.5, -2.75, 1e10, 0.1, 1e300, float("nan"), float("inf")]),
    "boolean": (Schema("boolean"), [True, False]),
    "string": (
        Schema("string"),
        ["", "5", "+5", "-7", "300", " 5", "5.5", "1e3", "true", "TRUE", "abc", "2020-02-03", "NaN", "1.5f", "ä"],
    ),
    "bytes": (Schema("bytes"), [b"", b"\x00\xff"]),
    "Decimal": (decimal_schema(2), [Decimal("0.00"), Decimal("123.45"), Decimal("-0.99"), Decimal("1e20").quantize(Decimal("0.01"))]),
    "Date": (DATE, [date(1970, 1, 1), date(2020, 2, 3), date(1500, 1, 1), date(1960, 5, 6)]),
    "Time": (TIME, [time(0), time(10, 11, 12, 13000)]),
    "Timestamp": (TIMESTAMP, [EPOCH, EPOCH + timedelta(hours=5), datetime(2020, 2, 3, 4, 5, 6, 789000, timezone.utc), datetime(1955, 1, 2, 3, tzinfo=timezone.utc)]),
    "array": (Schema("array", values=Schema("int32")), [[], [1, 2]]),
    "map": (Schema("map", keys=Schema("string"), values=Schema("int64")), [{}, {"k": 5, "b": 6}]),
    "struct": (_ROWS, [{"x": 1, "y": None}]),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One record through one transform."""

    transform: str
    kind: str
    config: dict[str, str]
    record: ConnectRecord
    predicate: tuple[str, dict[str, str], bool] | None = None

    def ours(self) -> Any:
        """The record that comes out, in a plain form. Raises one of Refusal."""
        config = {"transforms": "t", "transforms.t.type": JAVA + self.transform}
        config |= {f"transforms.t.{k}": v for k, v in self.config.items()}
        if self.predicate is not None:
            name, options, negate = self.predicate
            config |= {
                "predicates": "p",
                "predicates.p.type": f"{JAVA}predicates.{name}",
                "transforms.t.predicate": "p",
            }
            config |= {"transforms.t.negate": str(negate).lower()} | {
                f"predicates.p.{k}": v for k, v in options.items()
            }
        return plain_record(Chain(_PLUGINS, config).apply(self.record))

    def theirs(self, judge: Judge) -> tuple[bool, Any]:
        """(True, the JVM's record in a plain form) or (False, its error)."""
        step: dict[str, Any] = {"class": JAVA + self.transform, "config": self.config}
        if self.predicate is not None:
            name, options, negate = self.predicate
            step |= {"predicate": {"class": f"{JAVA}predicates.{name}", "config": options}, "negate": negate}
        kind = "sink" if isinstance(self.record, SinkRecord) else "source"
        answer = judge.ask(op="transform", kind=kind, steps=[step], record=record_document(self.record))
        if "error" in answer:
            return False, f"{answer['error']}: {answer['message']}"
        return True, plain_answer(answer["ok"])

    def verdict(self, judge: Judge) -> tuple[str, str]:
        """("equal" | "refused" | "wider" | "different", why). Errors on both sides are equal."""
        known, theirs = self.theirs(judge)
        try:
            ours = self.ours()
        except Refusal as error:
            return ("refused", str(error)) if known else ("equal", "an error")
        if not known and _works_here(self):
            return "wider", f"accepted here, where the JVM fails ({theirs.partition(': ')[2]})"
        if not known:
            return "different", f"the JVM refuses it ({theirs}), here it is {ours}"
        return ("equal", "") if ours == theirs else ("different", f"the JVM makes {theirs}, here it is {ours}")


def _works_here(case: Case) -> bool:
    """What the JVM refuses by a mistake: this version looks for the fields of what has none."""
    schema = case.record.key_schema if case.transform.endswith("$Key") else case.record.value_schema
    return case.transform.startswith("SetSchemaMetadata") and schema is not None and schema.type != "struct"


def sink(value: Any = None, schema: Schema | None = None, **more: Any) -> SinkRecord:
    """A record of a sink."""
    more.setdefault("timestamp", 1_580_702_706_789)
    more.setdefault("headers", Headers().add("h", "x", Schema("string")).add("i", 5, Schema("int32")).add("h", None))
    return SinkRecord(
        topic=more.pop("topic", "some.topic"), partition=3, offset=77, value=value, value_schema=schema, **more
    )


def _forms(name: str) -> Iterator[tuple[str, Any, Schema | None]]:
    """(shape, value, schema): a type alone, in a struct, in a map without a schema, nulls and defaults."""
    schema, values = TYPES[name]
    for value in values:
        yield "whole", value, schema
        yield "field", {"f": value, "g": "keep"}, Schema("struct", name="S", version=2, doc="d", fields=(Field("f", schema), Field("g", Schema("string"))))  # fmt: skip
        if schema.name is None and name not in ("bytes", "struct"):
            yield "plain whole", value, None
            yield "plain field", {"g": "keep", "f": value, "field_7": None}, None
    optional = replace(schema, optional=True)
    yield "whole", None, optional
    yield "field", {"f": None}, Schema("struct", True, fields=(Field("f", optional),))
    if name not in ("map", "struct"):
        for other in (replace(schema, default=values[-1]), replace(optional, default=values[-1], doc="doc")):
            yield "field", {"f": None}, Schema("struct", parameters={"p": "q"}, fields=(Field("f", other),))
    if schema.name is None:
        yield "plain field", {"f": None}, None
        yield "plain field", {"other": 1}, None
        yield "plain whole", None, None


_CASTS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
_TIMES = [
    {"target.type": target, "unix.precision": unit, **({"format": pattern} if pattern else {})}
    for target, unit, pattern in itertools.product(
        ("string", "unix", "Date", "Time", "Timestamp"), ("milliseconds", "seconds", "microseconds", "nanoseconds"), ("", "yyyy-MM-dd")
    )
]  # fmt: skip
_KEEP = ({}, {"replace.null.with.default": "false"})


def _configs() -> dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]]:
    """Transform: (its settings for a whole value, its settings for a field f)."""
    return {
        "Cast$Value": ([{"spec": kind} for kind in _CASTS], [{"spec": f"f:{kind}", **more} for kind in _CASTS for more in _KEEP]),
        "ExtractField$Value": (
            [{"field": "f"}],
            [{"field": "f"}, {"field": "f", **_KEEP[1]}, {"field": "none"}, {"field": "f.x", "field.syntax.version": "V2"}],
        ),
        "Flatten$Value": ([{}], [{}, {"delimiter": "_"}]),
        "HeaderFrom$Value": (
            [{"fields": "f", "headers": "n", "operation": "move"}],
            [{"fields": "f", "headers": "n", "operation": o, **more} for o in ("move", "copy") for more in _KEEP],
        ),
        "HoistField$Value": ([{"field": "w"}], [{"field": "w"}]),
        "InsertField$Value": (
            [{"topic.field": "t"}],
            [
                {"topic.field": "t", "partition.field": "p?", "offset.field": "o!", "timestamp.field": "ts", "static.field": "s", "static.value": "v"},
                {"topic.field": "f"},
                {"static.field": "s", "static.value": "v", **_KEEP[1]},
            ],
        ),
        "MaskField$Value": (
            [{"fields": "f"}],
            [{"fields": "f"}, {"fields": "f,g", "replacement": "7"}, {"fields": "f", "replacement": "x"}, {"fields": "f", **_KEEP[1]},
             {"fields": "f", "replacement": "1.5"}, {"fields": "f", "replacement": "300"}],
        ),
        "ReplaceField$Value": (
            [{"exclude": "f"}],
            [{"exclude": "f"}, {"include": "f"}, {"renames": "f:z"}, {"renames": "f:g"}, {"include": "g", **_KEEP[1]}],
        ),
        "SetSchemaMetadata$Value": ([{"schema.name": "N", "schema.version": "9"}], [{"schema.name": "N"}, {"schema.version": "4", **_KEEP[1]}]),
        "TimestampConverter$Value": (_TIMES, [{"field": "f", **config} for config in _TIMES] + [{"field": "f", "target.type": "unix", **_KEEP[1]}]),
        "ValueToKey": ([{"fields": "f"}], [{"fields": "f"}, {"fields": "f,g"}, {"fields": "f", **_KEEP[1]}]),
        "InsertHeader": ([{"header": "n", "value.literal": "1.5"}], []),
        "DropHeaders": ([{"headers": "h"}], []),
        "RegexRouter": ([{"regex": r"(.*)\.(.*)", "replacement": "$2-$1"}], []),
        "TimestampRouter": ([{"timestamp.format": "YYYY-'W'ww"}], []),
        "Filter": ([{}], []),
    }  # fmt: skip


TRANSFORMS = tuple(sorted(_configs()))


def cases(transform: str, kind: str) -> Iterator[Case]:
    """Every record of a type through a transform, in every setting."""
    whole, field = _configs()[transform]
    for shape, value, schema in _forms(kind):
        for config in field if shape.endswith("field") and field else whole:
            yield Case(transform, kind, config, sink(value, schema))
    if "$" in transform and kind == "int64":  # the key's half, once
        for config in field[:1]:
            record = sink("v", Schema("string"), key={"f": 7, "g": "x"}, key_schema=infer({"f": 7, "g": "x"}))
            yield Case(transform.replace("$Value", "$Key"), kind, config, record)


def _regexes() -> Iterator[dict[str, str]]:
    for regex, replacement in (
        (r"(.*)\.(.*)", "$2-$1"), ("a|some.topic|some", "x"), (r"some\.(?<rest>.*)", "${rest}_v2"), ("other", "x"), (".*", "a\\$b"),
        (r"\Qsome.\Etopic", "q"), (r"\p{Alpha}+\.\w+", "$0-9"), (r"([a-z]+)\.([a-z]+)", "$12"), (".*", ""),
        (r"some\.topic\z", "z"), ("(some)?.*(x)?", "[$1$2]"), (r"(?i)SOME\.TOPIC", "i"),
    ):  # fmt: skip
        yield {"regex": regex, "replacement": replacement}


def other_cases() -> Iterator[Case]:
    """What is no matter of a type: routers, headers, paths, predicates, settings that are wrong."""
    for config in _regexes():
        yield Case("RegexRouter", "", config, sink("v", Schema("string")))
    for pattern in ("yyyyMMdd", "YYYY-'W'ww", "EEE d MMM yyyy HH:mm:ss.SSS zzz XXX", "D F u k K a", "''yy''"):
        yield Case(
            "TimestampRouter", "", {"timestamp.format": pattern, "topic.format": "${timestamp}.${topic}.$1"}, sink(1)
        )
    yield Case("TimestampRouter", "", {}, sink(1, timestamp=None))
    for literal in ("1", "300", "1.5", "true", "null", "x", "[1,2]", '{"a":1}', "2020-01-02", "", "007", "1e400"):
        yield Case("InsertHeader", "", {"header": "n", "value.literal": literal}, sink(1))
    nested = {"a": {"b.c": {"d": 1}, "e`f": None}}
    for path in (
        "a",
        "a.e`f",
        "a.`b.c`.d",
        "a.`b.c`",
        "x.y",
        "a.`e`f`",
        "",
        "a.",
        "`a`.`b.c`.`d`",
        "a.`b.c",
        "`a\\`.b`",
    ):
        for schema in (None, infer(nested)):
            yield Case("ExtractField$Value", "", {"field": path, "field.syntax.version": "V2"}, sink(nested, schema))
    inner = Schema("struct", True, fields=(Field("x", Schema("int32", default=4)), Field("y", Schema("string", True))))
    deep = Schema("struct", fields=(Field("in", inner), Field("list", Schema("array", True, values=Schema("int32")))))
    for value in ({"in": {"x": 1}, "list": [1]}, {"in": None}, {"in": {}}, None):
        for delimiter in (".", ""):
            yield Case("Flatten$Value", "", {"delimiter": delimiter}, sink(value, deep))
    for count in (2, 3, 5, 12, 13, 25):
        row = {f"name_{i}": i for i in range(count)}
        yield Case("ValueToKey", "", {"fields": ",".join(row)}, sink(row))
        yield Case("Cast$Value", "", {"spec": "name_0:string,new:int8"}, sink(row))
        yield Case("ReplaceField$Value", "", {"exclude": "name_1", "renames": "name_0:z"}, sink(row))
        yield Case("HeaderFrom$Value", "", {"fields": "name_0", "headers": "n", "operation": "move"}, sink(row))
        yield Case("InsertField$Value", "", {"topic.field": "t", "timestamp.field": "time"}, sink(row))
    yield Case("InsertField$Value", "", {"partition.field": "p", "topic.field": "t"}, SourceRecord(topic="t", value={}))
    yield Case("InsertField$Value", "", {"offset.field": "o"}, SourceRecord(topic="t", value={}))
    for name, options in (
        ("HasHeaderKey", {"name": "h"}), ("HasHeaderKey", {"name": "none"}), ("RecordIsTombstone", {}),
        ("TopicNameMatches", {"pattern": "some.*"}), ("TopicNameMatches", {"pattern": "topic"}),
    ):  # fmt: skip
        for negate, value in itertools.product((False, True), (None, 5)):
            schema = None if value is None else Schema("int32")
            yield Case("Filter", "", {}, sink(value, schema), (name, options, negate))
            yield Case("HoistField$Value", "", {"field": "w"}, sink(value, schema), (name, options, negate))
    for transform, config in (
        ("Cast$Value", {}), ("Cast$Value", {"spec": ""}), ("Cast$Value", {"spec": "bytes"}), ("Cast$Value", {"spec": "int8,a:int8"}),
        ("Cast$Value", {"spec": "a:b:int8"}), ("Cast$Value", {"spec": "a:nope"}), ("MaskField$Value", {"fields": ""}),
        ("MaskField$Value", {"fields": "a", "replacement": ""}), ("InsertField$Value", {}), ("InsertField$Value", {"static.field": "s"}),
        ("ReplaceField$Value", {"renames": "a"}), ("HeaderFrom$Value", {"fields": "a", "headers": "b,c", "operation": "move"}),
        ("HeaderFrom$Value", {"fields": "a", "headers": "b", "operation": "eat"}), ("SetSchemaMetadata$Value", {}),
        ("TimestampConverter$Value", {"target.type": "string"}), ("TimestampConverter$Value", {"target.type": "year"}),
        ("TimestampConverter$Value", {"target.type": "string", "format": "yyyy b"}), ("RegexRouter", {"regex": "(", "replacement": ""}),
        ("TimestampConverter$Value", {"target.type": "unix", "unix.precision": "days"}), ("DropHeaders", {"headers": ""}),
        ("ExtractField$Value", {"field": "a", "field.syntax.version": "V3"}), ("ValueToKey", {"fields": ""}),
        ("TimestampRouter", {"timestamp.format": "yyyy'"}), ("RegexRouter", {"regex": ".*", "replacement": "$1"}),
    ):  # fmt: skip
        yield Case(transform, "", config, sink({"a": 1}, infer({"a": 1}), topic="some.topic"))


def verdicts(judge: Judge) -> dict[str, dict[str, str]]:
    """Transform -> type -> "equal", or why some values of the type are refused here. Raises AssertionError where any differs."""
    table: dict[str, dict[str, str]] = {}
    for transform, kind in itertools.product(TRANSFORMS, TYPES):
        refusals: dict[str, None] = {}
        for case in cases(transform, kind):
            verdict, why = case.verdict(judge)
            assert verdict != "different", f"{case}: {why}"
            if verdict != "equal":
                refusals[_general(why) if verdict == "wider" else f"Refused here: {_general(why)}"] = None
        table.setdefault(transform.replace("$Value", ""), {})[kind] = "; ".join(refusals) or "equal"
    return table


def _general(why: str) -> str:
    """A refusal without the value that it names."""
    for mark, text in (("does not fit", "a number outside the range of the target type"), ("years 1 to 9999", "a year outside 1 to 9999"),
                       ("is no int", "NaN or an infinity as a whole number"), ("are too many", "a time outside the range of int64")):  # fmt: skip
        if mark in why:
            return text
    return why


def markdown(table: Mapping[str, Mapping[str, str]]) -> str:
    """The table, its refusals numbered below."""
    notes: dict[str, int] = {}
    lines = [f"| transform | {' | '.join(TYPES)} |", f"|---|{'---|' * len(TYPES)}"]
    for transform, row in table.items():
        cells = ["=" if v == "equal" else f"= [{notes.setdefault(v, len(notes) + 1)}]" for v in row.values()]
        lines.append(f"| {transform} | {' | '.join(cells)} |")
    return (
        "\n".join([*lines, "", *(f"{number}. {text[0].upper()}{text[1:]}." for text, number in notes.items())]) + "\n"
    )


def page(text: str, table: Mapping[str, Mapping[str, str]]) -> str:
    """The page with the table as the JVM and the code have it."""
    before, _, rest = text.partition("<!-- parity -->\n")
    return f"{before}<!-- parity -->\n{markdown(table)}<!-- end -->{rest.partition('<!-- end -->')[2]}"


if __name__ == "__main__":
    one = Judge()
    found = verdicts(one)
    one.stop()
    if "--write" in sys.argv:
        PAGE.write_text(page(PAGE.read_text(), found))
    else:
        print(json.dumps(found, indent=1))
