"""The SQL connectors on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import json
import random
import threading
import traceback
from dataclasses import replace
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from keyorder import TopicAdmin
from keyorder.connector.connect import (
    ConnectError,
    DataError,
    Field,
    Headers,
    RetriableError,
    Schema,
    SinkRecord,
    SourceRecord,
)
from keyorder.connector.connect.api.errors import BadRequestError
from keyorder.connector.connect.api.schema import DATE, TIME, TIMESTAMP, decimal_schema
from keyorder.connector.connect.connectors.sql_sink import SqlSinkTask
from keyorder.connector.connect.connectors.sql_source import SqlSourceConnector, SqlSourceTask
from keyorder.connector.connect.converters.json import JsonConverter
from support.cluster import KafkaUnderTest
from support.connect_rig import alone, committed_values, running, until, worker_settings
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


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
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
    """The task looks and finds none; two others are making one table each. What they make is what counts."""
    with postgres.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS t, t__deleted"))
    reports: list[tuple[Any, str]] = []
    sink = task(postgres.url, SimpleNamespace(report=lambda record, error: reports.append((record.offset, str(error)))))
    failed: list[Exception] = []

    def waits_for(connection: sa.Connection) -> bool:
        pid = connection.info["pid"]
        return bool(postgres.rows(f"SELECT 1 FROM pg_stat_activity WHERE {pid} = ANY(pg_blocking_pids(pid))"))

    def put() -> None:
        try:
            sink.put([record("a", {"n": 1, "more": 2}, 1), record("b", {"n": 2}, 2)])
        except Exception as error:
            failed.append(error)

    key, version = "key TEXT PRIMARY KEY", "__keyorder_version BIGINT NOT NULL"
    made = (f"CREATE TABLE t ({key}, n BIGINT, {version})", f"CREATE TABLE t__deleted ({key}, {version})")
    with postgres.engine.connect() as one, postgres.engine.connect() as two:
        others = [one, two]
        for connection, create in zip(others, made, strict=True):
            connection.info["pid"] = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
            connection.execute(sa.text(create))
        ours = threading.Thread(target=put)
        ours.start()
        while others:  # whichever it makes first
            until(lambda: any(map(waits_for, others)), "the task waits for one of them")
            (blocking,) = filter(waits_for, others)
            blocking.commit()
            others.remove(blocking)
        ours.join(120)
    assert failed == []
    assert table(postgres.url) == {"b": 2}
    assert [offset for offset, _ in reports] == [1]
    assert "more" in reports[0][1]
    sink.stop()


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("fits", "other"),
    [
        (True, "yes"),
        (True, 7),
        (1, 2**70),
        (1, "many"),
        (1, Decimal("1e30")),
        (1, True),
        (1, time(1, 2)),
        (1.5, "much"),
        (1.5, moment := datetime(2026, 11, 22, tzinfo=timezone.utc)),
        (b"x", "text"),
        (b"x", 1),
        (b"x", ["text"]),
        ("x", "lone \ud800"),
        ("x", ["lone \ud800"]),
        ("x", "nul \0"),
        (date(2026, 11, 22), "a day"),
        (moment, "a moment"),
        (moment, 5),
        (time(1, 2), "noon"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_a_value_that_its_column_does_not_take_is_reported_and_the_others_stored(
    url: str, fits: Any, other: Any
) -> None:
    """Whoever refuses it, SQLAlchemy, the driver or the database. What a database does take is stored, as SQLite does of much."""
    kind = {bool: "boolean", int: "int64", float: "float64", bytes: "bytes", str: "string"}
    schema = {date: DATE, datetime: TIMESTAMP, time: TIME}.get(type(fits)) or Schema(kind[type(fits)])
    struct = Schema("struct", fields=(Field("n", schema),))
    reported: list[int] = []
    sink = task(url, SimpleNamespace(report=lambda record, error: reported.append(record.offset)))
    sink.put([record("a", {"n": fits}, 1, value_schema=struct)])
    sink.put([record("b", {"n": other}, 2), record("c", {"n": fits}, 3)])
    sink.stop()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        stored = set(connection.execute(sa.text("SELECT key FROM t")).scalars())
    engine.dispose()
    assert {"a", "c"} <= stored
    assert reported == ([] if "b" in stored else [2])
    taken: list[tuple[Any, Any]] = [("x", ["lone \ud800"])]  # as JSON, which escapes it
    if url.startswith("sqlite"):
        taken += [(1, "many"), (1, True), ("x", "nul \0")]
    assert ("b" in stored) == ((fits, other) in taken)


@pytest.mark.parametrize(
    "name", ["", "nul \0", "lone \ud800", "n" * 10_000, "\u20ac" * 5_000], ids=lambda name: ascii(name)[:10]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_field_whose_name_no_column_can_have_is_reported(url: str, name: str, first: bool) -> None:
    """Whether it is the record that the table would be made for, or a later one."""
    reported: list[tuple[int, str]] = []
    sink = task(url, SimpleNamespace(report=lambda record, error: reported.append((record.offset, str(error)))))
    if not first:
        sink.put([record("a", {"n": 1}, 1)])
    sink.put([record("b", {"n": 1, name: 2}, 2), record("c", {"n": 3}, 3)])
    assert table(url) == ({"c": 3} if first else {"a": 1, "c": 3})
    assert [offset for offset, _ in reported] == [2]
    assert reported[0][1].encode()
    assert "rename the field" in reported[0][1]
    sink.stop()


@pytest.mark.parametrize("names", [("more", "More"), ("Key",), ("__KEYORDER_VERSION",)])
def test_fields_whose_names_sqlite_takes_for_one_are_reported(tmp_path: Path, names: tuple[str, ...]) -> None:
    """SQLite refuses such a table with the error of a database that is away; the next record's table is made."""
    reported: list[tuple[int, str]] = []
    url = f"sqlite:///{tmp_path}/db"
    sink = task(url, SimpleNamespace(report=lambda record, error: reported.append((record.offset, str(error)))))
    sink.put([record("a", {"n": 1, **dict.fromkeys(names, 2)}, 1), record("b", {"n": 3}, 2)])
    assert table(url) == {"b": 3}
    assert [offset for offset, _ in reported] == [1]
    assert "case" in reported[0][1]
    sink.stop()


@pytest.mark.slow
@pytest.mark.parametrize("reported", [True, False])
def test_a_key_that_no_index_takes_is_not_tried_again(postgres: Postgres, reported: bool) -> None:
    """PostgreSQL calls it an operational error, as it does a server that is away."""
    execute(postgres.url, "DROP TABLE IF EXISTS t, t__deleted")
    long, offsets = random.Random(1).randbytes(20_000).hex(), []
    reporter = SimpleNamespace(report=lambda record, error: offsets.append(record.offset))
    sink = task(postgres.url, reporter if reported else None)
    records = [record("a", {"n": 1}, 1), record(long, {"n": 2}, 2), record("c", {"n": 3}, 3)]
    if reported:
        sink.put(records)
        assert (table(postgres.url), offsets) == ({"a": 1, "c": 3}, [2])
    else:
        with pytest.raises(ConnectError, match="index row") as raised:
            sink.put(records)
        assert not raised.value.retriable
    sink.stop()


def test_a_value_that_is_refused_is_not_told_by_the_trace(tmp_path: Path) -> None:
    """Without a reporter the task fails, and its trace goes to REST. SQLAlchemy quotes the value that it refuses."""
    sink = task(f"sqlite:///{tmp_path}/db")
    sink.put([record("a", {"n": True}, 1)])
    with pytest.raises(ConnectError, match="the database") as raised:
        sink.put([record("b", {"n": "se" + "cret"}, 2)])
    assert "secret" not in "".join(traceback.format_exception(raised.value))
    sink.stop()


def test_what_is_reported_does_not_show_the_value(tmp_path: Path) -> None:
    """Where errors are not tolerated and a queue is named, the report ends the task, and its trace goes to REST, too."""
    reported: list[Exception] = []

    def report(_: SinkRecord, error: Exception) -> None:
        reported.append(error)
        raise ConnectError("the task ends") from error

    sink = task(f"sqlite:///{tmp_path}/db", SimpleNamespace(report=report))
    sink.put([record("a", {"n": True}, 1)])
    with pytest.raises(ConnectError, match="the task ends") as raised:
        sink.put([record("b", {"n": "se" + "cret"}, 2)])
    assert isinstance(reported[0], DataError)
    assert "secret" not in "".join(traceback.format_exception(raised.value))
    sink.stop()


@pytest.mark.parametrize("names", [("\u00c9", "\u00e9"), ("\u03a3", "\u03c3")])
def test_names_that_sqlite_keeps_apart_are_columns(tmp_path: Path, names: tuple[str, str]) -> None:
    """It folds the letters of ASCII alone."""
    sink = task(f"sqlite:///{tmp_path}/db", SimpleNamespace(report=lambda record, error: pytest.fail(str(error))))
    sink.put([record("a", {"n": 1, **dict.fromkeys(names, 2)}, 1)])
    assert table(f"sqlite:///{tmp_path}/db") == {"a": 1}
    sink.stop()


def test_a_database_that_is_away_is_tried_again(tmp_path: Path) -> None:
    """A RetriableError, which tells no statement and no value."""
    sink = task(f"sqlite:///{tmp_path}/none/db")
    with pytest.raises(RetriableError) as raised:
        sink.put([record("a", {"n": "secret"}, 1)])
    assert "secret" not in str(raised.value)


def test_a_source_waits_for_its_database(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """It runs all the while, as in Kafka Connect: errors.retry.timeout, which is 0 here, is for records."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    url = f"sqlite:///{tmp_path}/later/db"
    config = {"connector.class": "SqlSource", "connection.url": url, "tables": topic_name}
    json_plain = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
    with alone(worker_settings(kafka, tmp_path)) as worker:
        worker.create(topic_name, config | json_plain)
        running(worker, topic_name)
        metrics = worker.herder.worker.metrics
        until(
            lambda: metrics()[topic_name, 0].snapshot().get("total_retries", 0) > 1,
            lambda: f"it has polled: {worker.status(topic_name)}",
        )
        (tmp_path / "later").mkdir()
        execute(url, f'CREATE TABLE "{topic_name}" (id INTEGER PRIMARY KEY)', f'INSERT INTO "{topic_name}" VALUES (1)')
        until(
            lambda: committed_values(kafka, topic_name) == ['{"id":1}'],
            lambda: f"it is read: {worker.status(topic_name)}",
        )
        running(worker, topic_name)


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


@pytest.mark.parametrize("named", [["s"], {"s": 1}, 1, None], ids=str)
def test_offsets_of_what_is_no_table_are_refused(named: Any) -> None:
    """With what is expected: it comes from a request, and the store has tables alone."""
    with pytest.raises(BadRequestError, match='"table": T'):
        SqlSourceConnector().alter_offsets({}, [], [({"table": named}, {"incrementing": 1})])


# -- the source's types ----------------------------------------------------------------------------------------------


def source(url: str, table: str = "s", **options: str) -> SqlSourceTask:
    """A task that begins at the beginning."""
    made = SqlSourceTask()
    reader = SimpleNamespace(offset=lambda partition: None)
    made.context = SimpleNamespace(offset_storage_reader=reader, wait=lambda seconds: None)  # type: ignore[assignment]
    made.start({"connection.url": url, "tables": table, **{n.replace("_", "."): v for n, v in options.items()}})
    return made


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def polled(task: SqlSourceTask) -> list[SourceRecord]:
    """One look. Every value fits its schema, or the test fails."""
    found = task.poll() or []
    for each in found:
        assert each.value_schema is not None
        each.value_schema.check(each.value)
    return found


def fields(record: SourceRecord) -> dict[str, Schema]:
    assert record.value_schema is not None
    return {field.name: field.schema for field in record.value_schema.fields}


def optional(schema: Schema) -> Schema:
    return replace(schema, optional=True)


POSTGRES_TYPES: list[tuple[str, str, Schema, Any]] = [
    ("BOOLEAN", "true", Schema("boolean"), True),
    ("SMALLINT", "-32768", Schema("int16"), -32768),
    ("INTEGER", "2147483647", Schema("int32"), 2147483647),
    ("BIGINT", "9223372036854775807", Schema("int64"), 9223372036854775807),
    ("REAL", "1.5", Schema("float32"), 1.5),
    ("DOUBLE PRECISION", "0.1", Schema("float64"), 0.1),
    ("NUMERIC(20, 4)", "1234567890123456.7800", decimal_schema(4), Decimal("1234567890123456.7800")),
    ("NUMERIC(5)", "12345", decimal_schema(0), Decimal("12345")),
    ("NUMERIC", "'0.00000001'", Schema("string"), "0.00000001"),
    ("VARCHAR(10)", "'text'", Schema("string"), "text"),
    ("BYTEA", "'\\x00ff'", Schema("bytes"), b"\x00\xff"),
    ("DATE", "'2026-11-22'", DATE, date(2026, 11, 22)),
    ("TIME", "'01:02:03.004'", TIME, time(1, 2, 3, 4000)),
    ("TIMESTAMP", "'2026-11-22 01:02:03.004'", TIMESTAMP, datetime(2026, 11, 22, 1, 2, 3, 4000, timezone.utc)),
    ("TIMESTAMPTZ", "'2026-11-22 01:02:03+02'", TIMESTAMP, datetime(2026, 11, 21, 23, 2, 3, 0, timezone.utc)),
    ("TIMETZ", "'01:02:03+02'", Schema("string"), "01:02:03+02"),
    ("UUID", "'00000000-0000-0000-0000-0000000000ab'", Schema("string"), "00000000-0000-0000-0000-0000000000ab"),
    ("JSONB", "'{\"a\": 1.10}'", Schema("string"), '{"a": 1.10}'),
    ("INTERVAL", "'1 day 2 hours'", Schema("string"), "1 day 02:00:00"),
    ("INTEGER[]", "'{1,NULL}'", Schema("array", values=optional(Schema("int32"))), [1, None]),
    ("price_of_s", "1.50", Schema("string"), "1.50"),  # of a domain's NUMERIC the scale is not told
    ("mood_of_s", "'calm'", Schema("string"), "calm"),
]


def test_columns_of_postgresql_keep_their_types(postgres: Postgres) -> None:
    """Each type has its schema, which is optional where the column may be null; the record is named for the table."""
    columns = [f"c{i} {kind} NOT NULL, n{i} {kind}" for i, (kind, *_) in enumerate(POSTGRES_TYPES)]
    values = [f"{value}, NULL" for _, value, _, _ in POSTGRES_TYPES]
    execute(
        postgres.url,
        "DROP TABLE IF EXISTS s",
        "DROP DOMAIN IF EXISTS price_of_s",
        "DROP TYPE IF EXISTS mood_of_s",
        "CREATE DOMAIN price_of_s AS NUMERIC(8, 2)",
        "CREATE TYPE mood_of_s AS ENUM ('calm')",
        f"CREATE TABLE s (id BIGINT PRIMARY KEY, {', '.join(columns)})",
        f"INSERT INTO s VALUES (7, {', '.join(values)})",
    )
    task = source(postgres.url)
    (found,) = polled(task)
    task.stop()
    assert (found.key, found.key_schema, found.source_offset) == (7, Schema("int64"), {"incrementing": 7})
    assert found.value_schema is not None
    assert found.value_schema.name == "s"
    schemas = fields(found)
    for i, (kind, _, schema, value) in enumerate(POSTGRES_TYPES):
        assert (kind, schemas[f"c{i}"], found.value[f"c{i}"]) == (kind, schema, value)
        assert (kind, schemas[f"n{i}"], found.value[f"n{i}"]) == (kind, optional(schema), None)


def test_columns_of_sqlite_keep_their_types(tmp_path: Path) -> None:
    """SQLite has texts and numbers; the column's declared type says what they are."""
    url = f"sqlite:///{tmp_path}/db"
    execute(
        url,
        "CREATE TABLE s (id INTEGER NOT NULL PRIMARY KEY, b BOOLEAN NOT NULL, i SMALLINT, f REAL, d DECIMAL(10, 2), n NUMERIC,"
        " t TEXT, x BLOB, day DATE, at TIME, \"when\" TIMESTAMP, zoned DATETIME)",
        "INSERT INTO s VALUES (1, 1, 5000000000, 1.5, 1.1, 2.5, 'a', x'00ff', '2026-11-22', '01:02:03',"
        " '2026-11-22 01:02:03.004000', '2026-11-22 01:02:03+02:00')",
    )  # fmt: skip
    task = source(url)
    (found,) = polled(task)
    task.stop()
    utc = timezone.utc
    assert found.value == {
        "id": 1, "b": True, "i": 5_000_000_000, "f": 1.5, "d": Decimal("1.1"), "n": "2.5", "t": "a", "x": b"\x00\xff",
        "day": date(2026, 11, 22), "at": time(1, 2, 3), "when": datetime(2026, 11, 22, 1, 2, 3, 4000, utc),
        "zoned": datetime(2026, 11, 21, 23, 2, 3, 0, utc),
    }  # fmt: skip
    assert fields(found) == {
        "id": Schema("int64"), "b": Schema("boolean"), "i": optional(Schema("int64")), "f": optional(Schema("float64")),
        "d": decimal_schema(2, True), "n": Schema("string", True), "t": Schema("string", True), "x": Schema("bytes", True),
        "day": optional(DATE), "at": optional(TIME), "when": optional(TIMESTAMP), "zoned": optional(TIMESTAMP),
    }  # fmt: skip


def test_a_value_that_is_not_of_its_column_is_refused_and_not_bent(tmp_path: Path) -> None:
    """SQLite lets anything into a column. The converter refuses it, as errors.tolerance says."""
    url = f"sqlite:///{tmp_path}/db"
    execute(
        url,
        "CREATE TABLE s (id INTEGER PRIMARY KEY, day DATE, d DECIMAL(10, 2), b BOOLEAN, n INTEGER)",
        "INSERT INTO s VALUES (1, 'tomorrow', NULL, NULL, NULL), (2, NULL, 1.005, NULL, NULL), (3, NULL, NULL, 2, NULL),"
        " (4, NULL, NULL, NULL, 'many')",
    )
    task = source(url)
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)
    found = task.poll() or []
    assert len(found) == 4
    for each in found:
        with pytest.raises(DataError):
            converter.from_connect("s", each.value_schema, each.value)
    task.stop()


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("none", ["Decimal", "Decimal", "Decimal", "Decimal", "Decimal", "Decimal", "Decimal"]),
        ("precision_only", ["int8", "int16", "int32", "int64", "Decimal", "Decimal", "Decimal"]),
        ("BEST_FIT", ["int8", "int16", "int32", "int64", "Decimal", "float64", "Decimal"]),
        ("best_fit_eager_double", ["int8", "int16", "int32", "int64", "Decimal", "float64", "float64"]),
    ],
)
def test_numbers_are_mapped_as_the_setting_says(postgres: Postgres, mapping: str, expected: list[str]) -> None:
    """best_fit takes a float64 only where every number of the column survives it."""
    sizes = ["2", "4", "9", "18", "19", "15, 2", "16, 2"]
    execute(
        postgres.url,
        "DROP TABLE IF EXISTS s",
        f"CREATE TABLE s (id BIGINT PRIMARY KEY, {', '.join(f'c{i} NUMERIC({size})' for i, size in enumerate(sizes))})",
        f"INSERT INTO s VALUES (1, {', '.join(str(i) for i in range(len(sizes)))})",
    )
    task = source(postgres.url, numeric_mapping=mapping)
    (found,) = polled(task)
    task.stop()
    schemas = [fields(found)[f"c{i}"] for i in range(len(sizes))]
    assert [(schema.name or schema.type).rpartition(".")[2] for schema in schemas] == expected
    assert [found.value[f"c{i}"] for i in range(len(sizes))] == list(range(len(sizes)))


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        ("micros_long", (Schema("int64", True), 1_795_309_323_000_004)),
        ("micros_string", (Schema("string", True), "1795309323000004")),
        ("micros_iso_datetime_string", (Schema("string", True), "2026-11-22T01:02:03.000004")),
    ],
)
def test_microseconds_are_kept_where_the_setting_says_so(
    postgres: Postgres, granularity: str, expected: tuple[Schema, Any]
) -> None:
    """Connect's Timestamp has milliseconds."""
    execute(
        postgres.url,
        "DROP TABLE IF EXISTS s",
        "CREATE TABLE s (id INT PRIMARY KEY, at TIMESTAMP)",
        "INSERT INTO s VALUES (1, '2026-11-22 01:02:03.000004')",
    )
    task = source(postgres.url, timestamp_granularity=granularity)
    (found,) = polled(task)
    task.stop()
    assert (fields(found)["at"], found.value["at"]) == expected


def test_a_table_that_changes_is_read_by_its_new_columns(url: str) -> None:
    """Columns come, go and change their type, also beneath a statement that the server has prepared."""
    execute(
        url,
        "DROP TABLE IF EXISTS s",
        "CREATE TABLE s (id INTEGER PRIMARY KEY, a INTEGER)",
        "INSERT INTO s VALUES (1, 1)",
    )
    task = source(url)
    assert [r.value for r in polled(task)] == [{"id": 1, "a": 1}]
    for _ in range(8):
        assert polled(task) == []
    execute(url, "ALTER TABLE s ADD COLUMN b BOOLEAN", "INSERT INTO s VALUES (2, 2, NULL)")
    assert [r.value for r in polled(task)] == [{"id": 2, "a": 2, "b": None}]
    for _ in range(8):
        assert polled(task) == []
    execute(
        url, "ALTER TABLE s DROP COLUMN a", "ALTER TABLE s ADD COLUMN a TEXT", "INSERT INTO s VALUES (3, NULL, 'x')"
    )
    (found,) = polled(task)
    assert (found.value, fields(found)["a"]) == ({"id": 3, "b": None, "a": "x"}, Schema("string", True))
    execute(url, "ALTER TABLE s DROP COLUMN b", "INSERT INTO s VALUES (4, 'y')")
    assert [r.value for r in polled(task)] == [{"id": 4, "a": "y"}]
    task.stop()


@pytest.mark.parametrize(
    ("made", "options", "named"),
    [
        ("CREATE TABLE other (id INTEGER)", {}, "table s"),
        ("CREATE TABLE s (n INTEGER)", {}, "incrementing.column.name"),
        ("CREATE TABLE s (id INTEGER)", {"key_column_name": "k"}, "key.column.name"),
        ("CREATE TABLE s (id NUMERIC(5, 1))", {}, "whole numbers"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(url: str, made: str, options: dict[str, str], named: str) -> None:
    """A missing table, a missing column, and a counter that is no whole number."""
    execute(url, "DROP TABLE IF EXISTS s", "DROP TABLE IF EXISTS other", made)
    if "NUMERIC" in made:
        execute(url, "INSERT INTO s VALUES (1.5)")
    task = source(url, **options)
    with pytest.raises(ConnectError, match=named):
        task.poll()
    task.stop()


def test_what_the_source_reads_the_sink_stores(url: str) -> None:
    """Type for type: a table read, its records through the converter's bytes, and the same values in the sink's table."""
    execute(
        url,
        "DROP TABLE IF EXISTS s",
        "DROP TABLE IF EXISTS t",
        "DROP TABLE IF EXISTS t__deleted",
        "CREATE TABLE s (id BIGINT NOT NULL PRIMARY KEY, b BOOLEAN, f DOUBLE PRECISION, d NUMERIC(10, 2), x "
        + ("BLOB" if url.startswith("sqlite") else "BYTEA")
        + ", day DATE, at TIME, moment TIMESTAMP, t TEXT)",
        "INSERT INTO s VALUES (1, TRUE, 0.1, 12345678.91, '\\x00ff', '2026-11-22', '01:02:03', '2026-11-22 01:02:03', 'a')"
        if url.startswith("postgres")
        else "INSERT INTO s VALUES (1, 1, 0.1, 12345678.91, x'00ff', '2026-11-22', '01:02:03', '2026-11-22 01:02:03', 'a')",
        "INSERT INTO s (id) VALUES (2)",
    )
    task_in, sink, converter = source(url), task(url, pk_fields="id"), JsonConverter()
    converter.configure({}, False)
    for offset, each in enumerate(polled(task_in)):
        schema, value = converter.to_connect("s", converter.from_connect("s", each.value_schema, each.value))
        sink.put([record(each.key, value, offset, key_schema=each.key_schema, value_schema=schema)])
    sink.stop()
    task_in.stop()
    before, after = source(url), source(url, "t")
    expected, found = ([r.value for r in polled(each)] for each in (before, after))
    before.stop()
    after.stop()
    assert [{n: v for n, v in row.items() if n != "__keyorder_version"} for row in found] == [
        # The sink's Decimal column has no scale, so it is read as text.
        {**row, "d": None if row["d"] is None else format(row["d"], "f")}
        for row in expected
    ]


def test_what_a_column_cannot_hold_exactly_is_refused(url: str) -> None:
    """A text column takes digits, dates and times as text. SQLite's numbers have 15 digits: more are not rounded."""
    execute(
        url,
        "DROP TABLE IF EXISTS t",
        "DROP TABLE IF EXISTS t__deleted",
        "CREATE TABLE t (key VARCHAR PRIMARY KEY, d TEXT, day TEXT, at TEXT, moment TEXT, local TIMESTAMP,"
        " n NUMERIC(20, 4), __keyorder_version BIGINT NOT NULL)",
    )
    long = Decimal("1234567890123456.7801")
    moment = datetime(2026, 11, 22, 1, 2, 3, tzinfo=timezone.utc)
    # A session may have a time zone of its own; a TIMESTAMP column is in UTC all the same.
    sink = task(url if url.startswith("sqlite") else f"{url}&options=-c%20timezone%3DAsia/Tokyo")
    value = {"d": long, "day": moment.date(), "at": time(1, 2), "moment": moment, "local": moment, "n": Decimal("1.5")}
    sink.put([record("a", value, 1)])
    if url.startswith("sqlite"):
        with pytest.raises(DataError, match="15 digits"):
            sink.put([record("b", {"n": long}, 2)])
    else:
        sink.put([record("b", {"n": long}, 2)])
    sink.stop()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT * FROM t WHERE key = 'a'")).mappings().all()
        (n,) = connection.execute(sa.text("SELECT n FROM t WHERE key = 'b'")).scalars().all() or (None,)
    engine.dispose()
    (row,) = rows
    assert (row["d"], row["day"], row["at"]) == ("1234567890123456.7801", "2026-11-22", "01:02:00")
    assert row["moment"] == "2026-11-22T01:02:03+00:00"
    assert str(row["local"])[:19] == "2026-11-22 01:02:03"
    assert n == (None if url.startswith("sqlite") else long)


def test_a_poll_that_fails_at_a_table_has_read_none(tmp_path: Path) -> None:
    """What it had read of the tables before is polled again, since it returned nothing."""
    url = f"sqlite:///{tmp_path}/db"
    execute(url, "CREATE TABLE first (id INTEGER PRIMARY KEY)", "CREATE TABLE base (id INTEGER PRIMARY KEY)")
    execute(url, "CREATE VIEW second AS SELECT id FROM base", "INSERT INTO first VALUES (1), (2)", "DROP TABLE base")
    reading = source(url, "first,second")
    with pytest.raises(RetriableError):
        reading.poll()
    execute(url, "CREATE TABLE base (id INTEGER PRIMARY KEY)", "INSERT INTO base VALUES (7)")
    assert [(r.topic, r.value["id"]) for r in polled(reading)] == [("first", 1), ("first", 2), ("second", 7)]
    reading.stop()


def test_the_trace_of_a_failure_tells_no_value(url: str) -> None:
    """It goes to the status topic and to REST; neither the statement's values nor the server's quotes of them belong there."""
    card = "VARCHAR(40) CHECK (length(card) < 5)"
    execute(
        url,
        f"CREATE TABLE t (key VARCHAR(40) PRIMARY KEY, card {card}, __keyorder_version BIGINT NOT NULL DEFAULT -1)",
        "CREATE TABLE t__deleted (key VARCHAR(40) PRIMARY KEY, __keyorder_version BIGINT NOT NULL)",
    )
    sink, secret = task(url), "4111" + "-1111"  # the trace has the lines of this test
    with pytest.raises(ConnectError, match=r"(?i)check") as raised:
        sink.put([record("alice", {"card": secret}, 1)])
    assert secret not in "".join(traceback.format_exception(raised.value))
    sink.stop()


@pytest.mark.slow
@pytest.mark.parametrize("value", ["4111{}1111", '4111{}"1111"', "4111{}\n1111"])
def test_a_value_that_postgresql_quotes_in_its_message_is_not_told(postgres: Postgres, value: str) -> None:
    """`invalid input syntax for type integer: "..."`: what is of the wrong form stands in the first line, as it came."""
    url, secret = postgres.url, value.format("-")
    execute(
        url,
        "DROP TABLE IF EXISTS t, t__deleted",
        "CREATE TABLE t (key VARCHAR(40) PRIMARY KEY, card VARCHAR(40) CHECK (CAST(card AS INTEGER) > 0),"
        " __keyorder_version BIGINT NOT NULL DEFAULT -1)",
        "CREATE TABLE t__deleted (key VARCHAR(40) PRIMARY KEY, __keyorder_version BIGINT NOT NULL)",
    )
    sink = task(url)
    with pytest.raises(ConnectError, match="invalid input syntax for type integer") as raised:
        sink.put([record("alice", {"card": secret}, 1)])
    assert "4111-" not in "".join(traceback.format_exception(raised.value))
    sink.stop()


def test_the_trace_of_a_source_tells_no_value(tmp_path: Path) -> None:
    """The statement has the last value of the column."""
    url = f"sqlite:///{tmp_path}/db"
    execute(url, "CREATE TABLE base (id INTEGER PRIMARY KEY, n INTEGER)")
    execute(url, "CREATE VIEW s AS SELECT id, abs(n) AS n FROM base", "INSERT INTO base VALUES (41111111, 1)")
    reading = source(url)
    assert len(polled(reading)) == 1
    execute(url, f"INSERT INTO base VALUES (41111112, {-(2**63)})")
    with pytest.raises(RetriableError, match="overflow") as raised:
        reading.poll()
    assert "41111111" not in "".join(traceback.format_exception(raised.value))
    reading.stop()
