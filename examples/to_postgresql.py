"""A topic into PostgreSQL, exactly once: a row per customer with the newest value; a null value deletes the row.

    python examples/to_postgresql.py localhost:9092 customers "host=localhost dbname=shop"

How far each partition was read stands in the database too, and changes in the transaction that changes the rows. So a record
that Kafka delivers again, after a crash or a rebalance, is skipped. The topic may grow and shrink meanwhile: a moved key's newer
records come only when its older ones are in the database and committed. Start it several times for more throughput; a process
that fails ends. To load the table anew, empty both tables and reset the group with `keyorder groups reset`.
"""

from __future__ import annotations

import signal
import sys

import psycopg
from confluent_kafka import Message
from keyorder import OrderedConsumer

TABLES = """
CREATE TABLE IF NOT EXISTS customers (customer text PRIMARY KEY, value text NOT NULL);
CREATE TABLE IF NOT EXISTS customers_read (
    topic text, partition int, next_offset bigint NOT NULL, PRIMARY KEY (topic, partition)
);
"""


def main(servers: str, topic: str, address: str) -> None:
    """Run until SIGTERM or Ctrl-C."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopped.append(received))
    reading = {
        "bootstrap.servers": servers,
        "group.id": f"{topic}-to-postgresql",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # the group commits what the database has
        "isolation.level": "read_committed",
    }
    with psycopg.connect(address, autocommit=True) as database, OrderedConsumer(reading) as consumer:
        with database.transaction():
            database.execute(
                "SELECT pg_advisory_xact_lock(20261122)"
            )  # processes that start together make tables in turn
            database.execute(TABLES)
        consumer.subscribe([topic])
        while not stopped:
            messages = consumer.consume(500, 1.0)
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(message.error())
            if messages:
                write(database, messages)
                consumer.commit()  # should it fail, the records come again and are skipped


def write(database: psycopg.Connection, messages: list[Message]) -> None:
    """Put the records that the database does not have yet into it, and how far they go; both or nothing."""
    ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
    with database.transaction():
        begins = {place: begin(database, *place) for place in sorted(ends)}
        for message in messages:
            if message.offset() >= begins[message.topic(), message.partition()]:
                put(database, (message.key() or b"").decode(), message.value())
        for (topic, partition), end in ends.items():
            database.execute(
                "UPDATE customers_read SET next_offset = greatest(next_offset, %s) WHERE (topic, partition) = (%s, %s)",
                (end, topic, partition),
            )


def begin(database: psycopg.Connection, topic: str, partition: int) -> int:
    """The first offset that the database does not have. The row is locked: a process that has lost the partition waits."""
    place = (topic, partition)
    database.execute("INSERT INTO customers_read VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", place)
    query = "SELECT next_offset FROM customers_read WHERE (topic, partition) = (%s, %s) FOR UPDATE"
    return database.execute(query, place).fetchone()[0]


def put(database: psycopg.Connection, customer: str, value: bytes | None) -> None:
    """One record."""
    if value is None:
        database.execute("DELETE FROM customers WHERE customer = %s", (customer,))
        return
    database.execute(
        "INSERT INTO customers VALUES (%s, %s) ON CONFLICT (customer) DO UPDATE SET value = excluded.value",
        (customer, value.decode()),
    )


if __name__ == "__main__":
    main(*sys.argv[1:4])
