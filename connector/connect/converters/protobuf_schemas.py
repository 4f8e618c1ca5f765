"""Between the text of a .proto file and Connect's schemas: what of proto3 has an equal there; all else is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..api.errors import DataError
from ..api.schema import DATE, DATE_NAME, DECIMAL_NAME, TIME, TIME_NAME, TIMESTAMP, TIMESTAMP_NAME, Field, Schema

# Connect's type of each scalar of proto3. A uint64 above int64 has no equal; it is refused where it is read.
SCALARS = {
    "int32": "int32", "sint32": "int32", "sfixed32": "int32", "uint32": "int64", "fixed32": "int64",
    "int64": "int64", "sint64": "int64", "sfixed64": "int64", "uint64": "int64", "fixed64": "int64",
    "float": "float32", "double": "float64", "bool": "boolean", "string": "string", "bytes": "bytes",
}  # fmt: skip
_WRITTEN = {
    "int8": "int32", "int16": "int32", "int32": "int32", "int64": "int64", "float32": "float", "float64": "double",
    "boolean": "bool", "string": "string", "bytes": "bytes",
}  # fmt: skip
# Messages of Google's that are values: Connect's schema, and the file that has them.
LOGICAL = {
    "google.protobuf.Timestamp": (TIMESTAMP, "google/protobuf/timestamp.proto"),
    "google.type.Date": (DATE, "google/type/date.proto"),
    "google.type.TimeOfDay": (TIME, "google/type/timeofday.proto"),
}
_LOGICAL_OF = {
    TIMESTAMP_NAME: "google.protobuf.Timestamp",
    DATE_NAME: "google.type.Date",
    TIME_NAME: "google.type.TimeOfDay",
}
_NUMBER_KEYS = frozenset(SCALARS) - {"float", "double", "bytes"}
_TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[\w.+-]+|\S""", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass
class ProtoField:
    """A field. type: a scalar, the full name of a message or an enum, or "map". present: whether absence is told from zero."""

    name: str
    number: int
    type: str
    repeated: bool = False
    present: bool = False
    key: ProtoField | None = None
    value: ProtoField | None = None


@dataclass
class Message:
    """A message; nested ones are in their order, which the wire format counts by."""

    name: str
    fields: list[ProtoField] = field(default_factory=list)
    nested: list[Message] = field(default_factory=list)


@dataclass
class ProtoFile:
    """A file: its messages in their order, all messages and enums by full name."""

    messages: list[Message] = field(default_factory=list)
    by_name: dict[str, Message] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)

    def at(self, path: list[int]) -> Message:
        """The message that indexes name, each below the last. Raises DataError."""
        found, among = None, self.messages
        for index in path:
            if not 0 <= index < len(among):
                raise DataError(f"the schema has no message at {path}")
            found = among[index]
            among = found.nested
        if found is None:
            raise DataError("the bytes name no message of their schema")
        return found


class _Parser:
    """Reads one file. Options are passed over: none changes the wire format of what is supported."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = [word for word in _TOKEN.findall(text) if not word.startswith(("//", "/*"))]
        self._at = 0
        self.file = ProtoFile()

    def _next(self) -> str:
        if self._at >= len(self._words):
            raise DataError("the Protobuf schema ends too early")
        self._at += 1
        return self._words[self._at - 1]

    def _expect(self, word: str) -> None:
        found = self._next()
        if found != word:
            raise DataError(f"the Protobuf schema has {found!r} where {word!r} is expected")

    def _past(self, end: str) -> None:
        """Behind `end`, over whole brackets."""
        depth = 0
        while True:
            word = self._next()
            if word == end and not depth:
                return
            depth += (word in "{[(") - (word in ")]}")

    def parse(self) -> ProtoFile:
        package = syntax = ""
        while self._at < len(self._words):
            word = self._next()
            if word == "syntax":
                self._expect("=")
                syntax = self._next()[1:-1]
                self._expect(";")
            elif word == "package":
                package = self._next() + "."
                self._expect(";")
            elif word in ("import", "option"):
                self._past(";")
            elif word == "message":
                self.file.messages.append(self._message(package))
            elif word == "enum":
                self._enum(package)
            elif word in ("service", "extend"):
                self._next()
                self._expect("{")
                self._past("}")
            elif word != ";":
                raise DataError(f"{word!r} in a Protobuf schema is not supported")
        if syntax != "proto3":  # a file that names none is proto2, whose absent fields may have defaults
            raise DataError(f"only proto3 is supported, not {syntax or 'proto2'}")
        for name, message in self.file.by_name.items():
            for each in message.fields:
                self._resolve(each, name)
        return self.file

    def _message(self, scope: str) -> Message:
        made = Message(scope + self._next())
        self.file.by_name[made.name] = made
        self._expect("{")
        self._body(made, False)
        return made

    def _body(self, made: Message, one_of: bool) -> None:
        while True:
            word = self._next()
            if word == "}":
                return
            if word == "message":
                made.nested.append(self._message(f"{made.name}."))
            elif word == "enum":
                self._enum(f"{made.name}.")
            elif word == "oneof":
                self._next()
                self._expect("{")
                self._body(made, True)
            elif word in ("option", "reserved", "extensions"):
                self._past(";")
            elif word in ("required", "group", "extend"):
                raise DataError(f"{word!r} in a Protobuf schema is not supported")
            elif word != ";":
                made.fields.append(self._field(word, one_of))

    def _field(self, word: str, one_of: bool) -> ProtoField:
        label = word if word in ("optional", "repeated") else ""
        kind = self._next() if label else word
        key = value = None
        if kind == "map":
            self._expect("<")
            key = ProtoField("key", 1, self._next())
            self._expect(",")
            value = ProtoField("value", 2, self._next())
            self._expect(">")
            if key.type not in _NUMBER_KEYS:
                raise DataError(f"a map's key of type {key.type} is not supported")
        name = self._next()
        self._expect("=")
        number = int(self._next(), 0)
        self._past(";")
        return ProtoField(name, number, kind, label == "repeated", one_of or label == "optional", key, value)

    def _enum(self, scope: str) -> None:
        values = self.file.enums.setdefault(scope + self._next(), {})
        self._expect("{")
        while True:
            word = self._next()
            if word == "}":
                return
            if word in ("option", "reserved"):
                self._past(";")
            elif word != ";":
                self._expect("=")
                values.setdefault(int(self._next(), 0), word)
                self._past(";")

    def _resolve(self, each: ProtoField, scope: str) -> None:
        """From a name as it was written to the full name: inner scopes first."""
        if each.type == "map":
            assert each.value is not None
            self._resolve(each.value, scope)
            return
        if each.type in SCALARS:
            return
        name = each.type
        if name.startswith("."):
            candidates = [name[1:]]
        else:
            parts = scope.split(".")
            candidates = [".".join([*parts[:n], name]) for n in range(len(parts), -1, -1)]
        for candidate in candidates:
            if candidate in self.file.by_name or candidate in self.file.enums or candidate in LOGICAL:
                each.type = candidate
                return
        raise DataError(f"type {name!r} of field {each.name!r} is not in the schema: references are not supported")


def parsed(text: str) -> ProtoFile:
    """A .proto file. Raises DataError for what is not supported, by name."""
    try:
        return _Parser(text).parse()
    except ValueError as error:
        raise DataError(f"the Protobuf schema cannot be read: {error}") from error


def schema_of(file: ProtoFile, message: Message, optional: bool = False, outer: tuple[str, ...] = ()) -> Schema:
    """Connect's schema of a message. Fields that may be absent are optional; an enum is the name of its value."""
    if message.name in outer:
        raise DataError(f"message {message.name} holds itself: Connect's schemas have an end")
    inside = (*outer, message.name)
    fields = tuple(Field(each.name, _field_schema(file, each, inside)) for each in message.fields)
    return Schema("struct", optional, name=message.name, fields=fields)


def _field_schema(file: ProtoFile, each: ProtoField, outer: tuple[str, ...]) -> Schema:
    if each.type == "map":
        assert each.key is not None
        assert each.value is not None
        return Schema("map", keys=Schema(SCALARS[each.key.type]), values=_single(file, each.value, outer))
    single = _single(file, each, outer)
    if each.repeated:
        return Schema("array", values=single)
    return replace(single, optional=each.present or each.type in LOGICAL or each.type in file.by_name)


def _single(file: ProtoFile, each: ProtoField, outer: tuple[str, ...]) -> Schema:
    if each.type in SCALARS:
        return Schema(SCALARS[each.type])
    if each.type in LOGICAL:
        return LOGICAL[each.type][0]
    if each.type in file.enums:
        return Schema("string")
    return schema_of(file, file.by_name[each.type], outer=outer)


# -- from Connect ----------------------------------------------------------------------------------------------------


def proto_of(schema: Schema) -> str:
    """A .proto file of one message for a struct's schema, the fields numbered in their order. Raises DataError."""
    if schema.type != "struct":
        raise DataError(f"Protobuf needs a struct, not {schema.type}: wrap it, by HoistField for example")
    package, _, name = (schema.name or "ConnectDefault").rpartition(".")
    imports: dict[str, None] = {}
    body = "\n".join(_message(schema, _checked(name), imports, ""))
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    return "\n".join([*head, *(f'import "{path}";' for path in imports), "", body, ""])


def _message(schema: Schema, name: str, imports: dict[str, None], indent: str) -> Iterator[str]:
    yield f"{indent}message {name} {{"
    for number, each in enumerate(schema.fields, 1):
        inner: list[tuple[str, Schema]] = []
        kind = _type(each.schema, _checked(each.name), imports, inner)
        for nested, nested_schema in inner:
            yield from _message(nested_schema, nested, imports, f"{indent}  ")
        yield f"{indent}  {kind} {each.name} = {number};"
    yield f"{indent}}}"


def _type(schema: Schema, name: str, imports: dict[str, None], inner: list[tuple[str, Schema]]) -> str:
    if schema.default is not None:
        raise DataError(f"field {name} has a default, which proto3 has no word for")
    if schema.type in ("array", "map") and schema.optional:
        raise DataError(f"field {name} is an optional {schema.type}: Protobuf does not tell null from an empty one")
    if schema.type == "array":
        return f"repeated {_item(schema.values, name, imports, inner)}"
    if schema.type == "map":
        keys = _item(schema.keys, name, imports, inner)
        if keys not in _NUMBER_KEYS:
            raise DataError(f"field {name} is a map with keys of type {keys}, which Protobuf has not")
        return f"map<{keys}, {_item(schema.values, name, imports, inner)}>"
    kind = _single_type(schema, name, imports, inner)
    return f"optional {kind}" if schema.optional and kind in SCALARS else kind


def _item(schema: Schema | None, name: str, imports: dict[str, None], inner: list[tuple[str, Schema]]) -> str:
    if schema is None or schema.type in ("array", "map") or schema.optional or schema.default is not None:
        raise DataError(f"what {name} holds is an array, a map or optional, which Protobuf has not there")
    return _single_type(schema, name, imports, inner)


def _single_type(schema: Schema, name: str, imports: dict[str, None], inner: list[tuple[str, Schema]]) -> str:
    if schema.name == DECIMAL_NAME:
        raise DataError(f"field {name} is a Decimal, which Protobuf has not: cast it to a string")
    if schema.name in _LOGICAL_OF:
        found = _LOGICAL_OF[schema.name]
        imports[LOGICAL[found][1]] = None
        # With the dot it is Google's, whatever this file's own package holds.
        return f".{found}"
    if schema.type == "struct":
        nested = f"{name[0].upper()}{name[1:]}Value"
        inner.append((nested, schema))
        return nested
    return _WRITTEN[schema.type]


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DataError(f"{name!r} is no name in Protobuf: rename it, by ReplaceField for example")
    return name


def numbered(fields: list[ProtoField]) -> Mapping[int, ProtoField]:
    """By number."""
    return {each.number: each for each in fields}
