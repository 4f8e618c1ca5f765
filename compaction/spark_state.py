"""The state of streaming compaction: the highest rank per key, and a row out whenever it is superseded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

_RANK = StructType(
    [
        StructField("known", BooleanType()),
        StructField("version", LongType()),
        StructField("epoch", IntegerType()),
        StructField("offset", LongType()),
    ]
)


class _Highest(StatefulProcessor):
    """Per key: the rank of the highest version so far, kept for ever. It is also the floor under a deleted key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._best = handle.getValueState("best", _RANK)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        best = max(rows, key=_rank)
        known = self._best.get()
        if known is None or _rank(best) > tuple(known):
            self._best.update(_rank(best))
            yield Row(**best["row"])  # a nested row arrives as a dict

    def close(self) -> None:
        """Nothing is held."""


def superseding(rows: DataFrame, columns: StructType) -> DataFrame:
    """Of a stream with `key`, `row` (the columns to put out) and the four parts of a rank: the rows that supersede."""
    # Not "Update", though a key may have several rows: a sink written in Python knows no such mode.
    return rows.groupBy("key").transformWithState(
        statefulProcessor=_Highest(), outputStructType=columns, outputMode="Append", timeMode="None"
    )


def _rank(row: Row) -> tuple[bool, int, int, int]:
    return row["known"], row["version"], row["epoch"], row["offset"]
