"""docs/spark.md and docs/spark-cluster.md: their examples run as they stand; the table has every option, with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.source.options import SOURCE_OPTIONS
from support.cluster import KafkaUnderTest

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "spark.md").read_text()


@pytest.mark.parametrize("option", SOURCE_OPTIONS)
def test_every_option_has_a_row_with_its_default(option: str) -> None:
    """The default that the code states in brackets stands in the second column."""
    row = next((line for line in GUIDE.splitlines() if line.startswith(f"| `{option}` |")), None)
    default = re.search(r"\((\w+)\)$", SOURCE_OPTIONS[option])

    assert row is not None
    if default is not None:
        assert row.split("|")[2].strip().strip("`") == default[1]


def run_blocks(page: str, spark: Any, kafka: KafkaUnderTest, topic: str) -> dict[str, Any]:
    """Run a page's Python one block after the other, in one namespace, on a topic of 20 records of three keys."""
    TopicAdmin(kafka.client_config()).create(topic, 2)
    with OrderedProducer(kafka.client_config()) as producer:
        for n in range(20):
            producer.produce(topic, b"%d" % n, b"k%d" % (n % 3))
        assert producer.flush(120) == 0
    names: dict[str, Any] = {"spark": spark}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        code = block.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"{topic}"')
        exec(compile(code, page, "exec"), names)
    return names


def test_the_examples_run(spark: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """What the guide's query collects is what was sent."""
    spark.dataSource.register(KeyorderDataSource)
    run_blocks("spark.md", spark, kafka, topic_name)

    assert sorted(int(row.value) for row in spark.table("seen").collect()) == list(range(20))


def test_the_cluster_pages_stateful_query_runs(
    spark: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """It has all rows of each key in one go; numbers of three keys in turns are not consecutive, and it says so."""
    names = run_blocks("spark-cluster.md", spark, kafka, topic_name)
    query = names["checked"].writeStream.format("memory").queryName("checked").trigger(availableNow=True)
    assert query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(600)

    found = {row.key: (row.rows, row.wrong) for row in spark.table("checked").collect()}
    assert found == {"k0": (7, 6), "k1": (7, 7), "k2": (6, 6)}
