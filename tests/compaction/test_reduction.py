"""Reading by columns: the same table and the same counts as record by record."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction import table
from keyorder.compaction.reduction import reduce_batch
from keyorder.compaction.strategy import ABSENT, Strategy, StrategyKind, encode_version
from keyorder.compaction.view import CompactedView
from keyorder.connector.arrow.schema import SCHEMA
from keyorder.partitioner.routing import HINT_HEADER
from support.cleaning import HELD
from support.cluster import KafkaUnderTest

VERSIONS = st.one_of(
    st.none(), st.just(b"bad"), st.integers(-2, 2).map(encode_version), st.just(encode_version(-(2**63)))
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, b"", b"a", b"b"]),
        st.integers(0, 2),
        st.integers(-1, 3),
        st.one_of(st.none(), st.lists(st.tuples(st.sampled_from(["v", "w", HINT_HEADER]), VERSIONS), max_size=3)),
    ),
    max_size=15,
)
STRATEGIES = [
    Strategy(),
    Strategy(StrategyKind.TIMESTAMP),
    Strategy(StrategyKind.HEADER, "v"),
    Strategy(StrategyKind.HEADER, "v", positive_only=True),
]


@pytest.mark.kip("K280-08", "K280-12", "K280-13", "K280-16")
@settings(max_examples=150, deadline=None)
@given(ROWS, st.sampled_from(STRATEGIES), st.integers(0, 3))
def test_a_batch_is_reduced_as_a_dumb_fold_would(rows: list[Any], strategy: Strategy, skipped: int) -> None:
    """Per key and partition the highest version and the newest row; rows without a key or with our headers are in none."""
    records = [
        {"key": key, "partition": p, "offset": i, "timestamp": ms * 1000, "timestampType": 0, "value": b"v", "topic": "t",
         "headers": None if headers is None else [{"key": n, "value": v} for n, v in headers]}
        for i, (key, p, ms, headers) in enumerate(rows)
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(records, schema=SCHEMA).slice(skipped)
    reduced = reduce_batch(batch, strategy)

    expected: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
    special = []
    for row, (key, p, ms, headers) in enumerate(rows[skipped:]):
        number = strategy.version(0, ms, headers)
        assert (int(reduced.version[row]) if reduced.known[row] else ABSENT) == number
        special.append(any(name == HINT_HEADER for name, _ in headers or ()))
        if key is not None and not special[-1]:
            expected.setdefault((key, p), []).append((number, row))
    assert reduced.special.tolist() == special
    best = {pair: max(all_)[1] for pair, all_ in expected.items()}
    pairs = list(zip(reduced.keys, reduced.partitions, strict=True))
    assert dict(zip(pairs, reduced.best.tolist(), strict=True)) == best
    assert dict(zip(pairs, reduced.last.tolist(), strict=True)) == {
        pair: all_[-1][1] for pair, all_ in expected.items()
    }
    members = {pair: [row for row, of in enumerate(reduced.group) if of == i] for i, pair in enumerate(pairs)}
    assert members == {pair: [row for _, row in all_] for pair, all_ in expected.items()}


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
            assert producer.flush(30) == 0

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
