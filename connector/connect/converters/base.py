"""What a converter is, and the ones that need no format: text, bytes, numbers, booleans."""

from __future__ import annotations

import codecs
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.schema import Schema
from ..api.text import java_string
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type, Width

Headers = list[tuple[str, bytes | None]]
# Character sets that leave the order of bytes open. Java writes the high byte first: UTF-16 behind a mark, but not an empty text;
# UTF-32 without one. It reads either order behind a mark. (codec, mark that is written, marks that are read)
_HIGH_FIRST = {
    "utf-16": ("utf-16-be", codecs.BOM_UTF16_BE, (codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)),
    "utf-32": ("utf-32-be", b"", (codecs.BOM_UTF32_BE, codecs.BOM_UTF32_LE)),
}


class Converter(ABC):
    """Turns (schema, value) into bytes and back. One instance serves one task, for keys or for values."""

    is_key: bool = False

    @classmethod
    def config(cls) -> ConfigDef:
        """The settings below `key.converter.` or `value.converter.`."""
        return ConfigDef()

    def configure(self, config: Mapping[str, str], is_key: bool) -> None:
        """Called once. Raises ConfigError."""
        self.is_key = is_key
        self.options = type(self).config().parse(config)

    @abstractmethod
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes of a value. Raises DataError; RetriableError when something else is away for a moment."""

    @abstractmethod
    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The value of the bytes, with its schema if the format has one. Raises as `from_connect`."""


class StringConverter(Converter):
    """Text (org.apache.kafka.connect.storage.StringConverter); other values by their text in Java, bytes as they are."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "converter.encoding",
            Type.STRING,
            "UTF-8",
            Importance.HIGH,
            "The character set, by its name.",
            width=Width.MEDIUM,
            display_name="Encoding",
        )

    def configure(self, config: Mapping[str, str], is_key: bool) -> None:
        super().configure(config, is_key)
        name = self.options["converter.encoding"]
        try:
            self._charset = codecs.lookup(name).name
            "".encode(self._charset)
        except LookupError:
            raise ConfigError("converter.encoding", f"{name!r} is no character set", "use UTF-8, for example") from None

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        text = value if isinstance(value, str) else java_string(schema, value)
        try:
            if self._charset in _HIGH_FIRST:
                charset, mark, _ = _HIGH_FIRST[self._charset]
                return mark + text.encode(charset) if text else b""
            return text.encode(self._charset)
        except UnicodeEncodeError as error:
            raise DataError(
                f"the text cannot be written in {self._charset}: {error.reason} at {error.start}"
            ) from error

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return Schema("string", True), None
        charset = self._charset
        if charset in _HIGH_FIRST and not data.startswith(_HIGH_FIRST[charset][2]):
            charset = _HIGH_FIRST[charset][0]
        try:
            return Schema("string", True), data.decode(charset)
        except UnicodeDecodeError as error:
            raise DataError(f"the bytes are not {self._charset}: {error.reason} at {error.start}") from error


class ByteArrayConverter(Converter):
    """The bytes as they are (org.apache.kafka.connect.converters.ByteArrayConverter)."""

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type != "bytes":
            raise DataError(f"ByteArrayConverter takes bytes, not {schema.type}: use another converter")
        if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            raise DataError(f"ByteArrayConverter takes bytes, not {type(value).__name__}: use another converter")
        return None if value is None else bytes(value)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        return Schema("bytes", True), data


class _FixedConverter(Converter):
    """One type in a fixed number of bytes, the highest first; null as null."""

    kind: ClassVar[str]
    packing: ClassVar[struct.Struct]

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        name = type(self).__name__
        if schema is not None and schema.type != self.kind:
            raise DataError(f"{name} takes {self.kind}, not {schema.type}: use another converter")
        if value is None:
            return None
        Schema(self.kind).check(value)
        return self.packing.pack(value)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        schema = Schema(self.kind, True)
        if data is None:
            return schema, None
        if len(data) != self.packing.size:
            raise DataError(f"{type(self).__name__} reads {self.packing.size} bytes, and there are {len(data)}")
        return schema, self.packing.unpack(data)[0]


class ShortConverter(_FixedConverter):
    """int16 (org.apache.kafka.connect.converters.ShortConverter)."""

    kind, packing = "int16", struct.Struct(">h")


class IntegerConverter(_FixedConverter):
    """int32 (org.apache.kafka.connect.converters.IntegerConverter)."""

    kind, packing = "int32", struct.Struct(">i")


class LongConverter(_FixedConverter):
    """int64 (org.apache.kafka.connect.converters.LongConverter)."""

    kind, packing = "int64", struct.Struct(">q")


class FloatConverter(_FixedConverter):
    """float32 (org.apache.kafka.connect.converters.FloatConverter)."""

    kind, packing = "float32", struct.Struct(">f")


class DoubleConverter(_FixedConverter):
    """float64 (org.apache.kafka.connect.converters.DoubleConverter)."""

    kind, packing = "float64", struct.Struct(">d")


class BooleanConverter(_FixedConverter):
    """boolean (org.apache.kafka.connect.converters.BooleanConverter): one byte, 1 or 0."""

    kind, packing = "boolean", struct.Struct(">?")

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is not None and data not in (b"\x00", b"\x01"):
            raise DataError("BooleanConverter reads one byte, 1 or 0")
        return super().to_connect(topic, data)
