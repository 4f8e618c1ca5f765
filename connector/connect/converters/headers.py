"""Header converters: SimpleHeaderConverter, and every converter of values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..api.records import Header, Headers
from ..api.text import parse_text, to_text
from .base import Converter


class HeaderConverter(ABC):
    """Turns one header's value into bytes and back."""

    @abstractmethod
    def to_bytes(self, header: Header) -> bytes | None:
        """The bytes. Raises DataError."""

    @abstractmethod
    def from_bytes(self, key: str, data: bytes | None) -> Header:
        """The header. Raises DataError."""

    def to_kafka(self, headers: Headers) -> list[tuple[str, bytes | None]]:
        """All headers, in order."""
        return [(header.key, self.to_bytes(header)) for header in headers]

    def to_connect(self, pairs: Any) -> Headers:
        """All headers, in order."""
        return Headers(
            self.from_bytes(key, value.encode() if isinstance(value, str) else value) for key, value in pairs or ()
        )


class SimpleHeaderConverter(HeaderConverter):
    """Text forms, read back by their look as Kafka Connect does: 007 is the number 7, and is written as 7.

    Two things are kept that the JVM changes: bytes that are no UTF-8 are read as bytes, and bytes that come without a schema
    are written as they are (with one they become base64), so that a header that was only copied stays as it was.
    """

    def to_bytes(self, header: Header) -> bytes | None:
        value = header.value
        if value is None:
            return None
        if header.schema is None and isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        return to_text(header.schema, value).encode()

    def from_bytes(self, key: str, data: bytes | None) -> Header:
        if data is None:
            return Header(key, None)
        try:
            schema, value = parse_text(data.decode())
        except UnicodeDecodeError:
            return Header(key, data, None)
        return Header(key, value, schema)


class ByConverter(HeaderConverter):
    """Any converter of values, for headers."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def to_bytes(self, header: Header) -> bytes | None:
        return self._converter.from_connect("", header.schema, header.value)

    def from_bytes(self, key: str, data: bytes | None) -> Header:
        schema, value = self._converter.to_connect("", data)
        return Header(key, value, schema)
