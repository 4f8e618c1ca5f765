"""Spark's own Kafka suites by test name, and where each is shown here: the table of docs/spark-parity.md is made of it.

A test here says with `@pytest.mark.scala(suite, name, ...)` which of Spark's it stands for. The names are those of Spark's
test sources; what stands behind a name is its reason why it cannot be shown, or None.

    python tests/support/spark_suites.py --write    makes the page, as `make docs` does
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark-parity.md"

_CONTINUOUS = "the continuous trigger is not for sources written in Python"
_METRICS = "calls a method of Spark's own source with offsets that are missing"
_NEWER = "newer than Spark 4.2, whose own source does not have it"
_JVM = "about classes of Spark's own source"
_INITIAL = "the start of a first batch is in the offset log here, not in a file of its own (`sources/0/0`)"
_NO_GROUP = "no group is joined: offsets are asked for without one, as by Spark's own source by default"

SUITES: dict[str, dict[str, str | None]] = {
    "KafkaRelationSuite": {
        "explicit earliest to latest offsets": None,
        "default starting and ending offsets": None,
        "explicit offsets": None,
        "default starting and ending offsets with headers": None,
        "timestamp provided for starting and ending": None,
        "timestamp provided for starting, offset provided for ending": None,
        "timestamp provided for ending, offset provided for starting": None,
        "timestamp provided for starting, ending not provided": None,
        "timestamp provided for ending, starting not provided": None,
        "global timestamp provided for starting and ending": None,
        "no matched offset for timestamp - startingOffsets": None,
        "preferences on offset related options": None,
        "no matched offset for timestamp - endingOffsets": None,
        "reuse same dataframe in query": None,
        "test late binding start offsets": None,
        "bad batch query options": None,
        "read Kafka transactional messages: read_committed": None,
        "read Kafka transactional messages: read_uncommitted": None,
        "SPARK-30656: minPartitions": None,
        "topic-partition for start offset and end offset must match": None,
        "unresolved start offset greater than end offset": None,
        "resolved start offset greater than end offset (without latest)": None,
        "resolved start offset greater than end offset (with latest)": None,
        "V1 Source is used when set through SQLConf": _JVM,
        "V2 Source is used when set through SQLConf": _JVM,
    },
    "KafkaSinkSuite": {
        "streaming - write to kafka with topic field": None,
        "streaming - write w/o topic field, with topic option": None,
        "streaming - topic field and topic option": None,
        "streaming - write data with bad schema": None,
        "streaming - write data with valid schema but wrong types": None,
        "streaming - write to non-existing topic": None,
        "streaming - exception on config serializer": None,
        "streaming - sink progress is produced": None,
        "generic - write big data with small producer buffer": None,
        "batch - write to kafka": None,
        "batch - partition column and partitioner priorities": None,
        "batch - null topic field value, and no topic option": None,
        "batch - unsupported save modes": None,
        "SPARK-20496: batch - enforce analyzed plans": None,
    },
    "KafkaDontFailOnDataLossSuite": {
        "failOnDataLoss=false should not return duplicated records: microbatch v1": _JVM,
        "failOnDataLoss=false should not return duplicated records: microbatch v2": None,
        "failOnDataLoss=false should not return duplicated records: continuous processing": _CONTINUOUS,
        "failOnDataLoss=false should not return duplicated records: batch v1": _JVM,
        "failOnDataLoss=false should not return duplicated records: batch v2": None,
        "stress test for failOnDataLoss=false": None,
    },
    "KafkaOffsetReaderSuite": {
        "isolationLevel must give back default isolation level when not set": None,
        "isolationLevel must give back READ_UNCOMMITTED when set": None,
        "isolationLevel must give back READ_COMMITTED when set": None,
        "isolationLevel must throw exception when invalid isolation level set": None,
        "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using specific offsets": None,
        "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using special offsets": None,
        "SPARK-48383: START_OFFSET_DOES_NOT_MATCH_ASSIGNED error class": None,
        "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - multiple topic partitions": None,
        "SPARK-30656: getOffsetRangesFromResolvedOffsets": None,
        "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED error class": None,
    },
    "ConsumerStrategySuite": {
        "createAdmin must create admin properly": _JVM,
        "AssignStrategy.assignedTopicPartitions must give back all assigned": None,
        "AssignStrategy.assignedTopicPartitions must skip invalid partitions": None,
        "SubscribeStrategy.assignedTopicPartitions must give back all assigned": None,
        "SubscribePatternStrategy.assignedTopicPartitions must give back all assigned": None,
    },
    "KafkaMicroBatchSourceSuite": {
        "async progress tracking": None,
        "Trigger.AvailableNow": None,
        "Query with Trigger.AvailableNow should throw error when topic partitions got unavailable during subsequent batches": None,  # noqa: E501
        "Query with Trigger.AvailableNow should throw error when offset(s) in planned topic partitions got unavailable during subsequent batches": None,  # noqa: E501
        "(de)serialization of initial offsets": None,
        "SPARK-26718 Rate limit set to Long.Max should not overflow integer during end offset calculation": None,
        "maxOffsetsPerTrigger": None,
        "minOffsetsPerTrigger": None,
        "compositeReadLimit": None,
        "input row metrics": None,
        "subscribing topic by pattern with topic deletions": None,
        "SPARK-41375: empty partitions should not record to latest offset": None,
        "subscribe topic by pattern with topic recreation between batches": None,
        "topic-level offsets tolerate a new topic matching subscribePattern after the start": None,
        "ensure that initial offset are written with an extra byte in the beginning (SPARK-19517)": _INITIAL,
        "deserialization of initial offset written by Spark 2.1.0 (SPARK-19517)": _INITIAL,
        "deserialization of initial offset written by future version": _INITIAL,
        "KafkaSource with watermark": None,
        "delete a topic when a Spark job is running": None,
        "SPARK-22956: currentPartitionOffsets should be set when no new data comes in": None,
        "allow group.id prefix": _NO_GROUP,
        "allow group.id override": _NO_GROUP,
        "ensure stream-stream self-join generates only one offset in log and correct metrics": None,
        "read Kafka transactional messages: read_committed": None,
        "read Kafka transactional messages: read_uncommitted": None,
        "SPARK-25495: FetchedData.reset should reset all fields": None,
        "SPARK-27494: read kafka record containing null key/values.": None,
        "SPARK-30656: minPartitions": None,
        "SPARK-56243: malformed record timestamp throws detailed error": None,
        "V1 Source is used when disabled through SQLConf": _JVM,
        "V2 Source is used by default": _JVM,
        "minPartitions is supported": None,
        "default config of includeHeader doesn't break existing query from Spark 2.4": "needs a checkpoint among Spark's own test files",  # noqa: E501
        "test custom metrics - with rate limit": None,
        "test custom metrics - no rate limit": None,
        "test custom metrics - corner cases": _METRICS,
        "SPARK-57438: metrics should not NPE when latestPartitionOffsets is null": _METRICS,
        "cannot stop Kafka stream": None,
        **{
            f"{strategy} from {start}": None
            for strategy in ("assign", "subscribing topic by name", "subscribing topic by pattern")
            for start in (
                "latest offsets", "earliest offsets", "specific offsets", "specific timestamps", "global timestamp per topic",
            )
        },
        "subscribing topics from topic-level offsets": None,
        **{
            f"subscribing topic by {strategy} from {start} with non-matching starting offset": None
            for strategy in ("name", "pattern")
            for start in ("specific timestamps", "global timestamp per topic")
        },
        "SPARK-53560: no crash looping during uncommitted batch retry in AvailableNow trigger": None,
        "bad source options": None,
        "unsupported kafka configs": None,
        "get offsets from case insensitive parameters": None,
        "Kafka column types": None,
        "stress test with multiple topics and partitions": None,
    },
}  # fmt: skip


def shown() -> dict[tuple[str, str], list[str]]:
    """(suite, name) of Spark's to the tests here that stand for it, as `file::function`."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted((ROOT / "tests" / "streaming").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if not (isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.scala"):
                    continue
                suite, *names = (ast.literal_eval(argument) for argument in mark.args)
                for name in names:
                    where = f"{path.relative_to(ROOT / 'tests' / 'streaming').as_posix()}::{node.name}"
                    found.setdefault((suite, name), []).append(where)
    return found


def page() -> str:
    """The page as it should be."""
    tests = shown()
    lines = [
        "# Beside Spark's own Kafka source",
        "",
        "Each test of Spark's own Kafka suites (`connector/kafka-0-10-sql`), and the test in `tests/streaming` that runs the same through",  # noqa: E501
        "`format(\"kafka\")` and `format(\"keyorder\")`, or why there is none. The page is made from the tests (`make",
        "docs`).",
        "",
    ]  # fmt: skip
    for suite, names in SUITES.items():
        count = sum(reason is None for reason in names.values())
        lines += [f"## {suite}", "", f"{count} of {len(names)}.", "", "| Spark's test | here |", "|---|---|"]
        for name, reason in names.items():
            here = "; ".join(f"`{where}`" for where in tests.get((suite, name), [])) or f"not: {reason}"
            lines.append(f"| {name} | {here} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__" and "--write" in sys.argv[1:]:
    PAGE.write_text(page(), encoding="utf-8")
