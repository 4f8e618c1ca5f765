"""What a converter is, and the ones that need no format: strings and bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ..api.errors import DataError
from ..api.schema import Schema
from ..config.configdef import ConfigDef

Headers = list[tuple[str, bytes | None]]


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
    """Text in UTF-8 (org.apache.kafka.connect.storage.StringConverter); other values by their str()."""

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        return bytes(value) if isinstance(value, (bytes, bytearray)) else str(value).encode()

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        try:
            return Schema("string", True), None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"the bytes are not UTF-8: {error.reason} at {error.start}") from error


class ByteArrayConverter(Converter):
    """The bytes as they are (org.apache.kafka.connect.converters.ByteArrayConverter)."""

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            raise DataError(f"ByteArrayConverter takes bytes, not {type(value).__name__}: use another converter")
        return None if value is None else bytes(value)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        return Schema("bytes", True), data
