"""docs/spark-sink.md: its examples run as they stand, and its table has every option of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from keyorder import TopicAdmin
from keyorder.streaming.data_source import KeyorderDataSource
from keyorder.streaming.sink.options import SINK_OPTIONS
from support.cluster import KafkaUnderTest

GUIDE = (Path(__file__).parents[3] / "docs" / "spark-sink.md").read_text()


@pytest.mark.parametrize("option", SINK_OPTIONS)
def test_every_option_has_a_row(option: str) -> None:
    assert f"| `{option}` |" in GUIDE


def test_the_examples_run(spark: Any, kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    spark.dataSource.register(KeyorderDataSource)
    TopicAdmin({"bootstrap.servers": kafka.bootstrap_servers}).create(topic_name, 2)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert blocks
    for block in blocks:
        code = block.replace("localhost:9092", kafka.bootstrap_servers).replace("/checkpoints", str(tmp_path))
        code = code.replace("orders", topic_name).replace("payments", topic_name)
        exec(compile(code, "spark-sink.md", "exec"), {"spark": spark})
