"""Header converters. Bytes go through untouched both ways, so that what was not understood comes out as it went in."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import Any

from ..api.errors import DataError
from ..api.records import Header, Headers
from ..api.schema import Schema, infer
from .base import ByteArrayConverter, Converter, StringConverter
from .json import JsonConverter

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})")
_FLOAT = re.compile(r"-?\d+\.\d+([eE][-+]?\d+)?")


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
    """Text forms, read back by their look: numbers, booleans, JSON maps and lists, else strings; bytes that are no
    UTF-8, and text that would not be written back the same, stay as they are.
    """

    def to_bytes(self, header: Header) -> bytes | None:
        value = header.value
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return value.encode()
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise DataError(f"header {header.key!r} has no text form: {error}") from error

    def from_bytes(self, key: str, data: bytes | None) -> Header:
        if data is None:
            return Header(key, None)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Header(key, data, Schema("bytes"))
        value: Any = text
        if text in ("true", "false") or _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text) or text[:1] in ("{", "["):
            try:
                value = json.loads(text)
            except ValueError:
                value = text
        if not isinstance(value, str) and self.to_bytes(Header(key, value)) != data:
            value = text
        return Header(key, value, infer(value, optional=False))


class _ByConverter(HeaderConverter):
    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def to_bytes(self, header: Header) -> bytes | None:
        return self._converter.from_connect("", header.schema, header.value)

    def from_bytes(self, key: str, data: bytes | None) -> Header:
        schema, value = self._converter.to_connect("", data)
        return Header(key, value, schema)


HEADER_CONVERTERS = ("ByteArrayConverter", "JsonConverter", "SimpleHeaderConverter", "StringConverter")


def header_converter(name: str) -> HeaderConverter:
    """A header converter by its class name, Java's package or not. Raises KeyError."""
    short = name.rpartition(".")[2]
    if short == "SimpleHeaderConverter":
        return SimpleHeaderConverter()
    kinds: dict[str, type[Converter]] = {
        "StringConverter": StringConverter,
        "ByteArrayConverter": ByteArrayConverter,
        "JsonConverter": JsonConverter,
    }
    converter = kinds[short]()
    converter.configure({"schemas.enable": "false"} if short == "JsonConverter" else {}, is_key=False)
    return _ByConverter(converter)
