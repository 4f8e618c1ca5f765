"""Where a field is: by its name (V1), or by a path of names with dots between (V2, KIP-821)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.errors import DataError
from ..api.schema import Field, Schema
from .base import field_value

_CLOSING = re.compile(r"`(?=\.|$)")


class FieldPath:
    """One field. Raises ConfigError for a path whose backticks do not pair."""

    def __init__(self, setting: str, text: str, nested: bool) -> None:
        self.text = text
        self.steps = _steps(setting, text) if nested else (text,)

    def field(self, schema: Schema) -> Field | None:
        """The field in a struct's schema, None if there is none. Raises DataError where the path meets what has no fields."""
        for step in self.steps[:-1]:
            inner = self._of(schema, step)
            if inner is None:
                return None
            schema = inner.schema
        return self._of(schema, self.steps[-1])

    @staticmethod
    def _of(schema: Schema, name: str) -> Field | None:
        if schema.type != "struct":
            raise DataError(f"a field {name!r} is looked for in a value of type {schema.type}, which has no fields")
        return next((f for f in schema.fields if f.name == name), None)

    def value(self, schema: Schema | None, data: Mapping[str, Any], defaults: bool) -> Any:
        """The field's value, None where the path ends at a null."""
        current: Any = data
        for i, step in enumerate(self.steps):
            if schema is None:
                current = current.get(step)
            else:
                field = self._of(schema, step)
                last = i == len(self.steps) - 1
                current = None if field is None else field_value(field, current, defaults or not last)
                schema = None if field is None else field.schema
            if current is None:
                return None
            if i < len(self.steps) - 1 and not isinstance(current, Mapping):
                raise DataError(f"{step!r} of the path {self.text!r} is {type(current).__name__}, which has no fields")
        return current


def _steps(setting: str, text: str) -> tuple[str, ...]:
    if not text:
        raise ConfigError(setting, "an empty path", "name the field")
    steps: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "`":
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            steps.append(text[at:end])
            at = end + 1
            continue
        start, name = at + 1, ""
        found = _CLOSING.search(text, start)
        while found is not None and text[found.start() - 1] == "\\" and found.end() < len(text):
            name += f"{text[start : found.start() - 1]}`"
            start = found.end()
            found = _CLOSING.search(text, start)
        if found is None or text[found.start() - 1] == "\\":
            raise ConfigError(
                setting, f"the backtick at position {at} of {text!r} is not closed", "write \\` for one that is meant"
            )
        steps.append(name + text[start : found.start()])
        at = found.end() + 1
    if text.endswith("."):
        steps.append("")
    return tuple(steps)
