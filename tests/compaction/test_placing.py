"""Reading by columns: the same table and the same counts as record by record."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction import table
from keyorder.compaction.folding import Folder
from keyorder.compaction.store import VersionStore
from keyorder.compaction.strategy import Strategy, StrategyKind, encode_version
from keyorder.compaction.versions import COPY_HEADER, copied_place
from keyorder.compaction.view import CompactedView
from keyorder.connector.arrow.schema import SCHEMA, messages_of
from keyorder.connector.consuming.view import View
from keyorder.partitioner.hashing import HASHES
from keyorder.partitioner.routing import HINT_HEADER
from keyorder.partitioner.timeline import Epoch, Timeline
from support.cleaning import HELD
from support.cluster import KafkaUnderTest

# Three epochs; the last one is known only to who looks.
OLD = Timeline("t", "id", "", 1, (Epoch(0, 1), Epoch(3, 2, {0: 40}, {1: 5})))
NEW = Timeline("t", "id", "", 1, (*OLD.epochs, Epoch(4, 1, {1: 40}, {0: 80})))
STRATEGIES = [
    Strategy(),
    Strategy(StrategyKind.TIMESTAMP),
    Strategy(StrategyKind.HEADER, "v"),
    Strategy(StrategyKind.HEADER, "v", positive_only=True),
]
COPIES = st.tuples(
    st.sampled_from(["id", "other"]),
    st.sampled_from([-2, -1, 0, 3, 4, 2**31, 9999999999]),
    st.sampled_from([0, 7, 41, 90, 2**63 - 1, 2**63]),
    st.booleans(),
)


@st.composite
def rows(draw: Any) -> list[dict[str, Any]]:
    """Records of a few keys, each with headers of all kinds: versions, broken ones, hints, marks of copies."""
    found = []
    for offset in sorted(draw(st.sets(st.integers(0, 120), max_size=20))):
        value = draw(st.sampled_from([None, b"", b"v", b"w"]))
        headers: list[tuple[str, bytes | None]] = [
            (name, encode_version(version) if isinstance(version, int) else version)
            for name, version in draw(
                st.lists(
                    st.tuples(st.sampled_from(["v", "w"]), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1, b"bad", None])),
                    max_size=3,
                )
            )
        ]  # fmt: skip
        hint = draw(st.sampled_from([None, None, b"0", b"3", b"4", b"x", b"", b"99999999999"]))
        headers += [] if hint is None else [(HINT_HEADER, hint)]
        if draw(st.integers(0, 3)) == 0:
            topic_id, epoch, at, good = draw(COPIES)
            headers.append((COPY_HEADER, f"{topic_id}:{epoch}:{at}:{crc32(value or b'') + 1 - good}".encode()))
        headers = draw(st.permutations(headers))
        found.append(
            {"key": draw(st.sampled_from([None, b"", b"a", b"b", b"c"])), "value": value, "topic": "t",
             "partition": draw(st.integers(0, 2)), "offset": offset, "timestamp": draw(st.integers(-1, 3)) * 1000,
             "timestampType": 0, "headers": [{"key": n, "value": v} for n, v in headers] or None}
        )  # fmt: skip
    return found


@pytest.mark.kip("K280-08", "K280-12", "K280-13", "K280-16", "C-19")
@settings(max_examples=300, deadline=None)
@given(rows(), st.sampled_from(STRATEGIES), st.integers(0, 3), st.booleans(), st.sampled_from(list(HASHES)))
@pytest.mark.slow
def test_columns_are_folded_as_records_are(
    records: list[dict[str, Any]], strategy: Strategy, skipped: int, managed: bool, hash_name: str
) -> None:
    """The same entries and the same counts, also where a record shows that the timeline has grown."""
    batch = pa.RecordBatch.from_pylist(records, schema=SCHEMA).slice(skipped)
    old, new = (View(replace(timeline, hash=hash_name), managed) for timeline in (OLD, NEW))
    found = []
    for by_columns in (False, True):
        store = VersionStore()
        folder = Folder(store, "id", strategy, lambda: new)
        # One record at a time, since the rows of a batch are judged by one view.
        for row in range(len(batch)):
            if by_columns:
                folder.fold_columns(batch.slice(row, 1), old)
            else:
                folder.fold(messages_of(batch.slice(row, 1)), old)
        found.append((sorted(store.entries()), folder.counts))
    assert found[0] == found[1]

    at_once = [VersionStore(), VersionStore()]
    for store, by_columns in zip(at_once, (False, True), strict=True):
        folder = Folder(store, "id", strategy, lambda: new)
        folder.fold_columns(batch, new) if by_columns else folder.fold(messages_of(batch), new)
    assert sorted(at_once[0].entries()) == sorted(at_once[1].entries())


@pytest.mark.parametrize(("epoch", "offset"), [(0, 2**63), (2**31, 0), (-(2**31) - 1, 0)])
def test_a_copy_of_no_possible_place_is_none(epoch: int, offset: int) -> None:
    """A header is data from anybody: such a number would not fit into a state file."""
    headers: list[tuple[str, bytes | None]] = [(COPY_HEADER, f"id:{epoch}:{offset}:{crc32(b'v')}".encode())]
    assert copied_place(headers, "id", b"v") is None


@pytest.mark.kip("K280-08", "C-19")
def test_a_topic_read_by_columns_is_the_topic(
    kafka: KafkaUnderTest, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over growth and shrink, with foreign records, tombstones of both kinds and broken headers; then it is followed."""
    admin = TopicAdmin(kafka.client_config())
    config = {**HELD, "compaction.strategy": "header", "compaction.strategy.header": "v", "keyorder.view.age.ms": "200"}
    admin.create(topic_name, 2, initial_partition_count=1, config=config)
    chance = random.Random(5)

    def send(count: int, **options: Any) -> None:
        with OrderedProducer({**kafka.client_config(), **options}) as producer:
            for i in range(count):
                place = {"partition": chance.randrange(1)} if options else {}
                header = chance.choice([encode_version(chance.randrange(-5, 40)), b"bad", None])
                headers = [("v", header)] if chance.random() < 0.8 else None
                value = None if chance.random() < 0.2 else f"{i}"
                producer.produce(topic_name, value, f"k{chance.randrange(30)}", headers=headers, **place)
            assert producer.flush(120) == 0

    for count in (3, 1, 2):
        send(150)
        send(20, **{"keyorder.allow.explicit.partition": True})
        (admin.expand if count > admin.describe(topic_name).layout.count else admin.shrink)(topic_name, count)
    send(100)
    found = []
    for least in (1, 10**9):
        monkeypatch.setattr(table, "_BULK_RECORDS", least)
        with CompactedView(kafka.client_config(), topic_name) as view:
            view.load()
            found.append((sorted(view._store.entries()), view.counts, view.positions))
    assert found[0] == found[1]
    assert found[0][1].strays > 0
    assert found[0][1].move_tombstones > 0

    monkeypatch.setattr(table, "_BULK_RECORDS", 1)
    with CompactedView(kafka.client_config(), topic_name) as view:
        before = view.load().counts.records
        send(10)
        assert view.follow().load().counts.records >= before + 10
