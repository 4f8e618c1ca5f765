"""A table of versions as one Parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..partitioner.errors import ConfigError
from .versions import Version

_ROWS = 20_000


def write_snapshot(path: Path, versions: Iterable[tuple[bytes, Version]], facts: Mapping[str, Any]) -> int:
    """Write `path` anew; a reader sees the old file or the new one. facts: kept in the file's metadata, as JSON.

    Returns the rows. Raises ConfigError without pyarrow, or when the file cannot be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as raised:
        raise ConfigError("snapshot", "it needs pyarrow", "install keyorder[compact]") from raised
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.binary(), nullable=False),
            ("version", pa.int64()),
            ("timestamp", pa.int64()),
            ("headers", pa.list_(header)),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("epoch", pa.int32()),
        ],
        metadata={"keyorder": json.dumps(facts)},
    )
    rows, remaining = 0, iter(versions)
    # Of this call alone: a process may write two at once, and in containers on one volume all processes are number 1.
    partial = path.with_name(f"{path.name}.{uuid4().hex}.partial")
    try:
        with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
            while page := [_row(key, version) for key, version in islice(remaining, _ROWS)]:
                writer.write_table(pa.Table.from_pylist(page, schema))
                rows += len(page)
        partial.replace(path)
    except OSError as raised:
        raise ConfigError("snapshot", f"{path} cannot be written ({raised.strerror})", "name another file") from raised
    finally:
        partial.unlink(missing_ok=True)
    return rows


def _row(key: bytes, version: Version) -> dict[str, Any]:
    headers = version.headers
    return {
        "key": key,
        "value": version.value,
        "version": version.version if version.versioned else None,
        "timestamp": version.timestamp,
        "headers": None if headers is None else [{"key": name, "value": data} for name, data in headers],
        "partition": version.partition,
        "offset": version.offset,
        "epoch": version.epoch,
    }
