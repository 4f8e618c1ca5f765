"""docs/spark.md: its examples run as they stand, and its table has every option of the code, with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.options import SOURCE_OPTIONS
from support.cluster import KafkaUnderTest

GUIDE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


@pytest.mark.parametrize("option", SOURCE_OPTIONS)
def test_every_option_has_a_row_with_its_default(option: str) -> None:
    """The default that the code states in brackets stands in the second column."""
    row = next((line for line in GUIDE.splitlines() if line.startswith(f"| `{option}` |")), None)
    default = re.search(r"\((\w+)\)$", SOURCE_OPTIONS[option])

    assert row is not None
    if default is not None:
        assert row.split("|")[2].strip().strip("`") == default[1]


def test_the_examples_run(spark: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """One after the other, in one namespace."""
    spark.dataSource.register(KeyorderDataSource)
    TopicAdmin(kafka.client_config()).create(topic_name, 2)
    with OrderedProducer(kafka.client_config()) as producer:
        for n in range(20):
            producer.produce(topic_name, b"%d" % n, b"k%d" % (n % 3))
        assert producer.flush(30) == 0
    names: dict[str, Any] = {"spark": spark}
    for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL):
        code = block.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"{topic_name}"')
        exec(compile(code, "spark.md", "exec"), names)

    assert sorted(int(row.value) for row in spark.table("seen").collect()) == list(range(20))
