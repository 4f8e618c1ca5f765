"""What clients read and wrote before topics had a hash of their own, as it stood then: never to be changed with the product."""

from __future__ import annotations

import io
from typing import Any

import fastavro

CUTS = {"type": "map", "values": "long"}
GROUPS = {"type": "array", "items": "string"}


def record(name: str, **fields: Any) -> dict[str, Any]:
    """An Avro record of these fields."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


EPOCH = record("keyorder.epoch", number="int", count="int", ends=CUTS, begins=CUTS, committed_at_ms="long")
SLICE = record("keyorder.slice", partition="int", first="int", last="int")
CHANGE = record(
    "keyorder.change", epoch="int", count="int", phase="string", attempt="int", immediate="boolean", groups=GROUPS,
    slice=["null", SLICE],
)  # fmt: skip
DRAIN = record(
    "keyorder.drain", partition="int", epoch="int", upto="long", mode="int", immediate="boolean", groups=GROUPS,
    emptied="boolean",
)  # fmt: skip
MORE = record("keyorder.change_more", delay_ms=["null", "long"], forced="boolean", deadline_ms="long")
PURGE = record(
    "keyorder.purge", partition="int", delay_ms=["null", "long"], forced="boolean", tries="int", error="string"
)
OLDER = record(
    "keyorder.timeline", topic="string", topic_id="string", cluster_id="string", initial="int",
    epochs={"type": "array", "items": EPOCH}, last_number="int", ordered="boolean", view_age_ms="int",
    settings={"type": "map", "values": "string"}, change=["null", CHANGE], drains={"type": "array", "items": DRAIN},
    purged=CUTS, change_more=["null", MORE], purges={"type": "array", "items": PURGE}, held_ms=CUTS,
)  # fmt: skip


class Refused(Exception):
    """An older client stops here: "upgrade keyorder here before going on"."""


def older_client_reads(data: bytes) -> dict[str, Any]:
    """A client's rule before: its own major version alone, newer minor versions as far as it knows them."""
    assert data[:3] == b"KO\x01"
    if data[3] != 1:
        raise Refused
    fields = fastavro.schemaless_reader(io.BytesIO(data[5:]), OLDER)  # type: ignore[call-arg]
    assert isinstance(fields, dict)
    return fields


def older_client_writes(fields: dict[str, Any]) -> bytes:
    """As it wrote a timeline."""
    out = io.BytesIO()
    out.write(b"KO\x01\x01\x01")
    fastavro.schemaless_writer(out, OLDER, fields)
    return out.getvalue()
