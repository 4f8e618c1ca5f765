"""examples/customers.py: a table from events in any order, through growth and shrink, is the truth by every way."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from keyorder.streaming.data_source import KeyorderDataSource
from support.cluster import KafkaUnderTest

EXAMPLE = Path(__file__).parents[2] / "examples" / "customers.py"


def test_every_way_has_the_truth(spark: Any, kafka: KafkaUnderTest, topic_name: str) -> None:
    """Only the last record of each key is not it, before the compactor has run."""
    spec = importlib.util.spec_from_file_location("customers", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    customers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(customers)
    spark.dataSource.register(KeyorderDataSource)
    before = spark.conf.get(customers.STATE_STORE)
    spark.conf.set(customers.STATE_STORE, customers.ROCKSDB)
    try:
        found = customers.main(spark, kafka.bootstrap_servers, topic_name)
    finally:
        spark.conf.set(customers.STATE_STORE, before)
    assert found.pop("the last record of each customer") is False
    assert all(found.values()), found
    assert len(found) == 4
