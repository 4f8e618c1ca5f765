"""Reads a topic with keyorder and writes what it read to another, while both may grow and shrink.

    PYTHONPATH=keyorder.zip PYSPARK_PYTHON=... spark-submit --master ... --py-files keyorder.zip \\
        pipeline.py BOOTSTRAP_SERVERS FROM_TOPIC TO_TOPIC CHECKPOINT_FOLDER

Runs until it is killed, which loses and doubles nothing; with --available-now until it has read what is there now.
"""

from __future__ import annotations

import sys

from keyorder.streaming.data_source import KeyorderDataSource
from pyspark.sql import SparkSession


def main(servers: str, source: str, target: str, checkpoint: str, *options: str) -> None:
    """No shuffle in between: all rows of a key that a batch has are in one task, in their order."""
    spark = SparkSession.builder.appName("keyorder-pipeline").getOrCreate()
    # Spark looks for installed packages in the executors' Python, and does not look into what was sent along.
    spark.dataSource.register(KeyorderDataSource)
    rows = (
        spark.readStream.format("keyorder")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        rows.select("key", "value")
        .writeStream.format("keyorder")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("keyorder.sink.exactly.once", "true")
        .option("checkpointLocation", checkpoint)
    )
    if "--available-now" in options:
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    writer.trigger(processingTime="200 milliseconds").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
