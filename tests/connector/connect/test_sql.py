"""The SQL connectors on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import json
import threading
from datetime import datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder import TopicAdmin
from keyorder.connector.connect import DataError, Field, Headers, RetriableError, Schema, SinkRecord
from keyorder.connector.connect.api.schema import DATE, TIME, TIMESTAMP, decimal_schema
from keyorder.connector.connect.connectors.sql_sink import SqlSinkTask
from support.cluster import KafkaUnderTest
from support.connect_rig import alone, running, until, worker_settings
from support.postgres import Postgres

Rows = dict[str, Any]


def task(url: str, reporter: Any = None, **options: str) -> SqlSinkTask:
    made = SqlSinkTask()
    made.context = SimpleNamespace(errant_record_reporter=reporter, timeout=lambda seconds: None)  # type: ignore[assignment]
    made.start(
        {"connection.url": url, "table.name.format": "t", **{n.replace("_", "."): v for n, v in options.items()}}
    )
    return made


def record(key: Any, value: Any, offset: int, epoch: int = 0, **more: Any) -> SinkRecord:
    return SinkRecord(topic="t", key=key, value=value, offset=offset, epoch=epoch, raw_key=str(key).encode(), **more)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/db"
    postgres: Postgres = request.getfixturevalue("postgres")
    with postgres.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS t, t__deleted"))
    return postgres.url


def table(url: str) -> Rows:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT key, n FROM t")).all() if sa.inspect(engine).has_table("t") else []
    engine.dispose()
    return {row[0]: row[1] for row in rows}


def test_newer_versions_win_and_older_ones_change_nothing(url: str) -> None:
    """Across epochs an offset alone would say otherwise; deletes hold against older writes too."""
    sink = task(url)
    sink.put([record("a", {"n": 1}, 100), record("b", {"n": 1}, 5)])
    sink.put([record("a", {"n": 2}, 3, epoch=1)])  # moved: a lower offset at a newer home
    assert table(url) == {"a": 2, "b": 1}
    sink.put([record("a", {"n": 9}, 101), record("a", {"n": 9}, 2, epoch=1), record("a", {"n": 9}, 3, epoch=1)])
    assert table(url) == {"a": 2, "b": 1}
    sink.put([record("a", None, 4, epoch=1)])
    sink.put([record("a", {"n": 1}, 100), record("a", {"n": 2}, 3, epoch=1)])
    assert table(url) == {"b": 1}
    sink.put([record("a", {"n": 3}, 5, epoch=1), record("a", None, 4, epoch=1)])
    assert table(url) == {"a": 3, "b": 1}
    sink.stop()


def test_a_deletion_may_come_first(url: str) -> None:
    """The table is made in full when a value comes."""
    sink = task(url)
    sink.put([record("a", None, 4)])
    sink.put([record("a", {"n": 1}, 3), record("b", {"n": 2}, 5)])
    assert table(url) == {"b": 2}
    sink.stop()


def test_tables_that_others_make_meanwhile(postgres: Postgres) -> None:
    """The task looks and finds none; two others then make one table each. What they made is what counts."""
    with postgres.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS t, t__deleted"))
    reports: list[tuple[Any, str]] = []
    sink = task(postgres.url, SimpleNamespace(report=lambda record, error: reports.append((record.offset, str(error)))))
    failed: list[Exception] = []

    def waiting() -> int:
        return len(postgres.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))

    def put() -> None:
        try:
            sink.put([record("a", {"n": 1, "more": 2}, 1), record("b", {"n": 2}, 2)])
        except Exception as error:
            failed.append(error)

    key, version = "key TEXT PRIMARY KEY", "__keyorder_version BIGINT NOT NULL"
    with postgres.engine.connect() as one, postgres.engine.connect() as two:
        one.execute(sa.text(f"CREATE TABLE t__deleted ({key}, {version})"))
        ours = threading.Thread(target=put)
        ours.start()
        until(lambda: waiting() == 1, "the task waits for the first one")
        create = sa.text(f"CREATE TABLE t ({key}, n BIGINT, {version})")
        theirs = threading.Thread(target=two.execute, args=(create,))
        theirs.start()  # it may have to wait until the task has failed
        until(lambda: waiting() == 2 or not theirs.is_alive(), "the second one has begun")
        one.commit()
        theirs.join(30)
        until(lambda: waiting() == 1, "the task waits for the second one")
        two.commit()
        ours.join(30)
    assert failed == []
    assert table(postgres.url) == {"b": 2}
    assert [offset for offset, _ in reports] == [1]
    assert "more" in reports[0][1]
    sink.stop()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_replay_of_a_history_ends_in_its_last_state(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Suffixes are delivered again, whole histories come late: the rows are those of the truth."""
    url = f"sqlite:///{tmp_path_factory.mktemp('replay')}/db"
    history = [
        record(
            data.draw(st.sampled_from("abc")),
            data.draw(st.none() | st.integers(0, 9).map(lambda n: {"n": n})),
            i,
            i // 4,
        )
        for i in range(data.draw(st.integers(1, 12)))
    ]
    sink = task(url)
    sink.put(history)
    for _ in range(3):
        start = data.draw(st.integers(0, len(history)))
        sink.put(history[start : data.draw(st.integers(start, len(history)))])
    truth: Rows = {}
    for r in history:
        truth.pop(r.key, None)
        if r.value is not None:
            truth[r.key] = r.value["n"]
    assert table(url) == truth
    sink.stop()


def test_versions_from_a_header(url: str) -> None:
    """And a record without one is a DataError that names the header."""
    sink = task(url, version_mode="header", version_header="v")
    sink.put(
        [
            record("a", {"n": 1}, 1, headers=Headers().add("v", 7)),
            record("a", {"n": 2}, 2, headers=Headers().add("v", 6)),
        ]
    )
    assert table(url) == {"a": 1}
    with pytest.raises(DataError, match="'v'"):
        sink.put([record("a", {"n": 1}, 3)])
    sink.stop()


def test_a_record_that_does_not_fit_is_reported_and_the_others_stored(url: str) -> None:
    """No key, an unknown field; each within its own savepoint."""
    reports: list[tuple[Any, str]] = []
    reporter = SimpleNamespace(report=lambda record, error: reports.append((record.offset, str(error))))
    sink = task(url, reporter)
    sink.put(
        [
            record("a", {"n": 1}, 1),
            record(None, {"n": 1}, 2),
            record("b", {"n": 1, "new": 2}, 3),
            record("c", {"n": 3}, 4),
        ]
    )
    assert table(url) == {"a": 1, "c": 3}
    assert [offset for offset, _ in reports] == [2, 3]
    assert "new" in reports[1][1]
    sink.stop()


def test_a_database_that_is_away_is_tried_again(tmp_path: Path) -> None:
    """A RetriableError, which tells no statement and no value."""
    sink = task(f"sqlite:///{tmp_path}/none/db")
    with pytest.raises(RetriableError) as raised:
        sink.put([record("a", {"n": "secret"}, 1)])
    assert "secret" not in str(raised.value)


def test_rows_go_through_kafka_into_postgresql(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, postgres: Postgres
) -> None:
    """SQLite polled, a topic that grows meanwhile, upserts in PostgreSQL by two tasks; the server crashes once."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2)
    source = sa.create_engine(f"sqlite:///{tmp_path}/source")
    name = topic_name.replace("-", "_").lower()
    with source.begin() as connection:
        connection.execute(sa.text(f'CREATE TABLE "{topic_name}" (id INTEGER PRIMARY KEY, k TEXT, n INTEGER)'))

    def insert(first: int, last: int) -> None:
        with source.begin() as connection:
            for i in range(first, last):
                connection.execute(sa.text(f"INSERT INTO \"{topic_name}\" VALUES ({i}, 'k{i % 20}', {i})"))

    json_plain = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(
            f"{topic_name}-in",
            {
                "connector.class": "SqlSource",
                "connection.url": f"sqlite:///{tmp_path}/source",
                "tables": topic_name,
                "key.column.name": "k",
                "poll.interval.ms": "50",
                **json_plain,
            },
        )
        worker.create(
            f"{topic_name}-out",
            {
                "connector.class": "SqlSink",
                "topics": topic_name,
                "tasks.max": "2",
                "connection.url": postgres.url,
                "table.name.format": name,
                "retry.backoff.ms": "100",
                **json_plain,
            },
        )
        insert(0, 200)
        until(lambda: len(postgres.rows(f"SELECT key FROM {name}")) == 20, "rows are there")
        admin.expand(topic_name, 5)
        insert(200, 300)
        postgres.restart()
        insert(300, 400)
        truth = {(f"k{i % 20}", i) for i in range(380, 400)}

        def reached() -> bool:
            try:
                return {*postgres.rows(f"SELECT key, n FROM {name}")} == truth
            except sa.exc.OperationalError:
                return False  # our own connection was one that the crash ended

        until(
            reached, lambda: f"{sorted(postgres.rows(f'SELECT * FROM {name}'))}, {worker.offsets(f'{topic_name}-out')}"
        )
        running(worker, f"{topic_name}-out", 2)
        assert "hidden" not in json.dumps(worker.config(f"{topic_name}-out"))


def test_logical_types_become_columns_of_their_own(url: str) -> None:
    """A date is a DATE, a Decimal a NUMERIC; what lies inside of a list is text in its JSON."""
    fields = {"day": DATE, "at": TIME, "when": TIMESTAMP, "price": decimal_schema(2)}
    schema = Schema(
        "struct",
        fields=(*(Field(name, each) for name, each in fields.items()), Field("days", Schema("array", values=DATE))),
    )
    when = datetime(2026, 11, 22, 1, 2, 3, tzinfo=timezone.utc)
    value = {"day": when.date(), "at": time(1, 2, 3), "when": when, "price": Decimal("1.50"), "days": [when.date()]}
    sink = task(url)
    sink.put([record("a", value, 1, value_schema=schema)])
    sink.stop()
    engine = sa.create_engine(url)
    types = {column["name"]: type(column["type"]).__mro__ for column in sa.inspect(engine).get_columns("t")}
    assert all(
        kind in types[name]
        for name, kind in (("day", sa.Date), ("at", sa.Time), ("when", sa.DateTime), ("price", sa.Numeric))
    )
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT days FROM t")).scalar() == '["2026-11-22"]'
    engine.dispose()
