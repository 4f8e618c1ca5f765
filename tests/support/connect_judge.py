"""Kafka Connect's own classes as the judge: a JVM that answers what they make of an input, and values as both can read them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from keyorder.connector.connect.api.records import ConnectRecord, SinkRecord
from keyorder.connector.connect.api.schema import Schema
from keyorder.connector.local.jars import ensure_jars
from keyorder.connector.local.java import find_java
from keyorder.connector.local.repository import cache_dir
from keyorder.connector.local.versions import load_lock, parse_lock

FOLDER = Path(__file__).parents[1] / "connector" / "connect" / "jvm"
_LOCK = FOLDER / "connect-4.1.2.lock.json"
_SOURCE = FOLDER / "Judge.java"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Since 19 Java writes the shortest text of a float: older ones sometimes a longer one.
_JAVA = 21


def connect_jars() -> list[Path]:
    """Kafka Connect of one version, with all that its worker needs, verified."""
    lock = parse_lock(json.loads(_LOCK.read_text("utf-8")))
    return ensure_jars(lock, cache_dir() / f"connect-{lock.version}")


def worker_jars() -> list[Path]:
    """With the library that keeps the levels of loggers, which the worker's REST shows."""
    log4j = [jar for jar in ensure_jars(load_lock("4.1.2")) if jar.name.startswith("log4j-")]
    return [*connect_jars(), *log4j]


def class_path(jars: Sequence[Path]) -> str:
    """Without the compiler."""
    return os.pathsep.join(str(jar) for jar in jars if not jar.name.startswith("ecj-"))


def _compiled(java: Path, jars: Sequence[Path]) -> Path:
    """The judge's classes. Eclipse's compiler makes them: a runtime alone has none."""
    mark = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    folder = cache_dir() / f"connect-judge-{mark}"
    if not folder.is_dir():
        cache_dir().mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="connect-judge-", dir=cache_dir()))
        compiler = next(jar for jar in jars if jar.name.startswith("ecj-"))
        made = subprocess.run(
            [str(java), "-jar", str(compiler), "-17", "-nowarn", "-cp", class_path(jars), "-d", str(fresh), str(_SOURCE)],
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr + made.stdout
        try:
            fresh.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return folder


class Judge:
    """A JVM in UTC that answers one question at a time."""

    def __init__(self) -> None:
        java = find_java(_JAVA).executable
        jars = connect_jars()
        self._process = subprocess.Popen(
            [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US",
             "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
             "-cp", f"{_compiled(java, jars)}{os.pathsep}{class_path(jars)}", "Judge"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip

    def ask(self, **request: Any) -> dict[str, Any]:
        """{"ok": ...} or {"error": class, "message", "phase"}."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the judge has gone"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)


# -- values as both can read them ------------------------------------------------------------------------------------


def schema_document(schema: Schema | None) -> Any:
    """A schema for the judge; what comes back from it has the same form."""
    if schema is None:
        return None
    found: dict[str, Any] = {"type": schema.type, "optional": schema.optional}
    for name in ("name", "version", "doc"):
        if getattr(schema, name) is not None:
            found[name] = getattr(schema, name)
    if schema.default is not None:
        found["default"] = value_document(schema, schema.default)
    if schema.parameters:
        found["parameters"] = dict(schema.parameters)
    if schema.type == "struct":
        found["fields"] = [[f.name, schema_document(f.schema)] for f in schema.fields]
    if schema.type == "map":
        found["keys"] = schema_document(schema.keys)
    if schema.type in ("map", "array"):
        found["values"] = schema_document(schema.values)
    return found


def value_document(schema: Schema | None, value: Any) -> Any:
    """A value for the judge, tagged with its Java type."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, (date, time)):
        return {"date": milliseconds(value)}
    if schema is None:
        return _untyped(value)
    kind = schema.type
    if kind in ("float32", "float64"):
        return {kind: float_text(value, kind)}
    if kind == "int64":
        return {kind: str(value)}
    if kind == "bytes":
        return {kind: base64.b64encode(value).decode()}
    if kind == "array":
        return {kind: [value_document(schema.values, item) for item in value]}
    if kind == "map":
        return {kind: [[value_document(schema.keys, k), value_document(schema.values, v)] for k, v in value.items()]}
    if kind == "struct":
        return {kind: [[f.name, value_document(f.schema, value.get(f.name))] for f in schema.fields]}
    return {kind: value}


def _untyped(value: Any) -> Any:
    if isinstance(value, bool):
        return {"boolean": value}
    if isinstance(value, int):
        return {"int64": str(value)}
    if isinstance(value, float):
        return {"float64": float_text(value, "float64")}
    if isinstance(value, str):
        return {"string": value}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"map": [[_untyped_or_none(k), _untyped_or_none(v)] for k, v in value.items()]}
    return {"array": [_untyped_or_none(item) for item in value]}


def _untyped_or_none(value: Any) -> Any:
    return value_document(None, value)


def milliseconds(value: date | time) -> int:
    """What java.util.Date holds for a date, a time of day or a moment."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days * 86_400_000
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def float_text(value: float, kind: str) -> str:
    """As Java reads it."""
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))


def plain(document: Any, schema: Any = None) -> Any:
    """A value from either side, so that equal ones compare equal: floats as numbers; where no schema tells, one kind of int and
    one of float. Maps keep their order: it is what JSON's bytes follow.
    """
    if not isinstance(document, dict):
        return document
    ((kind, data),) = document.items()
    if kind in ("float32", "float64"):
        number = float(data.replace("Infinity", "inf"))
        if schema is not None and kind == "float32":
            number = struct.unpack("f", struct.pack("f", number))[0]
        return ("float" if schema is None else kind, repr(number))
    if kind in ("int8", "int16", "int32", "int64"):
        return ("int" if schema is None else kind, int(data))
    keys, values = (None, None) if schema is None else (schema.get("keys"), schema.get("values"))
    if kind == "array":
        return (kind, [plain(item, values) for item in data])
    if kind == "map":
        return (kind, [(plain(k, keys), plain(v, values)) for k, v in data])
    if kind == "struct":
        fields = dict(schema["fields"])
        return (kind, [(name, plain(value, fields[name])) for name, value in data])
    return (kind, data)


def plain_schema(document: Any) -> Any:
    """A schema from either side; its default as a plain value."""
    if document is None:
        return None
    found = dict(document)
    if "default" in found:
        found["default"] = plain(found["default"], document)
    if "fields" in found:
        found["fields"] = [(name, plain_schema(each)) for name, each in found["fields"]]
    for name in ("keys", "values"):
        if name in found:
            found[name] = plain_schema(found[name])
    return found


def plain_pair(pair: Any) -> Any:
    """[schema, value] from either side."""
    if pair == ["none"]:
        return None, None
    schema, value = pair
    return plain_schema(schema), plain(value, schema)


def record_document(record: ConnectRecord) -> dict[str, Any]:
    """A record for the judge."""
    return {
        "topic": record.topic,
        "partition": record.partition if isinstance(record, SinkRecord) else None,
        "offset": record.offset if isinstance(record, SinkRecord) else None,
        "timestamp": record.timestamp,
        "key_schema": schema_document(record.key_schema),
        "key": value_document(record.key_schema, record.key),
        "value_schema": schema_document(record.value_schema),
        "value": value_document(record.value_schema, record.value),
        "headers": [[h.key, schema_document(h.schema), value_document(h.schema, h.value)] for h in record.headers],
    }


def plain_record(record: ConnectRecord | None) -> Any:
    """Our record, as `plain_answer` gives the judge's."""
    if record is None:
        return None
    return {
        "topic": record.topic,
        "key": plain_pair([schema_document(record.key_schema), value_document(record.key_schema, record.key)]),
        "value": plain_pair([schema_document(record.value_schema), value_document(record.value_schema, record.value)]),
        "headers": [
            (h.key, plain_pair([schema_document(h.schema), value_document(h.schema, h.value)])) for h in record.headers
        ],
    }


def plain_answer(document: Any) -> Any:
    """The judge's record."""
    if document is None:
        return None
    return {
        "topic": document["topic"],
        "key": plain_pair(document["key"]),
        "value": plain_pair(document["value"]),
        "headers": [(key, plain_pair(pair)) for key, pair in document["headers"]],
    }
