"""A client of Spark Connect: reads and writes a topic in every way, and prints what it found as JSON.

    python spark_connect_job.py BOOTSTRAP TOPIC FOLDER

Run as a process of its own: a session is either a client's or its own, and the server starts in the client's Java machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keyorder.streaming.java import prepare_java
from keyorder.streaming.process import prepare_python


def counter() -> Any:
    """How many rows each key has had, for transformWithStateInPandas: defined within, to travel whole."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            seen = self._count.get()[0] if self._count.exists() else 0
            seen += sum(len(frame) for frame in rows)
            self._count.update((seen,))
            yield pd.DataFrame({"key": [key[0]], "count": [seen]})

        def close(self) -> None:
            pass

    return Counter()


def main(bootstrap: str, topic: str, folder: Path) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    prepare_python()
    prepare_java()
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    found: dict[str, Any] = {"session": type(spark).__module__}

    def source(reader: Any, name: str) -> Any:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "startingOffsets": "earliest"}
        return (
            reader.format("keyorder")
            .options(**options)
            .load()
            .selectExpr("string(key) as key", "string(value) as value")
        )

    def run(writer: Any, name: str) -> None:
        query = writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start()
        if not query.awaitTermination(300):
            query.stop()
            raise TimeoutError(name)

    out = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-out"}
    found["batch"] = sorted(tuple(row) for row in source(spark.read, topic).collect())
    run(source(spark.readStream, topic).writeStream.format("keyorder").options(**out), "sink")
    found["sink"] = sorted(tuple(row) for row in source(spark.read, f"{topic}-out").collect())

    def append(frame: Any, _: int) -> None:
        frame.write.format("keyorder").options(**out).mode("append").save()

    run(source(spark.readStream, topic).writeStream.foreachBatch(append), "each")
    found["foreachBatch"] = source(spark.read, f"{topic}-out").count()
    counted = (
        source(spark.readStream, topic)
        .groupBy("key")
        .transformWithStateInPandas(
            counter(), outputStructType="key string, count long", outputMode="update", timeMode="none"
        )
    )
    stored = str(folder / "counts")

    def keep(frame: Any, _: int) -> None:
        frame.write.mode("append").parquet(stored)

    run(counted.writeStream.foreachBatch(keep).outputMode("update"), "state")
    found["state"] = sorted(tuple(row) for row in spark.read.parquet(stored).collect())
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
