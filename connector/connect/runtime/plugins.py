"""Plugins by name: the built-in ones, those of installed packages, and those that the worker's settings allow.

An installed package offers plugins by entry points: `keyorder.connectors`, `keyorder.transforms`, `keyorder.predicates`,
`keyorder.converters`; the folders of `plugin.path` are searched for them, too. No other code can be named from outside: a
configuration that came by REST runs nothing new.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ...._version import __version__
from ....partitioner.errors import ConfigError
from ..api.connector import Connector
from ..api.errors import NotFoundError
from ..config.version_ranges import fits, latest
from ..converters.base import Converter
from ..transforms.base import HalfTransformation, Predicate, Transformation

_LOG = logging.getLogger("keyorder.connect.settings")
_HERE = __package__.rpartition(".")[0]
# Name: module below connect. Imported when called for: a connector brings the libraries of its other side.
_CONNECTORS = {
    "FileStreamSourceConnector": "connectors.file",
    "FileStreamSinkConnector": "connectors.file",
    "MirrorConnector": "connectors.mirror",
    "ParquetSinkConnector": "connectors.parquet",
    "SqlSinkConnector": "connectors.sql_sink",
    "SqlSourceConnector": "connectors.sql_source",
}
_TRANSFORMS = {
    "Cast": "types",
    "DropHeaders": "routing",
    "ExtractField": "fields",
    "Filter": "routing",
    "Flatten": "fields",
    "HeaderFrom": "routing",
    "HoistField": "fields",
    "InsertField": "fields",
    "InsertHeader": "routing",
    "MaskField": "masking",
    "RegexRouter": "routing",
    "ReplaceField": "fields",
    "SetSchemaMetadata": "types",
    "TimestampConverter": "times",
    "TimestampRouter": "times",
    "ValueToKey": "fields",
}
_PREDICATES = ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
_CONVERTERS = {
    "StringConverter": "base",
    "ByteArrayConverter": "base",
    "BooleanConverter": "base",
    "DoubleConverter": "base",
    "FloatConverter": "base",
    "IntegerConverter": "base",
    "LongConverter": "base",
    "ShortConverter": "base",
    "JsonConverter": "json",
    "AvroConverter": "avro",
    "JsonSchemaConverter": "json_schema",
    "ProtobufConverter": "protobuf",
}
SIMPLE_HEADERS = "SimpleHeaderConverter"
# The Kafka Connect whose REST, converters and transforms these are.
KAFKA_VERSION = "4.1.2"
_JAVA_PACKAGES = {
    "transforms": "org.apache.kafka.connect.transforms",
    "predicates": "org.apache.kafka.connect.transforms.predicates",
    "converters": "org.apache.kafka.connect.converters",
}
_JAVA_CLASSES = {
    "FileStreamSourceConnector": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "FileStreamSinkConnector": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "StringConverter": "org.apache.kafka.connect.storage.StringConverter",
    "SimpleHeaderConverter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "JsonConverter": "org.apache.kafka.connect.json.JsonConverter",
    "AvroConverter": "io.confluent.connect.avro.AvroConverter",
    "JsonSchemaConverter": "io.confluent.connect.json.JsonSchemaConverter",
    "ProtobufConverter": "io.confluent.connect.protobuf.ProtobufConverter",
}
_WORDS = {"transforms": "transformation", "predicates": "predicate", "converters": "converter"}
_KINDS: dict[str, type] = {
    "connectors": Connector,
    "transforms": Transformation,
    "predicates": Predicate,
    "converters": Converter,
}


@dataclass(frozen=True)
class PluginInfo:
    """One plugin, as GET /connector-plugins lists it."""

    name: str
    kind: str
    version: str

    def json(self) -> dict[str, str]:
        """The REST's object."""
        return {"class": self.name, "type": self.kind, "version": self.version}


class Plugins:
    """The table of plugins. classes, folders: what the worker's `plugin.classes` and `plugin.path` add."""

    def __init__(self, classes: Sequence[str] = (), folders: Sequence[str] = ()) -> None:
        add_folders(folders)
        self._allowed: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
        for word in classes:
            module, _, name = word.partition(":")
            try:
                found = getattr(import_module(module), name)
            except (ImportError, AttributeError) as error:
                raise ConfigError(
                    "plugin.classes", f"{word!r}: {error}", "write module:Class of an installed module"
                ) from error
            kind = next((k for k, base in _KINDS.items() if isinstance(found, type) and issubclass(found, base)), None)
            if kind is None:
                raise ConfigError("plugin.classes", f"{word!r} is no plugin", "derive it from a connector, for example")
            self._allowed[kind][name] = found
            self._allowed[kind][f"{module}.{name}"] = found

    @cached_property
    def _installed(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for kind in _KINDS:
            points = entry_points(group=f"keyorder.{kind}")
            found[kind] = {point.name: point for point in points}
            found[kind].update({point.value.replace(":", "."): point for point in points})
        return found

    def connector(self, name: str) -> type[Connector]:
        """A connector's class by name: short, with or without `Connector`, or with its package. Raises NotFoundError."""
        found: type[Connector] = self._find("connectors", name, {n: f"{m}:{n}" for n, m in _CONNECTORS.items()})
        return found

    def transform(self, name: str) -> type[Transformation]:
        """A transform's class; `Name$Key` and `Name$Value` name the halves. Raises NotFoundError."""
        bare, _, half = name.partition("$")
        kind: type[Transformation] = self._find(
            "transforms", bare, {n: f"transforms.{m}:{n}" for n, m in _TRANSFORMS.items()}
        )
        if issubclass(kind, HalfTransformation):
            if half not in ("Key", "Value"):
                raise NotFoundError(f"transform {name!r} works on one half: write {bare}$Key or {bare}$Value")
            return type(f"{kind.__name__}${half}", (kind,), {"on_key": half == "Key", "__doc__": kind.__doc__})
        if half:
            raise NotFoundError(f"transform {name!r} has no halves: write {bare}")
        return kind

    def predicate(self, name: str) -> type[Predicate]:
        """A predicate's class. Raises NotFoundError."""
        found: type[Predicate] = self._find("predicates", name, {n: f"transforms.predicates:{n}" for n in _PREDICATES})
        return found

    def converter(self, name: str) -> type[Converter]:
        """A converter's class. Raises NotFoundError."""
        found: type[Converter] = self._find(
            "converters", name, {n: f"converters.{m}:{n}" for n, m in _CONVERTERS.items()}
        )
        return found

    def header_converters(self) -> list[str]:
        """The names of all header converters: the simple one, and every converter."""
        return [SIMPLE_HEADERS, *self.names("converters")]

    def _find(self, kind: str, name: str, built_in: dict[str, str]) -> Any:
        for known in (self._allowed[kind], self._installed[kind]):
            if name in known:
                found = known[name]
                try:
                    return found if isinstance(found, type) else found.load()
                except Exception as error:  # whatever its module raises
                    raise NotFoundError(f"plugin {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
        # Java's package names are understood, so that a configuration of Kafka Connect's own plugins works as it stands.
        # Those of other packages are other plugins: io.debezium.transforms.Filter filters by something else.
        package, _, short = name.rpartition(".")
        for candidate in (short, f"{short}Connector", *([] if package else [f"{name}Converter"])):
            module, _, attribute = built_in.get(candidate, "").partition(":")
            if module and package in ("", _java_name(kind, candidate).rpartition(".")[0], f"{_HERE}.{module}"):
                try:
                    return getattr(import_module(f"{_HERE}.{module}"), attribute)
                except ImportError as error:
                    raise NotFoundError(
                        f"{candidate} needs {error.name}, which is not installed: pip install 'keyorder[connect]'"
                    ) from error
        raise NotFoundError(f"there is no plugin {name!r} among the {kind}: known are {', '.join(self.names(kind))}")

    def names(self, kind: str) -> list[str]:
        """The names of all plugins of a kind."""
        built_in = {"connectors": _CONNECTORS, "transforms": _TRANSFORMS, "converters": _CONVERTERS}
        own = list(built_in.get(kind, _PREDICATES))
        more = [name for table in (self._allowed[kind], self._installed[kind]) for name in table]
        return sorted({*own, *more})

    def listed(self, connectors_only: bool = True) -> list[PluginInfo]:
        """GET /connector-plugins: classes by their full names, Kafka's own under Java's."""
        found: dict[tuple[str, str], PluginInfo] = {}
        for name in self.names("connectors"):
            try:
                kind = self.connector(name)
            except (NotFoundError, ImportError):
                continue  # what it needs is not installed
            full = full_name(kind)
            found[kind.kind, full] = PluginInfo(full, kind.kind, self.version("connectors", name))
        if not connectors_only:
            for group, word in _WORDS.items():
                for full in self.full_names(group):
                    with suppress(NotFoundError):
                        found[word, full] = PluginInfo(full, word, self.version(group, full))
            for full in (_JAVA_CLASSES[SIMPLE_HEADERS], *self.full_names("converters")):
                with suppress(NotFoundError):
                    found["header_converter", full] = PluginInfo(
                        full, "header_converter", self.version("converters", full)
                    )
        return sorted(found.values(), key=lambda info: (info.kind, info.name))

    def version(self, group: str, name: str) -> str:
        """A plugin's version; Kafka's for what is Kafka's own. Raises NotFoundError."""
        if group == "converters" and is_simple(name):
            return KAFKA_VERSION
        kind = self._of(group, name)
        if full_name(kind).startswith("org.apache.kafka."):
            return KAFKA_VERSION
        return __version__ if kind.__module__.startswith(_HERE) else str(getattr(kind, "version", "unknown"))

    def shown(self, group: str, name: str) -> str:
        """A plugin's class in full, by any of its names. Raises NotFoundError."""
        if group == "converters" and is_simple(name):
            return _JAVA_CLASSES[SIMPLE_HEADERS]
        full = full_name(self._of(group, name))
        half = name.partition("$")[2]
        return f"{full}${half}" if half and "$" not in full else full

    def _of(self, group: str, name: str) -> type:
        finders: dict[str, Callable[[str], type]] = {
            "connectors": self.connector,
            "transforms": self.transform,
            "predicates": self.predicate,
            "converters": self.converter,
        }
        return finders[group](name)

    def full_names(self, group: str) -> list[str]:
        """Of a kind's plugins; both halves of a transform that has them."""
        built_in: dict[str, Any] = {"transforms": _TRANSFORMS, "converters": _CONVERTERS, "predicates": _PREDICATES}
        found = []
        for name in self.names(group):
            full = _java_name(group, name) if name in built_in[group] else name
            found += [f"{full}$Key", f"{full}$Value"] if group == "transforms" and self._has_halves(name) else [full]
        return found

    def _has_halves(self, name: str) -> bool:
        try:
            return issubclass(self.transform(f"{name}$Key"), HalfTransformation)
        except NotFoundError:
            return False


def is_simple(name: str) -> bool:
    """Whether a class is the simple header converter."""
    return name in (SIMPLE_HEADERS, _JAVA_CLASSES[SIMPLE_HEADERS])


def version_problem(wanted: str | None, there: str) -> str:
    """What is wrong with a version, or a range of them, that is asked for; "" if the one that is there will do."""
    if latest(wanted):
        return ""
    try:
        if fits(wanted or "", there):
            return ""
    except ValueError as error:
        return f"{wanted!r} is no version: {error}"
    return f"version {wanted!r} is not here: leave it out, or give {there}"


def _java_name(kind: str, name: str) -> str:
    return _JAVA_CLASSES.get(name) or f"{_JAVA_PACKAGES.get(kind, '')}.{name}"


def add_folders(folders: Sequence[str]) -> None:
    """Let Python find what is installed in these folders, or in folders right below them; behind all that is there already.

    Java's jars have folders like these: one without Python packages, or that is not there, is named in the log. Raises
    ConfigError for a text that is no path.
    """
    for folder in map(Path, folders):
        try:
            found = [each for each in (folder, *sorted(folder.glob("*/"))) if any(each.glob("*.dist-info"))]
        except (OSError, ValueError) as error:
            raise ConfigError("plugin.path", f"it cannot be read ({type(error).__name__})", "name folders") from None
        if not found:
            _LOG.warning("plugin.path: there is no Python package in %s", folder)
        for each in found:
            if str(each) not in sys.path:
                sys.path.append(str(each))


def full_name(kind: type) -> str:
    """A plugin's class as the REST names it: Java's name for Kafka's own."""
    own = kind.__mro__[1] if "$" in kind.__name__ else kind  # a half is a class made of the whole
    name, module = kind.__name__, own.__module__
    if module.startswith(_HERE):
        if own.__name__ in _JAVA_CLASSES:
            return _JAVA_CLASSES[own.__name__]
        for group, base in _KINDS.items():
            if group != "connectors" and issubclass(own, base):
                return f"{_JAVA_PACKAGES[group]}.{name}"
    return f"{module}.{name}"
