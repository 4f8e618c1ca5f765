"""Registers `format("keyorder")`: PySpark looks for `DefaultSource` in every top-level module named `pyspark_*`."""

from keyorder.streaming.data_source import KeyorderDataSource as DefaultSource

__all__ = ["DefaultSource"]
