"""Connect's schemas and values in Avro's words and back, as Confluent's AvroConverter has them: logical types, unions, enums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..api.errors import DataError
from ..api.schema import (
    DATE,
    DATE_NAME,
    DECIMAL_NAME,
    TIME,
    TIME_NAME,
    TIMESTAMP,
    TIMESTAMP_NAME,
    Field,
    Schema,
    decode_logical,
    encode_logical,
    frozen,
)

_NAMESPACE, _DEFAULT_NAME = "io.confluent.connect.avro", "ConnectDefault"
UNION, ENUM = f"{_NAMESPACE}.Union", f"{_NAMESPACE}.Enum"
_PRECISION, _PRECISION_DEFAULT = "connect.decimal.precision", 64
_TO_AVRO = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double",
    "boolean": "boolean", "string": "string", "bytes": "bytes",
}  # fmt: skip
_FROM_AVRO = {
    "int": "int32", "long": "int64", "float": "float32", "double": "float64", "boolean": "boolean", "string": "string",
    "bytes": "bytes",
}  # fmt: skip
_LOGICAL = {DATE_NAME: "date", TIME_NAME: "time-millis", TIMESTAMP_NAME: "timestamp-millis"}
_CONNECT = {("int", "date"): DATE, ("int", "time-millis"): TIME, ("long", "timestamp-millis"): TIMESTAMP}


# -- schemas ---------------------------------------------------------------------------------------------------------


class AvroNames:
    """Gives each struct without a name one of its own: ConnectDefault, ConnectDefault2, ..."""

    def __init__(self) -> None:
        self._count = 0
        self._defined: dict[str, Schema] = {}

    def next(self) -> str:
        """The next name."""
        self._count += 1
        return f"{_NAMESPACE}.{_DEFAULT_NAME}{self._count if self._count > 1 else ''}"

    def defined(self, name: str, schema: Schema) -> bool:
        """Whether a record of that name stands in the schema already. Raises DataError for another one under the same name."""
        bare = replace(schema, optional=False, default=None)
        known = self._defined.setdefault(name, bare)
        if known is not bare and known != bare:
            raise DataError(f"two structs of the schema have the name {name!r} and different fields: give each its own")
        return known is not bare


def avro_of(schema: Schema, names: AvroNames | None = None) -> Any:
    """The Avro schema of a Connect schema."""
    names = names or AvroNames()
    if schema.type == "struct" and schema.name == UNION:
        made: Any = ["null"] if schema.optional else []
        return made + [avro_of(replace(f.schema, optional=False), names) for f in schema.fields]
    made = _bare(schema, names)
    if not schema.optional:
        return made
    return [made, "null"] if schema.default is not None else ["null", made]


def _bare(schema: Schema, names: AvroNames) -> Any:
    made: dict[str, Any]
    if schema.type == "struct":
        name = schema.name or names.next()
        if names.defined(name, schema):
            return name
        made = {"type": "record", "name": name, "fields": [_field(f, names) for f in schema.fields]}
    elif schema.type == "array":
        made = {"type": "array", "items": avro_of(_of(schema.values), names)}
    elif schema.type == "map":
        keys, values = _of(schema.keys), _of(schema.values)
        if keys.type == "string" and not keys.optional:
            made = {"type": "map", "values": avro_of(values, names)}
        else:
            fields = [{"name": n, "type": avro_of(s, names)} for n, s in (("key", keys), ("value", values))]
            entry = {"type": "record", "name": names.next(), "connect.internal.type": "MapEntry", "fields": fields}
            made = {"type": "array", "items": entry}
    elif ENUM in schema.parameters:
        prefix = f"{ENUM}."
        symbols = [n.removeprefix(prefix) for n in schema.parameters if n.startswith(prefix)]
        return {"type": "enum", "name": schema.parameters[ENUM], "symbols": symbols}
    else:
        made = {"type": _TO_AVRO[schema.type]}
        if schema.name == DECIMAL_NAME:
            precision = int(schema.parameters.get(_PRECISION, _PRECISION_DEFAULT))
            made |= {"logicalType": "decimal", "precision": precision, "scale": schema.scale}
        elif schema.name in _LOGICAL:
            made["logicalType"] = _LOGICAL[schema.name or ""]
        if schema.type in ("int8", "int16"):
            made["connect.type"] = schema.type
    made |= {f"connect.{n}": v for n in ("name", "version", "doc") if (v := getattr(schema, n)) is not None}
    if schema.parameters:
        made["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None and schema.type not in ("struct", "map"):
        made["connect.default"] = _default(schema, schema.default)
    return made["type"] if len(made) == 1 else made


def _field(field: Field, names: AvroNames) -> dict[str, Any]:
    made = {"name": field.name, "type": avro_of(field.schema, names)}
    if field.schema.doc is not None:
        made["doc"] = field.schema.doc
    if field.schema.default is not None:
        made["default"] = _default(field.schema, field.schema.default)
    elif field.schema.optional:
        made["default"] = None
    return made


def _default(schema: Schema, value: Any) -> Any:
    """A default as Avro's JSON has it: bytes as text of their code points."""
    return _json(to_avro(replace(schema, optional=True, default=None), value))


def _json(raw: Any) -> Any:
    if isinstance(raw, bytes):
        return raw.decode("latin-1")
    if isinstance(raw, list):
        return [_json(item) for item in raw]
    return {name: _json(item) for name, item in raw.items()} if isinstance(raw, dict) else raw


def _of(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("the schema of an array or a map does not say what it holds")
    return schema


def schema_of(avro: Any, named: dict[str, Schema] | None = None) -> Schema:
    """The Connect schema of an Avro schema as it was written. Raises DataError for a record inside of itself."""
    named = {} if named is None else named
    if isinstance(avro, list):
        return _union(avro, named)
    kind = avro["type"] if isinstance(avro, Mapping) else avro
    if isinstance(kind, (list, Mapping)):
        return schema_of(kind, named)
    document: Mapping[str, Any] = avro if isinstance(avro, Mapping) else {}
    if kind in ("record", "error"):
        return _record(document, named)
    if kind == "enum":
        name = _full_name(document)
        parameters = {ENUM: name} | {f"{ENUM}.{symbol}": symbol for symbol in document["symbols"]}
        return _keep(named, name, Schema("string", parameters=parameters))
    if kind == "array":
        items = document["items"]
        if isinstance(items, Mapping) and items.get("connect.internal.type") == "MapEntry":
            keys, values = (schema_of(f["type"], named) for f in items["fields"])
            return _described(Schema("map", keys=keys, values=values), document)
        return _described(Schema("array", values=schema_of(items, named)), document)
    if kind == "map":
        return _described(Schema("map", keys=Schema("string"), values=schema_of(document["values"], named)), document)
    if document.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        parameters = {"scale": str(document.get("scale", 0))}
        if document["precision"] != _PRECISION_DEFAULT:
            parameters[_PRECISION] = str(document["precision"])
        return _described(Schema("bytes", name=DECIMAL_NAME, version=1, parameters=parameters), document)
    if kind == "fixed":
        return _keep(named, _full_name(document), Schema("bytes", name=_full_name(document)))
    logical = _CONNECT.get((kind, str(document.get("logicalType"))))
    if logical is not None:
        return _described(logical, document)
    if kind in _FROM_AVRO:
        return _described(Schema(document.get("connect.type", _FROM_AVRO[kind])), document)
    if kind in named:
        return named[kind]
    raise DataError(f"the Avro schema holds {kind!r}, which is no type, or a record inside of itself")


def _union(branches: list[Any], named: dict[str, Schema]) -> Schema:
    rest = [branch for branch in branches if branch != "null"]
    optional = len(rest) < len(branches)
    if len(rest) == 1:
        return replace(schema_of(rest[0], named), optional=optional)
    fields = tuple(Field(branch_name(b), replace(schema_of(b, named), optional=True)) for b in rest)
    return Schema("struct", optional, UNION, fields=fields)


def branch_name(branch: Any) -> str:
    """The field of a union's struct that holds this branch."""
    if isinstance(branch, Mapping):
        return str(branch.get("name", branch["type"])).rpartition(".")[2]
    return str(branch).rpartition(".")[2]


def _record(document: Mapping[str, Any], named: dict[str, Schema]) -> Schema:
    fields = []
    for each in document["fields"]:
        schema = schema_of(each["type"], named)
        if each.get("default") is not None:
            schema = replace(schema, default=_read_default(schema, each["default"]))
        if schema.doc is None and each.get("doc") is not None:
            schema = replace(schema, doc=each["doc"])
        fields.append(Field(each["name"], schema))
    name = _full_name(document)
    given = None if name.startswith(f"{_NAMESPACE}.{_DEFAULT_NAME}") else name
    made = Schema("struct", name=given, doc=document.get("doc"), fields=tuple(fields))
    return _keep(named, name, _described(made, document))


def _read_default(schema: Schema, raw: Any) -> Any:
    """A default from Avro's JSON."""
    if raw is None:
        return None
    if schema.type == "array":
        return [_read_default(_of(schema.values), item) for item in raw]
    if schema.type == "map":
        keys, values = _of(schema.keys), _of(schema.values)
        pairs = raw.items() if isinstance(raw, Mapping) else [(e["key"], e["value"]) for e in raw]
        return {frozen(_read_default(keys, k)): _read_default(values, v) for k, v in pairs}
    if schema.type == "struct":
        return {f.name: _read_default(f.schema, raw.get(f.name)) for f in schema.fields}
    return from_avro(schema, raw.encode("latin-1") if schema.type == "bytes" else raw)


def _full_name(document: Mapping[str, Any]) -> str:
    name, space = str(document["name"]), document.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


def _keep(named: dict[str, Schema], name: str, schema: Schema) -> Schema:
    named[name] = named[name.rpartition(".")[2]] = schema
    return schema


def _described(schema: Schema, document: Mapping[str, Any]) -> Schema:
    """With what Confluent's converter keeps in properties of its own."""
    found = {
        n: document[f"connect.{n}"] for n in ("name", "version", "doc", "parameters") if f"connect.{n}" in document
    }
    schema = replace(schema, **found) if found else schema
    if "connect.default" in document:
        schema = replace(schema, default=_read_default(schema, document["connect.default"]))
    return schema


def readable(avro: Any) -> Any:
    """The Avro schema without the logical types that Connect does not have: their values are read as they are written."""
    if isinstance(avro, list):
        return [readable(branch) for branch in avro]
    if not isinstance(avro, Mapping):
        return avro
    made = {name: readable(value) if name in ("type", "items", "values") else value for name, value in avro.items()}
    if "fields" in made:
        made["fields"] = [{**field, "type": readable(field["type"])} for field in made["fields"]]
    made.pop("logicalType", None)  # Connect's own are made here, too: they are exact at any precision
    return made


# -- values ----------------------------------------------------------------------------------------------------------


def to_avro(schema: Schema, value: Any, where: str = "value") -> Any:
    """A value for fastavro, by the schema of `avro_of` without logical types. Raises DataError."""
    if value is None:
        schema.check(value, where)
        return to_avro(schema, schema.default, where) if schema.default is not None else None
    if schema.type == "struct" and schema.name == UNION:
        chosen = [f for f in schema.fields if value.get(f.name) is not None]
        if len(chosen) != 1:
            raise DataError(f"{where} is a union: exactly one of its fields must be set, not {len(chosen)}")
        raw = to_avro(chosen[0].schema, value[chosen[0].name], where)
        return (chosen[0].schema.name, raw) if chosen[0].schema.type == "struct" else raw
    if schema.name == DECIMAL_NAME:
        return encode_logical(schema, value, where)
    if schema.name in _LOGICAL:
        return encode_logical(schema, value, where)
    if schema.type == "struct":
        if not isinstance(value, Mapping):
            schema.check(value, where)
        return {f.name: to_avro(f.schema, value.get(f.name), f"{where}.{f.name}") for f in schema.fields}
    if schema.type == "array":
        schema.check(value, where)
        return [to_avro(_of(schema.values), item, f"{where}[{i}]") for i, item in enumerate(value)]
    if schema.type == "map":
        if not isinstance(value, Mapping):
            schema.check(value, where)
        keys, values = _of(schema.keys), _of(schema.values)
        pairs = [(to_avro(keys, k, f"a key of {where}"), to_avro(values, v, where)) for k, v in value.items()]
        if keys.type == "string" and not keys.optional:
            return dict(pairs)
        return [{"key": k, "value": v} for k, v in pairs]
    schema.check(value, where)
    return bytes(value) if schema.type == "bytes" else float(value) if schema.type.startswith("float") else value


def from_avro(schema: Schema, raw: Any) -> Any:
    """What fastavro has read, as the schema of `schema_of` says."""
    if raw is None:
        return None
    if schema.type == "struct" and schema.name == UNION:
        return _from_union(schema, raw)
    if schema.name == DECIMAL_NAME or schema.name in _LOGICAL:
        return decode_logical(schema, raw)
    if schema.type == "struct":
        return {f.name: from_avro(f.schema, raw.get(f.name)) for f in schema.fields}
    if schema.type == "array":
        return [from_avro(_of(schema.values), item) for item in raw]
    if schema.type == "map":
        keys, values = _of(schema.keys), _of(schema.values)
        pairs = raw.items() if isinstance(raw, Mapping) else [(e["key"], e["value"]) for e in raw]
        return {frozen(from_avro(keys, k)): from_avro(values, v) for k, v in pairs}
    return raw


def _from_union(schema: Schema, raw: Any) -> Any:
    """The struct of a union: the branch whose type the value has, records by their name."""
    if isinstance(raw, tuple):
        name = str(raw[0]).rpartition(".")[2]
        chosen = next(f for f in schema.fields if f.name == name)
        return {f.name: from_avro(f.schema, raw[1]) if f is chosen else None for f in schema.fields}
    for field in schema.fields:
        if _has_type(field.schema, raw):
            return {f.name: from_avro(f.schema, raw) if f is field else None for f in schema.fields}
    raise DataError(f"a {type(raw).__name__} is of none of the types of its Avro union")


_PYTHON = {
    "int8": int, "int16": int, "int32": int, "int64": int, "float32": float, "float64": float, "boolean": bool, "string": str,
    "bytes": bytes, "array": list, "map": (dict, list), "struct": dict,
}  # fmt: skip


def _has_type(schema: Schema, raw: Any) -> bool:
    fits = isinstance(raw, _PYTHON[schema.type])  # type: ignore[arg-type]
    if schema.type == "struct":
        return fits and set(raw) == {f.name for f in schema.fields}
    if schema.type == "int32" and fits:
        return -(2**31) <= raw < 2**31 and not isinstance(raw, bool)
    return fits and (schema.type == "boolean") == isinstance(raw, bool)
