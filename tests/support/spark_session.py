"""One Spark session for the whole run: a JVM of its own costs seconds and half a gigabyte."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from keyorder.connector.local.jars import ensure_jars
from keyorder.connector.local.repository import cache_dir
from keyorder.connector.local.versions import parse_lock
from keyorder.streaming.java import prepare_java
from pyspark.sql import SparkSession

# Spark's own Kafka package, which keyorder is compared with. `kafka` in the lock is the version of Spark.
_LOCK = Path(__file__).with_name("spark-kafka-4.2.0.lock.json")


def native_jars() -> list[Path]:
    """The jars of `format("kafka")`, fetched once and verified by checksum."""
    lock = parse_lock(json.loads(_LOCK.read_text("utf-8")))
    return ensure_jars(lock, cache_dir() / f"spark-kafka-{lock.version}")


def start_spark(folder: Path, **settings: str) -> SparkSession:
    """A local session with two cores, whose tasks are tried up to four times as on a cluster."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    prepare_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2,4]").appName("keyorder-tests")
    defaults = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "700m",
        "spark.jars": ",".join(str(jar) for jar in native_jars()),
        "spark.sql.streaming.stateStore.stateSchemaCheck": "true",
        **settings,
    }
    for name, value in defaults.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
