"""A Spark session that has both formats: keyorder's, and Spark's own for Kafka."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keyorder.connector.local.jars import ensure_jars
from keyorder.connector.local.repository import cache_dir
from keyorder.connector.local.versions import parse_lock

# Spark's own Kafka package, as the tests have it. `kafka` in the lock is the version of Spark.
_LOCK = Path(__file__).parents[1] / "tests" / "support" / "spark-kafka-4.2.0.lock.json"


def native_jars() -> list[Path]:
    """The jars of `format("kafka")`, fetched once and verified by checksum."""
    lock = parse_lock(json.loads(_LOCK.read_text("utf-8")))
    return ensure_jars(lock, cache_dir() / f"spark-kafka-{lock.version}")


@contextmanager
def spark_session(cores: int = 2) -> Iterator[Any]:
    """A session in a Java machine of its own; a process has only one at a time."""
    from keyorder.streaming.data_source import KeyorderDataSource
    from keyorder.streaming.java import prepare_java
    from keyorder.streaming.process import prepare_python
    from pyspark.sql import SparkSession

    prepare_python()
    prepare_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="keyorder-bench-spark-") as folder:
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.sql.shuffle.partitions": str(cores),
            "spark.jars": ",".join(str(jar) for jar in native_jars()),
            "spark.log.level": "ERROR",
        }
        builder = SparkSession.builder.master(f"local[{cores}]").appName("keyorder-bench")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.dataSource.register(KeyorderDataSource)
        try:
            yield session
        finally:
            session.stop()
