"""Reads a topic with keyorder and writes what it read to another, while both may grow and shrink.

    spark-submit --master ... --py-files keyorder.zip --conf spark.pyspark.python=... \\
        pipeline.py BOOTSTRAP_SERVERS FROM_TOPIC TO_TOPIC CHECKPOINT_FOLDER

Ends when standard input does, or at once with everything that is there now: --available-now.
"""

from __future__ import annotations

import sys
import threading

from pyspark.sql import SparkSession


def main(servers: str, source: str, target: str, checkpoint: str, *options: str) -> None:
    """No shuffle in between: all rows of a key that a batch has are in one task, in their order."""
    spark = SparkSession.builder.appName("keyorder-pipeline").getOrCreate()
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
    query = writer.trigger(processingTime="200 milliseconds").start()
    asked = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), asked.set()), daemon=True).start()
    while not query.awaitTermination(0.2):
        for progress in query.recentProgress[-1:]:
            print(f"batch {progress['batchId']}: {progress['numInputRows']} rows", flush=True)
        if asked.is_set():
            query.stop()
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
