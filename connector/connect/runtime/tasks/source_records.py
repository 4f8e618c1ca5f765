"""From what a source task has polled to what is sent: transforms, then converters."""

from __future__ import annotations

from typing import Any

from ...api.records import SourceRecord
from ..pipeline import Chain, Converters
from .tolerance import Stage, Tolerance

# The record as the transforms left it, key, value, headers; None where a transform has dropped it.
Made = tuple[SourceRecord, bytes | None, bytes | None, Any] | None


class SourceWriter:
    """Makes bytes of records. Raises FailedOperation where a step fails."""

    def __init__(self, chain: Chain, converters: Converters, tolerance: Tolerance, where: str) -> None:
        self._chain, self._converters, self._tolerance, self._where = chain, converters, tolerance, where

    def made(self, record: SourceRecord) -> Made:
        """One record."""
        run, c, where = self._tolerance.run, self._converters, f"a record of {self._where}"
        changed = run(Stage.TRANSFORMATION, self._chain.executing, where, lambda: self._chain.apply(record))
        if changed is None:
            return None
        key = run(
            Stage.KEY_CONVERTER,
            type(c.key).__name__,
            where,
            lambda: c.key.from_connect(changed.topic, changed.key_schema, changed.key),
        )
        value = run(
            Stage.VALUE_CONVERTER,
            type(c.value).__name__,
            where,
            lambda: c.value.from_connect(changed.topic, changed.value_schema, changed.value),
        )
        headers = run(
            Stage.HEADER_CONVERTER, type(c.header).__name__, where, lambda: c.header.to_kafka(changed.headers)
        )
        return changed, key, value, headers
