"""One Spark session for the whole run: a JVM of its own costs seconds and half a gigabyte."""

from __future__ import annotations

import os
from pathlib import Path

from keyorder.benchmarks.spark_session import native_jars
from keyorder.streaming.java import prepare_java
from keyorder.streaming.process import prepare_python
from pyspark.sql import SparkSession


def start_spark(folder: Path, **settings: str) -> SparkSession:
    """A local session with two cores, whose tasks are tried up to four times as on a cluster."""
    prepare_python()
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
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.jars": ",".join(str(jar) for jar in native_jars()),
        "spark.sql.streaming.stateStore.stateSchemaCheck": "true",
        **settings,
    }
    for name, value in defaults.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
